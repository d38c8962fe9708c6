"""Tables of ``heedful predict``: inputs from CSV and TSV files, and predictions beside their inputs."""

import csv
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING

from heedful.cli.inputs import Input, InputFormat
from heedful.cli.output import check_out
from heedful.errors import DataError, RequestError
from heedful.files import has_suffix, json_text, whole_file
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.data.lines import Location
    from heedful.data.text import TsvSource
    from heedful.tasks.prediction import Prediction

TABLES = (".csv", ".tsv")
"""Suffixes of tables, before an optional ``.gz``."""

OUTPUTS = (".csv", ".tsv", ".jsonl")
"""Suffixes of files for predictions."""

PREDICTION = "prediction"

IN_MEMORY = 1 << 26
"""Number of bytes of predictions from which they are kept in a temporary file until they are written."""


def is_table(file: str) -> bool:
    """Whether a file is a table by its name."""
    return has_suffix(file, *TABLES)


# Reading ----------------------------------------------------------------------------------------------------


def table_inputs(file: str, input_format: InputFormat, like: object) -> Iterator[Input]:
    """Yield an input for each record of a table, with all its fields; blank lines are skipped.

    Args:
        file: the path.
        input_format: the keys of the run, and the names of their fields.
        like: the source of the run's training data (see `heedful.data.sources.user_table`).

    Raises:
        DataError: the header does not have the names, or the file cannot be read (further).
    """
    from heedful.data.lines import find
    from heedful.data.sources import ConllSource, HeaderError, SquadSource, TsvSource, user_table

    located, names = find(file, Path()), input_format.names
    keys = dict.fromkeys((*input_format.keys, *names))
    table_like = None if isinstance(like, ConllSource | SquadSource) else like
    try:
        source = user_table(located.path, list(keys), table_like, names)
    except HeaderError as error:
        remedy = "" if names else f"; or choose the fields with --column {input_format.keys[0]}=NAME"
        raise DataError(f"{error}{remedy}") from None
    assert isinstance(source, TsvSource)
    header, records = source.header_and_records(located)
    numbers = source.field_numbers(header, located)
    numbers |= {key: header.index(key) for key in input_format.optional_keys if key in header}
    reader = _RecordReader(source, header, numbers, {key: numbers[key] for key in numbers if key in keys})
    is_first = True
    for location, record in records:
        if record and (record != [""] or len(header) == 1):
            parsed = reader.read(location, record)
            if is_first and parsed.error:
                raise DataError(parsed.error)
            is_first = False
            yield parsed


@dataclass(frozen=True)
class _RecordReader:
    """Turns the records of a table into inputs.

    Args:
        source: the format of the table.
        header: the names of the fields; empty if it has none.
        columns: the number of the field of each column.
        keys: of these, those that the run reads.
    """

    source: "TsvSource"
    header: Sequence[str]
    columns: Mapping[str, int]
    keys: Mapping[str, int]

    def read(self, location: "Location", record: Sequence[str]) -> Input:
        """Return the input of a record, with an error if the record lacks a field."""
        problem = self.source.problem(location, record, self.header, self.keys)
        if problem:
            return Input({}, problem)
        names = self._names(len(record))
        positions = {key: number % len(record) for key, number in self.keys.items()}
        # Blank fields after those of the header are only kept if the run reads one of them.
        n_kept = max(len(self.header), 1 + max(positions.values())) if self.header else len(record)
        fields = {key: names[position] for key, position in positions.items()}
        renamed = {key: name for key, name in fields.items() if key != name}
        return Input(dict(zip(names[:n_kept], record, strict=False)), fields=renamed)

    def _names(self, n_fields: int) -> list[str]:
        """Return the names of the fields; a repeated one gets a suffix, ``.1``, as in pandas."""
        if not self.header:
            in_range = range(-n_fields, n_fields)
            columns = {n % n_fields: column for column, n in self.columns.items() if n in in_range}
            return [columns.get(number, str(number)) for number in range(n_fields)]
        names: list[str] = []
        for name in (*self.header, *map(str, range(len(self.header), n_fields))):
            candidates = (f"{name}.{n}" if n else name for n in range(len(names) + 1))
            names.append(next(candidate for candidate in candidates if candidate not in names))
        return names


# Writing ----------------------------------------------------------------------------------------------------


class TableWriter(ExitStack):
    """Collects the records of a table and writes it: the fields of the inputs, then the predictions.

    As a context manager it removes its temporary file at the end.

    Args:
        path: a file named ``.csv``, ``.tsv`` or ``.jsonl``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        check_out(path, OUTPUTS)
        self.path = path
        self._is_jsonl = path.suffix.lower() == ".jsonl"
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
        probabilities: dict[str, float] = {}
        with suppress(RequestError):  # a task without labels
            probabilities = prediction.label_probabilities()
        predicted: JsonObject = {PREDICTION: prediction.text}
        predicted |= {f"p({label})": probability for label, probability in probabilities.items()}
        self._own_names |= dict.fromkeys(own)
        self._predicted_names |= dict.fromkeys(predicted)
        if clashes := [name for name in self._own_names if name in self._predicted_names]:
            raise RequestError(
                f"--out {self.path}: the input has a field {clashes[0]!r}, which is a column of the output; "
                "rename it"
            )
        self._records.write(json_text({**own, **predicted}, allow_nan=not self._is_jsonl) + "\n")

    def write(self) -> None:
        """Write the file; an existing one is replaced once the new one is complete."""
        self._records.seek(0)
        with whole_file(self.path) as file:
            if self._is_jsonl:
                shutil.copyfileobj(self._records, file)
                return
            names = [*self._own_names, *self._predicted_names]
            separator = "\t" if self.path.suffix.lower() == ".tsv" else ","
            table = csv.writer(file, delimiter=separator, lineterminator="\n")
            table.writerow(names)
            records = map(json.loads, self._records)
            table.writerows([_cell(record.get(name)) for name in names] for record in records)


def _cell(value: object) -> str:
    """Return the text of a field: a text itself, nothing for None, other values as JSON."""
    text = "" if value is None else value if isinstance(value, str) else json_text(value)
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is not UTF-8
