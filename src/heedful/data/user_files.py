"""The source that reads a user's file: every verb reads a file in the same way.

The format of a file follows from its name or, if the name does not say it, from its first lines and the
format of the run's own data. Fields are found by the names that the training data give to the columns, if the
file has them, or else by the columns' own names.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TypeAlias

from heedful.data.annotated import ConllSource, IdxSource, SquadSource, looks_like_conll
from heedful.data.delimited import TsvSource
from heedful.data.file_hints import NOT_JSON_LINES
from heedful.data.folders import CaptionedFolderSource, FolderSource, SegmentedFolderSource
from heedful.data.hub import READERS, DatasetsSource
from heedful.data.json_lines import JsonlSource, has_field, missing_field, record_of
from heedful.data.lines import (
    EmptyLineError,
    File,
    HeaderError,
    Location,
    Record,
    Source,
    Stream,
    ValueList,
    ValueRefusedError,
    find,
    lines_or_errors,
    raw_lines,
)
from heedful.data.parquet import is_parquet, parquet_source
from heedful.data.parquet_rows import parquet_schema
from heedful.data.sources import list_columns
from heedful.data.spreadsheets import WORKBOOKS, is_workbook
from heedful.data.text import FilesSource, TextSource
from heedful.data.user_tables import (
    NAME_COLUMNS,
    Wanted,
    field_number,
    longest_record,
    single_sources,
    user_tsv,
    with_header,
    without_header,
)
from heedful.errors import DataError, quoted
from heedful.files import has_suffix
from heedful.typing import JsonObject

USER_TABLES = (".csv", ".tsv", *WORKBOOKS, ".jsonl", ".parquet")
"""Suffixes of files that `user_table` reads by their name; all but the last may also be compressed."""

CONLL_SUFFIXES = (".conll", ".conllu", ".conllx", ".iob", ".iob2", ".bio", ".bioes")

UserTable = TsvSource | JsonlSource | ConllSource | SquadSource | DatasetsSource
"""The sources that can read a user's file of records."""

Form: TypeAlias = Literal["lines", "table", "jsonl", "parquet", "conll", "squad", "datasets", "idx"]
"""Format of a file; ``lines``: plain text, or a table that only its header or the run's data reveal."""

FOLDERS = (FolderSource, CaptionedFolderSource, SegmentedFolderSource)
"""The sources that read a folder of images."""

N_LINES = 200
"""Number of lines from which a format is recognised."""

IMAGES_OF_IDX = b"\x00\x00\x08\x03"
"""The first bytes of a file with an array of images."""


def is_user_table(file: str) -> bool:
    """Whether a file is one that `user_table` reads, by its name."""
    return is_parquet(file) or has_suffix(file, *USER_TABLES[:-1])


# Recognising formats ----------------------------------------------------------------------------------------


def form_of(file: File, wanted: Wanted) -> Form:
    """Return the format of a file, by its name or else its first lines.

    Raises:
        DataError: the file cannot be read.
    """
    name = file.path.name
    if is_parquet(name):
        return "parquet"
    if has_suffix(name, ".jsonl", ".ndjson"):
        return "jsonl"
    if has_suffix(name, ".csv") or is_workbook(file):
        return "table"
    if not file.can_be_read_again:
        return "table" if has_suffix(name, ".tsv") else "lines"
    likes = [*single_sources(wanted.like)]
    if any(isinstance(like, DatasetsSource) and _has_suffix_of(like, name) for like in likes):
        return "datasets"
    if _first_bytes(file).startswith(IMAGES_OF_IDX):
        return "idx"
    if has_suffix(name, *CONLL_SUFFIXES):
        return "conll"
    first = _first_lines(file)
    if any(isinstance(like, SquadSource) for like in likes) and _is_object(first):
        return "squad"
    if any(isinstance(like, ConllSource) for like in likes) and looks_like_conll(first):
        return "conll"
    if has_suffix(name, ".tsv"):
        return "table"
    if _is_object(first) and (has_suffix(name, ".json") or any(isinstance(x, JsonlSource) for x in likes)):
        return "jsonl"
    return "table" if _is_table(file, first, wanted, likes) else "lines"


