"""Progress of a training in a notebook: a bar, and a table of the validations."""

import html
import sys
import time
from importlib import import_module
from typing import Any

from heedful.tables import html_table
from heedful.training.callbacks import (
    Event,
    Saved,
    Speed,
    Started,
    Stopped,
    Updated,
    Validated,
    duration,
)

INTERVAL = 0.5
"""Minimum seconds between two drawings."""

N_ROWS = 20
"""The number of validations shown, the last ones."""


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook that shows HTML."""
    ipython = sys.modules.get("IPython")  # which has imported itself there
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ not in ("TerminalInteractiveShell", "InteractiveShell")


class NotebookProgress:
    """Show a training in the output of a notebook's cell, which is updated in place.

    Args:
        max_minutes: the time limit of the training.
    """

    def __init__(self, max_minutes: float | None = None) -> None:
        self.speed = Speed(max_minutes)
        self.max_updates: int | None = None
        self.line = "preparing"
        self.update = 0
        self.warnings: list[str] = []
        self.validations: list[Validated] = []
        self._display: Any = None
        self._drawn = -INTERVAL

    def __call__(self, event: Event) -> None:
        """Show the event."""
        self.update = event.update
        match event:
            case Started():
                self.max_updates = event.max_updates
                self.warnings = [f"skipped a damaged checkpoint: {message}" for message in event.damaged]
            case Updated():
                self.line = self.speed.summary(event, self.max_updates)
            case Validated():
                self.validations.append(event)
            case Stopped():
                self.line = (
                    f"stopped after {event.update:,} updates ({event.reason}), {duration(event.elapsed)}"
                )
            case Saved():
                return
        if not isinstance(event, Updated) or time.monotonic() - self._drawn >= INTERVAL:
            self._drawn = time.monotonic()
            self._draw()

    def _draw(self) -> None:
        ipython = import_module("IPython.display")
        content = ipython.HTML(self.html())
        if self._display is None:
            self._display = ipython.display(content, display_id=True)
        else:
            self._display.update(content)

    def html(self) -> str:
        """Return what is shown."""
        total = self.max_updates
        bar = "" if total is None else f'<progress value="{self.update}" max="{total}"></progress> '
        count = f"{self.update:,}" + (f" / {total:,}" if total else "")
        rows = self.validations[-N_ROWS:]
        table = ""
        if rows:
            names = list(rows[-1].metrics)
            table = html_table([("update", *names, ""), *(_cells(row, names) for row in rows)])
        warnings = "".join(f"<div>warning: {html.escape(warning)}</div>" for warning in self.warnings)
        return f"{warnings}<div>{bar}{count} &nbsp; {html.escape(self.line)}</div>{table}"


def _cells(event: Validated, names: list[str]) -> list[str]:
    values = [f"{event.metrics.get(name, float('nan')):.4g}" for name in names]
    return [f"{event.update:,}", *values, "best" if event.best else ""]
