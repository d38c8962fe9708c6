"""Tables of ``heedful predict``: predictions beside their inputs."""

import csv
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
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
HELD_BACK, SUGGESTION, NOTES = "held_back", "suggestion", "notes"

NOTES_OF_PREDICTION = "prediction_notes"
"""Name of the column of notes if the input has a field `NOTES`."""

DECIMALS = 6
"""Number of decimals of probabilities; more say nothing about data sets of any size."""

IN_MEMORY = 1 << 26
"""Number of bytes of predictions from which they are kept in a temporary file until they are written."""


class TableWriter(ExitStack):
    """Collects the records of a table and writes it: the fields of the inputs, then the predictions.

    As a context manager it removes its temporary file at the end.

    Args:
        path: a file with a name in one of `OUTPUTS`.
        holds_back: whether a table says which answers are held back, and what they would be.

    Attributes:
        is_jsonl: whether the file has JSON lines.
        is_workbook: whether it is a workbook of Excel.
        dialect: how a table is written; tabs separate the fields of one named ``.tsv``.
    """

    def __init__(self, path: Path, *, holds_back: bool = False) -> None:
        super().__init__()
        check_out(path, OUTPUTS)
        self.path, self.holds_back = path, holds_back
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
        self._last_names: dict[str, None] = {}

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
        notes = prediction.notes if prediction.error is None else (prediction.error,)
        self.add_row(own, self._columns_of(prediction), {NOTES: "; ".join(notes) or None})

    def add_row(self, own: JsonMapping, predicted: JsonMapping, last: JsonMapping | None = None) -> None:
        """Add a row of a table: the fields of an input, and further columns.

        Args:
            own: the fields of the input.
            predicted: columns after them.
            last: columns after those of all rows; they have another name if the input has such a field.

        Raises:
            RequestError: as of `add`.
        """
        self._own_names |= dict.fromkeys(own)
        self._predicted_names |= dict.fromkeys(predicted)
        self._last_names |= dict.fromkeys(last or ())
        if clashes := [name for name in self._own_names if name in self._predicted_names]:
            raise RequestError(
                f"--out {self.path}: the input has a field {clashes[0]!r}, which is a column of the output; "
                "rename it"
            )
        if self.is_workbook:
            own = {name: cell.value if isinstance(cell, CellText) else cell for name, cell in own.items()}
        self._records.write(json_text([own, {**predicted, **(last or {})}]) + "\n")

    def _columns_of(self, prediction: "Prediction") -> JsonObject:
        """Return the columns of a prediction; those of an empty input or an error have no numbers.

        All rows have the columns without numbers, so that a table does not depend on what is in it.
        """
        output: object = prediction.text
        if self.is_workbook and prediction.answered and isinstance(prediction.output, float):
            output = float(prediction.text)
        columns: JsonObject = {PREDICTION: output}
        if prediction.confidence is not None:
            columns[CONFIDENCE] = round(prediction.confidence, DECIMALS)
        if self.holds_back:
            columns |= {HELD_BACK: prediction.held_back, SUGGESTION: _as_text(prediction.suggestion)}
        probabilities = _probabilities(prediction)
        columns |= _alternatives(prediction, probabilities)
        if (pairs := prediction.alignment) is not None:
            columns[ALIGNMENT] = pharaoh(pairs)
        if interval := getattr(prediction, "interval", None):  # of a number, with as many digits
            columns |= dict(zip(INTERVAL, (float(f"{end:.6g}") for end in interval), strict=True))
        columns |= {f"p({label})": round(p, DECIMALS) for label, p in probabilities.items()}
        return columns

    def write(self) -> None:
        """Write the file; an existing one is replaced once the new one is complete."""
        self._records.seek(0)
        with whole_file(self.path) as file:
            if self.is_jsonl:
                shutil.copyfileobj(self._records, file)
                return
            predicted = [*sorted(self._predicted_names, key=_rank), *self._last_names]
            renamed = [NOTES_OF_PREDICTION if name in self._own_names else name for name in predicted]
            names = [*self._own_names, *renamed]
            if self.is_workbook:
                write_sheet(file.buffer, self.path.name, names, self._rows(predicted))
                return
            is_tsv, dialect = self.path.suffix.lower() == ".tsv", self.dialect
            file.write(dialect.beginning.partition("sep=")[0] if is_tsv else dialect.beginning)
            separator = "\t" if is_tsv else dialect.separator
            table = csv.writer(file, delimiter=separator, lineterminator="\n")
            table.writerow(names)
            table.writerows(map(self._texts, self._rows(predicted)))

    def _rows(self, predicted: Sequence[str]) -> Iterator[list[object]]:
        """Yield the cells of each record, None for those that it does not have.

        Args:
            predicted: the names of the columns after those of the input.
        """
        for own, answer in map(json.loads, self._records):
            yield [*map(own.get, self._own_names), *map(answer.get, predicted)]

    def _texts(self, row: Sequence[object]) -> list[str]:
        """Return the cells of a record as texts."""
        n_own = len(self._own_names)
        return [*map(_cell, row[:n_own]), *map(_predicted_cell, row[n_own:])]


def _probabilities(prediction: "Prediction") -> dict[str, float]:
    """Return the probability of each label; nothing for tasks without labels."""
    with suppress(RequestError):
        return prediction.label_probabilities()
    return {}


def _alternatives(prediction: "Prediction", probabilities: Mapping[str, float]) -> JsonObject:
    """Return the columns of the next best answers: ``prediction_2``, with ``confidence_2`` if it has one."""
    columns: JsonObject = {}
    for number, alternative in enumerate(prediction.alternatives, 2):
        columns[f"{PREDICTION}_{number}"] = alternative.text
        confidence = probabilities.get(alternative.text, alternative.confidence)
        if confidence is not None:
            columns[f"{CONFIDENCE}_{number}"] = round(confidence, DECIMALS)
    return columns


_RANKS = {PREDICTION: 0, CONFIDENCE: 1, HELD_BACK: 2, SUGGESTION: 3}


def _rank(name: str) -> tuple[int, int]:
    """Return the place of a column of predictions; others follow in their order."""
    if name in _RANKS:
        return _RANKS[name], 0
    kind, _, number = name.rpartition("_")
    is_alternative = kind in (PREDICTION, CONFIDENCE) and number.isdecimal()
    return (len(_RANKS), 2 * int(number) + (kind == CONFIDENCE)) if is_alternative else (len(_RANKS) + 1, 0)


def _as_text(output: object) -> object:
    """Return an output as a cell has it: tags as a line."""
    return " ".join(output) if isinstance(output, list) else output


def _cell(value: object) -> str:
    """Return the text of a field: a text itself, nothing for None, other values as JSON."""
    text = "" if value is None else value if isinstance(value, str) else json_text(value)
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is not UTF-8


def _predicted_cell(value: object) -> str:
    """Return the text of a field of a prediction; probabilities have no exponents, as in spreadsheets."""
    if isinstance(value, float) and float(text := f"{value:.{DECIMALS}f}") == value:
        return text.rstrip("0").rstrip(".")
    return _cell(value)
