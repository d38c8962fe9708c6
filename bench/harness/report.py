"""Write tables as Markdown, and the measurements as JSON."""

import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.machine import Machine
from harness.turns import log


@dataclass(frozen=True)
class Row:
    """Measurements of one contender.

    Args:
        library: name of the library.
        setting: precision and mode.
        rates: rate of each round; higher is better.
        speeds: FLOP/s of each round, or empty.
        memory: MiB at the peak, if measured.
        compile_seconds: compile time, if compiled.
        disturbed: rounds that other processes disturbed in spite of repetitions.
        failure: error message if there are no measurements.
    """

    library: str
    setting: str
    rates: list[float]
    speeds: list[float] = field(default_factory=list)
    memory: float | None = None
    compile_seconds: float | None = None
    disturbed: int = 0
    failure: str = ""


@dataclass(frozen=True)
class Table:
    """Measurements of several contenders on the same work."""

    title: str
    unit: str
    rows: list[Row]
    peaks: dict[str, float] = field(default_factory=dict)
    """FLOP/s of large products by type, measured in the same run."""

    @property
    def best_peer(self) -> Row | None:
        """Return the fastest contender other than heedful."""
        peers = [row for row in self.rows if row.library != "heedful" and row.rates]
        return max(peers, key=lambda row: statistics.median(row.rates), default=None)

    def ratio(self, row: Row) -> float | None:
        """Return the median over rounds of the ratio of this row's rate to the best peer's."""
        best = self.best_peer
        if best is None or not row.rates:
            return None
        return statistics.median(a / b for a, b in zip(row.rates, best.rates, strict=True))


def fastest(table: Table, n: int) -> set[str]:
    """Return the names of the ``n`` fastest contenders of each library."""
    groups: dict[str, list[Row]] = {}
    for row in table.rows:
        if row.rates:
            groups.setdefault(row.library, []).append(row)
    return {
        f"{row.library}, {row.setting}"
        for rows in groups.values()
        for row in sorted(rows, key=lambda row: -statistics.median(row.rates))[:n]
    }


def write(
    name: str, title: str, sections: Sequence[str], record: Any, machine: Machine, folder: Path
) -> None:
    """Write ``name.md`` from its sections and ``name.json`` with the record; print the former."""
    folder.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["python", f"bench/{Path(sys.argv[0]).name}", *public(sys.argv[1:])])
    day = datetime.now(UTC).date().isoformat()
    text = "\n\n".join([f"# {title}", *sections, f"`{command}`, {day}.  \n{machine}"]) + "\n"
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    record_with_context = {
        "claim": name, "command": command, "date": day, "machine": machine.as_dict(), "results": record
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(record_with_context, indent=1) + "\n", encoding="utf-8")
    print(text)
    log(f"written: {folder / name}.md and .json")


def write_tables(name: str, title: str, tables: Sequence[Table], machine: Machine, folder: Path) -> None:
    """Call `write` for tables of contenders."""
    write(name, title, [*map(markdown, tables)], [asdict(table) for table in tables], machine, folder)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(map(_line, [head, ["---"] * len(head), *rows]))


def markdown(table: Table) -> str:
    """Return a Markdown table of contenders, fastest first."""
    shares = any(row.speeds for row in table.rows)
    memories = any(row.memory is not None for row in table.rows)
    compiles = any(row.compile_seconds is not None for row in table.rows)
    head = ["contender", "setting", table.unit, "spread", "of the best peer"]
    head += ["of the peak"] * shares + ["peak memory"] * memories + ["compile"] * compiles
    lines = []
    for row in sorted(table.rows, key=lambda r: -statistics.median(r.rates or [0.0])):
        cells = [row.library, row.setting, *_figures(table, row)]
        cells += [_share(table, row)] * shares
        cells += [f"{row.memory:,.0f} MiB" if row.memory is not None else ""] * memories
        cells += [f"{row.compile_seconds:.0f} s" if row.compile_seconds is not None else ""] * compiles
        lines.append(cells)
    paragraphs = [f"## {table.title}", grid(head, lines)]
    if table.peaks:
        peaks = ", ".join(f"{name} {value / 1e9:,.0f} GFLOP/s" for name, value in table.peaks.items())
        remark = "" if "bf16" in table.peaks else "; bf16 would be emulated, so it is not measured"
        paragraphs.append(f"Peak of large products in the same run: {peaks}{remark}.")
    if disturbed := sum(row.disturbed for row in table.rows):
        turns = sum(len(row.rates) for row in table.rows)
        paragraphs.append(f"Other processes were busy during {disturbed} of {turns} turns.")
    return "\n\n".join(paragraphs)


def _figures(table: Table, row: Row) -> list[str]:
    if not row.rates:
        return [row.failure or "not yet measured", "", ""]
    ratio = table.ratio(row)
    return [
        number(statistics.median(row.rates)),
        f"{number(min(row.rates))}–{number(max(row.rates))}",
        f"{ratio:.2f}" if ratio else "",
    ]


def _share(table: Table, row: Row) -> str:
    peak = max(table.peaks.values(), default=0.0)
    return f"{statistics.median(row.speeds) / peak:.0%}" if row.speeds and peak else ""


def number(value: float) -> str:
    """Format with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def public(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without private folders: options dropped, absolute paths cut to the name."""
    arguments_shown, skips_next = [], False
    for argument in arguments:
        if argument in ("--lock", "--out", "--work"):
            skips_next = True
        elif skips_next:
            skips_next = False
        else:
            paths = map(Path, argument.split("="))  # RUN=FILE
            arguments_shown.append("=".join(path.name if path.is_absolute() else str(path) for path in paths))
    return arguments_shown
