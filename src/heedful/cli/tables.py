"""Tables of ``heedful predict``: predictions beside their inputs."""

import csv
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING

from heedful.cli.output import check_out
from heedful.data.links import ALIGNMENT, pharaoh
from heedful.data.spreadsheets import CellText, check_library, write_sheet
from heedful.errors import RequestError
from heedful.files import json_text, whole_file
from heedful.tables import Dialect
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.tasks.prediction import Prediction

TABLES = (".csv", ".tsv", ".xlsx")
"""Suffixes of tables."""

OUTPUTS = (*TABLES, ".jsonl")
"""Suffixes of files for predictions."""

PREDICTION, CONFIDENCE, INTERVAL = "prediction", "confidence", ("low", "high")

DECIMALS = 6
"""Number of decimals of probabilities; more say nothing about data sets of any size."""

IN_MEMORY = 1 << 26
"""Number of bytes of predictions from which they are kept in a temporary file until they are written."""


class TableWriter(ExitStack):
    """Collects the records of a table and writes it: the fields of the inputs, then the predictions.

    As a context manager it removes its temporary file at the end.

    Args:
        path: a file with a name in one of `OUTPUTS`.

    Attributes:
        is_jsonl: whether the file has JSON lines.
        is_workbook: whether it is a workbook of Excel.
        dialect: how a table is written; tabs separate the fields of one named ``.tsv``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        check_out(path, OUTPUTS)
        self.path = path
        self.dialect = Dialect()
        self.is_jsonl = path.suffix.lower() == ".jsonl"
        self.is_workbook = path.suffix.lower() == ".xlsx"
        if self.is_workbook:
            check_library(path)
        # Lines of JSON: the header of a table is only known after the last record.
        self._records = self.enter_context(
            SpooledTemporaryFile(IN_MEMORY, "w+", encoding="utf-8", newline="\n")  # noqa: SIM115
        )
        # Names in order; some inputs may lack fields of others, and errors have no probabilities.
        self._own_names: dict[str, None] = {}
        self._predicted_names: dict[str, None] = {}

    def add(self, own: JsonMapping, prediction: "Prediction") -> None:
        """Add a record.

        Args:
            own: the fields of the input.
            prediction: its prediction; empty if it has an error.

        Raises:
            RequestError: the input has a field with the name of a column of predictions.
        """
        if self.is_jsonl:
            self._records.write(json_text(prediction.to_dict(own), allow_nan=False) + "\n")
            return
        self.add_row(own, self._columns_of(prediction))

    def add_row(self, own: JsonMapping, predicted: JsonMapping) -> None:
        """Add a row of a table: the fields of an input, and further columns.

        Raises:
            RequestError: as of `add`.
        """
        self._own_names |= dict.fromkeys(own)
        self._predicted_names |= dict.fromkeys(predicted)
        if clashes := [name for name in self._own_names if name in self._predicted_names]:
            raise RequestError(
                f"--out {self.path}: the input has a field {clashes[0]!r}, which is a column of the output; "
                "rename it"
            )
        if self.is_workbook:
            own = {name: cell.value if isinstance(cell, CellText) else cell for name, cell in own.items()}
        self._records.write(json_text({**own, **predicted}) + "\n")

    def _columns_of(self, prediction: "Prediction") -> JsonObject:
        """Return the columns of a prediction; those of an empty input or an error have no numbers."""
        output: object = prediction.text
        if self.is_workbook and prediction.answered and isinstance(prediction.output, float):
            output = float(prediction.text)
        columns: JsonObject = {PREDICTION: output}
        if prediction.confidence is not None:
            columns[CONFIDENCE] = round(prediction.confidence, DECIMALS)
        if (pairs := prediction.alignment) is not None:
            columns[ALIGNMENT] = pharaoh(pairs)
        if interval := getattr(prediction, "interval", None):  # of a number, with as many digits
            columns |= dict(zip(INTERVAL, (float(f"{end:.6g}") for end in interval), strict=True))
        with suppress(RequestError):  # a task without labels
            probabilities = prediction.label_probabilities()
            columns |= {f"p({label})": round(p, DECIMALS) for label, p in probabilities.items()}
        return columns

    def write(self) -> None:
        """Write the file; an existing one is replaced once the new one is complete."""
        self._records.seek(0)
        with whole_file(self.path) as file:
            if self.is_jsonl:
                shutil.copyfileobj(self._records, file)
                return
            names = [*self._own_names, *self._predicted_names]
            if self.is_workbook:
                write_sheet(file.buffer, self.path.name, names, self._rows(names))
                return
            is_tsv, dialect = self.path.suffix.lower() == ".tsv", self.dialect
            file.write(dialect.beginning.partition("sep=")[0] if is_tsv else dialect.beginning)
            separator = "\t" if is_tsv else dialect.separator
            table = csv.writer(file, delimiter=separator, lineterminator="\n")
            table.writerow(names)
            table.writerows(map(self._texts, self._rows(names)))

    def _rows(self, names: Sequence[str]) -> Iterator[list[object]]:
        """Yield the cells of each record, None for those that it does not have."""
        for record in map(json.loads, self._records):
            yield [record.get(name) for name in names]

    def _texts(self, row: Sequence[object]) -> list[str]:
        """Return the cells of a record as texts."""
        n_own = len(self._own_names)
        return [*map(_cell, row[:n_own]), *map(_predicted_cell, row[n_own:])]


def _cell(value: object) -> str:
    """Return the text of a field: a text itself, nothing for None, other values as JSON."""
    text = "" if value is None else value if isinstance(value, str) else json_text(value)
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is not UTF-8


def _predicted_cell(value: object) -> str:
    """Return the text of a field of a prediction; probabilities have no exponents, as in spreadsheets."""
    if isinstance(value, float) and float(text := f"{value:.{DECIMALS}f}") == value:
        return text.rstrip("0").rstrip(".")
    return _cell(value)
