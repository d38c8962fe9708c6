"""Tables: Markdown for people, JSON for whoever compares later."""

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
    """What was measured of one contender.

    Args:
        library: who.
        setting: how.
        rates: the figure of each round; more is better.
        speeds: FLOP/s of each round, or none.
        memory: MiB at the peak, if measured.
        compile_seconds: what compiling took, for those that compile.
        disturbed: rounds in which other processes took part of the machine, in spite of repetitions.
        failure: why there are no figures.
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
    """Contenders at the same work."""

    title: str
    unit: str
    rows: list[Row]
    peaks: dict[str, float] = field(default_factory=dict)
    """FLOP/s of large products by type, measured in the same run."""

    @property
    def best_peer(self) -> Row | None:
        """The fastest that is not heedful."""
        peers = [row for row in self.rows if row.library != "heedful" and row.rates]
        return max(peers, key=lambda row: statistics.median(row.rates), default=None)

    def ratio(self, row: Row) -> float | None:
        """The median over the rounds of this row's rate over the best peer's."""
        best = self.best_peer
        if best is None or not row.rates:
            return None
        return statistics.median(a / b for a, b in zip(row.rates, best.rates, strict=True))


def fastest(table: Table, n: int) -> set[str]:
    """Names of the ``n`` fastest contenders of each library."""
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
    """Write ``name.md`` from its sections and ``name.json`` with the record, and show the first."""
    folder.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["python", f"bench/{Path(sys.argv[0]).name}", *_public(sys.argv[1:])])
    day = datetime.now(UTC).date().isoformat()
    text = "\n\n".join([f"# {title}", *sections, f"`{command}`, {day}.  \n{machine}"]) + "\n"
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    whole = {
        "claim": name, "command": command, "date": day, "machine": machine.as_dict(), "results": record
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(text)
    log(f"written: {folder / name}.md and .json")


def write_tables(name: str, title: str, tables: Sequence[Table], machine: Machine, folder: Path) -> None:
    """`write` for tables of contenders."""
    write(name, title, [*map(markdown, tables)], [asdict(table) for table in tables], machine, folder)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(map(_line, [head, ["---"] * len(head), *rows]))


def markdown(table: Table) -> str:
    """A table, fastest first."""
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
    parts = [f"## {table.title}", grid(head, lines)]
    if table.peaks:
        peaks = ", ".join(f"{name} {value / 1e9:,.0f} GFLOP/s" for name, value in table.peaks.items())
        none = "" if "bf16" in table.peaks else "; bf16 would be emulated, so nobody uses it"
        parts.append(f"Peak of large products in the same run: {peaks}{none}.")
    if disturbed := sum(row.disturbed for row in table.rows):
        turns = sum(len(row.rates) for row in table.rows)
        parts.append(f"Other processes were busy during {disturbed} of {turns} turns.")
    return "\n\n".join(parts)


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
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _public(arguments: Sequence[str]) -> list[str]:
    """The arguments without folders of the one who measured: left out, or a program's name alone."""
    kept, skip = [], False
    for argument in arguments:
        if argument in ("--lock", "--out", "--work"):
            skip = True
        elif skip:
            skip = False
        else:
            kept.append(Path(argument).name if Path(argument).is_absolute() else argument)
    return kept