def _has_suffix_of(like: DatasetsSource, name: str) -> bool:
    """Whether a file is named like those that a reader of the library `datasets` reads for a run."""
    files = [like.data_files] if isinstance(like.data_files, str) else like.data_files or []
    return like.path in READERS and any(has_suffix(name, Path(file).suffix or "/") for file in files)


def _first_bytes(file: File) -> bytes:
    """Return the first line undecoded; nothing if it cannot be read."""
    with suppress(DataError):
        return next(iter(raw_lines(file, "bytes")), b"")
    return b""


def _first_lines(file: File) -> list[str]:
    """Return the first lines, as far as the file can be read; those that are not UTF-8 are blank."""
    lines: list[str] = []
    with suppress(DataError):  # reading the records reports it
        for _, line in islice(lines_or_errors(file), N_LINES):
            lines.append(line if isinstance(line, str) else "")
    return lines


def _is_object(lines: Sequence[str]) -> bool:
    """Whether a text begins with an object of JSON."""
    return next((line for line in lines if line.strip()), "").lstrip().startswith("{")


def _is_table(file: File, first: Sequence[str], wanted: Wanted, likes: Sequence[Source]) -> bool:
    """Whether a file of another name is a table: its header names the columns, or it is like the run's."""
    with suppress(DataError):  # of a file whose first line cannot be read
        if with_header(file.path, wanted, likes) is not None and len(longest_record(file.path)) > 1:
            return True
        if wanted.names and without_header(file.path, wanted, likes) is not None:
            return True
    lines = [line for line in first if line.strip()]
    tables = (like for like in likes if isinstance(like, TsvSource) and len(like.columns) > 1)
    return bool(lines) and any(all(map(table.fits, lines)) for table in tables)


def field_names_in(path: Path) -> list[str]:
    """Return the names of the fields in a user's file, as far as it has any: of a table, its first record."""
    with suppress(DataError):
        if is_parquet(path.name):
            return list(parquet_schema(path).names)
        records = (_object_of(line) for line in _first_lines(File(path, str(path))))
        if (record := next(filter(None, records), None)) is not None:
            return list(record)
        return longest_record(path)
    return []


# Sources of records -----------------------------------------------------------------------------------------


def user_source(
    paths: Sequence[Path], columns: Sequence[str], like: Source | None, names: Mapping[str, str]
) -> Source:
    """Return the source for a user's files or folder, for a training with a recipe that reads other data.

    Args:
        paths: a folder, a file of records, or the aligned files of all columns in the order of the columns.
        columns: the columns.
        like: the source of the recipe's training data.
        names: as of `user_table`.

    Raises:
        HeaderError: as `user_table`.
        DataError: there is no such file, or the recipe cannot read such data.
    """
    stored = [str(path.resolve()) for path in paths]
    if isinstance(like, TextSource) and not names:
        return like.model_copy(update={"paths": stored, "skip": 0, "limit": None})
    if len(paths) == 1 and paths[0].is_dir():
        if not isinstance(like, FOLDERS):
            raise DataError(f"{paths[0]}: is a folder, and the recipe reads files")
        _check_unnamed(paths[0], names, "a folder of images")
        return like.model_copy(update={"path": stored[0], "skip": 0, "limit": None})
    files = [find(str(path), Path()) for path in paths]
    if len(files) == 1:
        separate = () if names or not isinstance(like, FilesSource) else tuple(like.columns)
        return user_table(files[0].path, columns, like, names, aligned=separate)
    if not isinstance(like, FilesSource) or len(files) != len(like.columns):
        aligned = f" or {len(like.columns)} aligned files" if isinstance(like, FilesSource) else ""
        raise DataError(f"{', '.join(map(str, paths))}: expected one file{aligned}, got {len(files)} files")
    return FilesSource(columns=dict(zip(like.columns, stored, strict=True)))


