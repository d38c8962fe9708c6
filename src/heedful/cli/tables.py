"""Tables of ``heedful predict``: predictions beside their inputs."""

import csv
import json
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING

from heedful.cli.output import check_out
from heedful.data.links import ALIGNMENT, pharaoh
from heedful.errors import RequestError
from heedful.files import json_text, whole_file
from heedful.tables import Dialect
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.tasks.prediction import Prediction

OUTPUTS = (".csv", ".tsv", ".jsonl")
"""Suffixes of files for predictions."""

PREDICTION, INTERVAL = "prediction", ("low", "high")

IN_MEMORY = 1 << 26
"""Number of bytes of predictions from which they are kept in a temporary file until they are written."""


class TableWriter(ExitStack):
    """Collects the records of a table and writes it: the fields of the inputs, then the predictions.

    As a context manager it removes its temporary file at the end.

    Args:
        path: a file named ``.csv``, ``.tsv`` or ``.jsonl``.

    Attributes:
        is_jsonl: whether the file has JSON lines.
        dialect: how a table is written; tabs separate the fields of one named ``.tsv``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        check_out(path, OUTPUTS)
        self.path = path
        self.dialect = Dialect()
        self.is_jsonl = path.suffix.lower() == ".jsonl"
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
        probabilities: dict[str, float] = {}
        with suppress(RequestError):  # a task without labels
            probabilities = prediction.label_probabilities()
        predicted: JsonObject = {PREDICTION: prediction.text}
        if (pairs := prediction.alignment) is not None:
            predicted[ALIGNMENT] = pharaoh(pairs)
        if interval := getattr(prediction, "interval", None):  # of a number
            predicted |= dict(zip(INTERVAL, interval, strict=True))
        predicted |= {f"p({label})": probability for label, probability in probabilities.items()}
        self._own_names |= dict.fromkeys(own)
        self._predicted_names |= dict.fromkeys(predicted)
        if clashes := [name for name in self._own_names if name in self._predicted_names]:
            raise RequestError(
                f"--out {self.path}: the input has a field {clashes[0]!r}, which is a column of the output; "
                "rename it"
            )
        self._records.write(json_text({**own, **predicted}) + "\n")

    def write(self) -> None:
        """Write the file; an existing one is replaced once the new one is complete."""
        self._records.seek(0)
        with whole_file(self.path) as file:
            if self.is_jsonl:
                shutil.copyfileobj(self._records, file)
                return
            names = [*self._own_names, *self._predicted_names]
            is_tsv, dialect = self.path.suffix.lower() == ".tsv", self.dialect
            file.write(dialect.beginning.partition("sep=")[0] if is_tsv else dialect.beginning)
            separator = "\t" if is_tsv else dialect.separator
            table = csv.writer(file, delimiter=separator, lineterminator="\n")
            table.writerow(names)
            records = map(json.loads, self._records)
            table.writerows([_cell(record.get(name)) for name in names] for record in records)


def _cell(value: object) -> str:
    """Return the text of a field: a text itself, nothing for None, other values as JSON."""
    text = "" if value is None else value if isinstance(value, str) else json_text(value)
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is not UTF-8
