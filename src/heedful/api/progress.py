"""Progress of a verb: a bar on standard error, or counts for a function of the caller."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from heedful.errors import RequestError, type_name

Progress: TypeAlias = bool | Callable[[int], None]
"""True: show progress; False: show nothing; or a function, called with the number of items just done."""


def check_progress(progress: object) -> None:
    """Check that progress is True, False or a function.

    Raises:
        RequestError: it is none of these.
    """
    if not (isinstance(progress, bool) or callable(progress)):
        raise RequestError(f"progress: expected True, False or a function, got {type_name(progress)}")


@contextmanager
def counting(progress: Progress, unit: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Give a function that is called with the number of items just done, and shows or passes on the counts.

    Args:
        progress: as of all verbs.
        unit: what the items are, for the bar.
        total: how many there are, if that is known.

    Raises:
        RequestError: as `check_progress`.
    """
    check_progress(progress)
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda n: bar.advance(task, n)