def user_table(
    path: Path,
    columns: Sequence[str],
    like: object = None,
    names: Mapping[str, str] | None = None,
    known_tags: Set[str] = frozenset(),
    aligned: Sequence[str] = (),
) -> UserTable:
    """Return the source for a user's file of records.

    Args:
        path: the file.
        columns: the required columns.
        like: the source of the run's data. If it is a `TsvSource`, these are tried in order for a table: its
            separator with a header that names the columns; tabs, then commas and semicolons with quotes, with
            such a header (tabs last if the file is named ``.csv``); its own format.
        names: the field of each column, if the user names it.
        known_tags: as of `Wanted`.
        aligned: the columns that line-aligned files may have instead, one in each.

    Raises:
        HeaderError: if the first line of the file does not name the columns.
        DataError: if the file does not have the fields, or cannot be read.
    """
    wanted = Wanted(tuple(columns), like=like, names=names or {}, known_tags=known_tags)
    form = form_of(File(path, str(path)), wanted) if path.is_file() else "table"
    try:
        return _source(path, form, wanted, path.resolve())
    except HeaderError as error:
        if form != "lines" or not aligned or any("\t" in line for line in _first_lines(File(path, ""))[:1]):
            raise
        options = " ".join([f"--data {shlex.quote(str(path))}", *["--data FILE"] * (len(aligned) - 1)])
        problem = str(error).removeprefix(f"{path}:1: ")
        raise HeaderError(
            f"{path}: expected {len(aligned)} line-aligned files ({', '.join(aligned)}), got one file; give "
            f"all in this order: {options} (in Python, a list of them); if it is a table: {problem}"
        ) from None


def _source(path: Path, form: Form, wanted: Wanted, stored: Path) -> UserTable:
    """Return the source for a file of records of a format; ``stored`` is its path in the source."""
    likes = [*single_sources(wanted.like)]
    if form == "parquet":
        return parquet_source(path, wanted.namings(), stored, wanted.remedy(NAME_COLUMNS))
    if form == "jsonl":
        return _json_lines(path, wanted, stored)
    if form == "datasets":
        like = next(like for like in likes if isinstance(like, DatasetsSource))
        columns = {**like.columns, **wanted.names}
        return like.model_copy(
            update={"data_files": str(stored), "columns": columns, "skip": 0, "limit": None}
        )
    if form == "squad":
        _check_unnamed(path, wanted.names, "SQuAD")
        return SquadSource(paths=str(stored))
    if form == "conll":
        return _conll(stored, wanted, likes)
    source = user_tsv(path, wanted, likes)
    return source.model_copy(update={"paths": str(stored)})


def _conll(path: Path, wanted: Wanted, likes: Sequence[Source]) -> ConllSource:
    """Return the source of CoNLL: like the run's, or words in the first field and tags in the last.

    In CoNLL-U, field 0 numbers the words, which are in field 1; universal parts of speech are in field 3.

    Raises:
        DataError: the user names fields by something else than numbers.
    """
    like = next((like for like in likes if isinstance(like, ConllSource)), None)
    named = _field_numbers(path, wanted.names)
    is_universal = has_suffix(path.name, ".conllu")
    if like is None or (is_universal and 0 in like.columns.values()):
        usual = (1, 3) if is_universal else (0, -1)
        columns = {**dict(zip(wanted.required, usual, strict=False)), **named}
        source = ConllSource(paths=str(path), columns=columns, universal=is_universal)
        return source.comparing(source.tag_fields or usual[1:], wanted.known_tags)
    numbers = {**like.columns, **named}
    read = {column: numbers[column] for column in wanted.required if column in numbers}
    changes = {"paths": str(path), "columns": read or like.columns, "skip": 0, "limit": None}
    whole = like.model_copy(update={"columns": numbers})
    return like.model_copy(update=changes).comparing(whole.tag_fields, wanted.known_tags)


