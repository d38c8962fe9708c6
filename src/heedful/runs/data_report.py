"""``data.json`` of a run: what was read, kept and dropped, and the hashes of the rows."""

from typing import Annotated, Literal

from pydantic import Field

from heedful.artifacts.run_folder import RunFolder, write_card
from heedful.records import Count, Digest, Record, StampedRecord, Text, read_record
from heedful.typing import JsonMapping

REMEDY = "restore it from a copy, or delete it: the data are then prepared again"


class _Tally(Record):
    """See `heedful.data.report.Tally`."""

    count: Count
    examples: list[Text]


class _Column(Record):
    """See `heedful.data.report.ColumnCounts`."""

    tokens: Count
    unknown: Count
    unknown_rate: Annotated[float, Field(ge=0, le=1)]
    length: dict[str, float]
    spelled_in_bytes: Annotated[float, Field(ge=0, le=1)] | None = None


class RowsReport(Record):
    """See `heedful.data.report.DataReport`.

    Args:
        sha256: of the rows, as `heedful.data.store.RowDigest` computes it.
    """

    rows: Count
    kept: Count
    dropped: dict[Text, _Tally]
    truncated: dict[Text, _Tally]
    columns: dict[Text, _Column]
    classes: dict[Text, Count] | None = None
    noted: dict[Text, _Tally] | None = None
    sha256: Digest


class DataReportRecord(StampedRecord):
    """Content of ``data.json``."""

    version: Literal[1]
    train: RowsReport
    valid: RowsReport


def read_data_report(folder: RunFolder) -> DataReportRecord | None:
    """Return the data report of a run; None if it has none.

    Raises:
        DamagedError: it is damaged.
    """
    if not folder.data_report.exists():
        return None
    return read_record(folder.data_report, DataReportRecord, REMEDY)


def write_data_report(folder: RunFolder, reports: JsonMapping) -> None:
    """Write the reports of ``train`` and ``valid``."""
    write_card(folder.data_report, {"version": 1, **reports})