def _field_numbers(path: Path, names: Mapping[str, str]) -> dict[str, int]:
    """Return the number of the field of each column of a CoNLL file that the user names.

    Raises:
        DataError: one is not a number.
    """
    numbers = {}
    for column, name in names.items():
        if (number := field_number(name)) is None:
            raise DataError(
                f"{path.name}: {column}: expected the number of a field, since fields of CoNLL have no "
                f"names, got {quoted(name)}; count from 0, or from the end with -1"
            )
        numbers[column] = number
    return numbers


def _check_unnamed(path: Path, names: Mapping[str, str], data_format: str) -> None:
    """Refuse names of fields for data of a format without them.

    Raises:
        DataError: there are names.
    """
    if names:
        raise DataError(
            f"{path.name}: columns: expected none, since {data_format} has no fields to choose from, got "
            f"{quoted(next(iter(names)))}; remove the names of columns (--column)"
        )


def _json_lines(path: Path, wanted: Wanted, stored: Path) -> JsonlSource:
    """Return the source of JSON lines, whose first objects decide on the names."""
    file = File(path, str(path))
    return _json_source(str(stored), file, _first_lines(file) if path.is_file() else [], wanted)


def _json_source(path: str, file: File, lines: Sequence[str], wanted: Wanted) -> JsonlSource:
    """Return a source with the first naming whose fields one of the first objects has.

    Args:
        path: the path in the source.
        file: the file, for messages.
        lines: the first lines of the file; without an object, its records decide on errors.
        wanted: the columns.

    Raises:
        HeaderError: none of them has the fields of a naming.
    """
    found = ((number, _object_of(line)) for number, line in enumerate(lines, 1))
    objects = [(number, record) for number, record in found if record is not None]
    namings = wanted.namings()
    complete = (naming for naming in namings if any(_has_fields(record, naming) for _, record in objects))
    if (naming := next(complete, None)) is None:
        naming = namings[0]
        if objects:
            raise _missing_field(file, *objects[0], namings, wanted)
    kept_lists = {*list_columns(wanted.like)}
    return JsonlSource(
        paths=path,
        columns={column: field for column, field in naming.items() if column not in kept_lists},
        lists={column: field for column, field in naming.items() if column in kept_lists},
    )


def _has_fields(record: JsonObject, naming: Mapping[str, str]) -> bool:
    return all(has_field(record, field) for field in naming.values())


def _missing_field(
    file: File, number: int, record: JsonObject, namings: Sequence[Mapping[str, str]], wanted: Wanted
) -> HeaderError:
    """Return the error for an object without the fields of any naming, in a line of a file.

    Of a file the first naming is meant. Who sends values may not know the names of the training data: of
    these it is the one of which the object has the most fields, or else that of the task.
    """

    def rank(naming: Mapping[str, str]) -> tuple[int, bool]:
        n = sum(has_field(record, field) for field in naming.values())
        return n, all(column == field for column, field in naming.items())

    def first_missing_of(naming: Mapping[str, str]) -> str:
        return next(field for field in naming.values() if not has_field(record, field))

    location = file.location(number)
    if isinstance(file, ValueList):
        naming = max(namings, key=rank)
        missing, expected = first_missing_of(naming), ", ".join(naming.values())
        return HeaderError(f"{location}: no field {missing!r}; an input has {expected}")
    missing = first_missing_of(namings[0])
    remedy = wanted.remedy(NAME_COLUMNS) if missing not in wanted.names.values() else ""
    return HeaderError(f"{missing_field(record, missing, location)}{remedy}")


def _object_of(line: str) -> JsonObject | None:
    """Return the object in a line, or None."""
    with suppress(DataError):
        return record_of(line, Location(""))
    return None


def reads_first(source: Source) -> bool:
    """Return whether the first row of a source can be read."""
    try:
        return next(source.open(Path()), None) is not None
    except DataError:
        return False


# Inputs -----------------------------------------------------------------------------------------------------


def input_records(file: File, wanted: Wanted, form: Form) -> Iterator[Record]:
    """Yield the records of a file of a format; ``lines``: one input a line, several texts separated by tabs.

    Raises:
        DataError: the first record is in the wrong format, or the file cannot be read further.
    """
    records = _records(file, wanted, form)
    for number, record in enumerate(records, 1):
        if number == 1 and record.error is not None and not isinstance(record.error, ValueRefusedError):
            raise _for_a_verb(record.error, file)
        yield record


def _for_a_verb(error: DataError, file: File) -> DataError:
    """Return the error on the first record of inputs, for lines of text with the remedy of a verb."""
    place, found, _ = str(error).partition(f": {NOT_JSON_LINES}")
    if not found:
        return error
    if has_suffix(file.name, ".jsonl", ".ndjson"):
        return DataError(f"{place}: {NOT_JSON_LINES}; for lines of text, add --from lines; name a table .csv")
    return DataError(
        f"{place}: {NOT_JSON_LINES}; for lines of text, leave out --jsonl or --from jsonl (predict and score "
        "write JSON lines with --to jsonl); for a table, write it to a file"
    )


def _records(file: File, wanted: Wanted, form: Form) -> Iterator[Record]:
    if form == "lines":
        return _plain_records(file, wanted)
    if form == "jsonl" and not file.can_be_read_again:
        return _streamed_objects(file, wanted)
    if form == "idx":
        column = wanted.columns[0]
        _check_unnamed(file.path, wanted.names, "an array of images")
        return IdxSource(columns={column: str(file.path.resolve())}).records(Path(), (column,))
    source = _source(file.path, form, wanted, file.path)
    return source.records(Path(), wanted.required, wanted.optional)


def _plain_records(file: File, wanted: Wanted) -> Iterator[Record]:
    """Yield a record for each line: its text, or several texts separated by tabs."""
    for location, line in lines_or_errors(file):
        try:
            if isinstance(line, DataError):
                raise line
            row = _row_of_texts(line, location, wanted)
            yield Record(location, row, {**row})
        except DataError as error:
            yield Record(location, error=error)


def _row_of_texts(line: str, location: Location, wanted: Wanted) -> dict[str, str]:
    """Return the text of each column in a line.

    Raises:
        DataError: there are fewer or more.
    """
    columns = (*wanted.columns, *wanted.optional)
    texts = line.split("\t") if len(columns) > 1 else [line]
    if not len(wanted.columns) <= len(texts) <= len(columns):
        n_expected = f"{len(wanted.columns)} or {len(columns)}" if wanted.optional else str(len(columns))
        keys = ", ".join(columns)
        if not line.strip():
            raise EmptyLineError(
                f"{location}: the input is empty; expected {n_expected} texts separated by tabs ({keys})"
            )
        raise DataError(
            f"{location}: expected {n_expected} texts separated by tabs ({keys}), got {len(texts)}"
        )
    return dict(zip(columns, texts, strict=False))


def _streamed_objects(file: File, wanted: Wanted) -> Iterator[Record]:
    """Yield the objects of JSON lines that can be read only once."""
    raw, beginning = iter(raw_lines(file)), list[bytes]()
    lines, namings = list[str](), wanted.namings()
    for line in islice(raw, N_LINES):
        beginning.append(line)
        lines.append(line.decode("utf-8", "replace"))
        record = _object_of(lines[-1])
        if record is not None and any(_has_fields(record, naming) for naming in namings):
            break  # the next line may not be written yet
    source = _json_source("-", file, lines, wanted)
    kind = ValueList if isinstance(file, ValueList) else Stream
    whole = kind.of(file.name, chain(beginning, raw))
    yield from source.records_of(whole, wanted.required, wanted.optional)
