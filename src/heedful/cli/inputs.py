"""Options of commands for their inputs, and the inputs: lines, records of a file, or images."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from heedful.cli.input_streams import Source, in_blocks
from heedful.cli.output import log, one_line, unescaped
from heedful.errors import DataError, RequestError, nearest
from heedful.files import has_suffix
from heedful.tables import Dialect

if TYPE_CHECKING:
    from heedful.api.run import Run
    from heedful.data.lines import Record
    from heedful.runs.column_keys import ColumnKeys
    from heedful.tasks.task_info import Columns

JSON_LINES = (".jsonl", ".ndjson")
"""Suffixes of JSON lines."""

NAMED_FORMS = (".csv", ".tsv", ".conll", ".conllu", *JSON_LINES)
"""Suffixes that say how a file is read, so that nobody needs to be informed."""


@dataclass(frozen=True)
class Inputs:
    """Options for the inputs and their format."""

    file: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Inputs (texts or paths of images), one per line; a table (.csv, .tsv, .xlsx, .parquet); "
            "JSON lines (.jsonl); or images and folders of images. - reads standard input.",
            show_default=False,
        ),
    ] = None
    data: Annotated[
        list[str] | None, typer.Option("--data", metavar="FILE", help="The same as FILE; may be repeated.")
    ] = None
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read and write JSON lines; default for .jsonl files.")
    ] = False
    form: Annotated[
        Literal["lines", "escaped", "jsonl"] | None,
        typer.Option(
            "--from",
            help="Format of FILE: lines; escaped, lines with \\n for a line break, as outputs are written; "
            "jsonl. [default: by its name and content]",
        ),
    ] = None
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Field to read in a table or in JSON lines: NAME, once for each text of an input, or "
            "KEY=NAME (text=review); without a header, and in CoNLL, its number (text=0). "
            "[default: as in the recipe]",
        ),
    ] = None

    @property
    def files(self) -> list[str]:
        """The files; - if none is given."""
        return [*(self.data or ()), *(self.file or ())] or ["-"]

    @property
    def only_file(self) -> str | None:
        """The file, if it is only one and not a folder."""
        is_single = len(self.files) == 1 and not os.path.isdir(self.files[0])
        return self.files[0] if is_single else None

    def source(self, run: Path, verb: str = "predict", *, whole: bool = False) -> Source | None:
        """Open the source of the inputs; None if they are images themselves.

        Args:
            run: for messages, like ``verb``.
            verb: the verb.
            whole: whether the source is one input, including line breaks.

        Raises:
            DataError: the file does not exist; if it looks like a text, the message shows how to pass one.
        """
        file = self.only_file
        if file is None:
            return None
        from heedful.artifacts.run_folder import missing_run
        from heedful.data.image_files import is_image

        if is_image(file):
            from heedful.data.lines import find

            find(file, Path())
            return None
        try:
            source = Source.of(file)
        except (DataError, OSError) as error:  # OSError: a text may be too long for a file name
            if os.path.exists(file) or not (" " in file or not Path(file).suffix):
                raise
            problem = error if isinstance(error, DataError) else f"{one_line(file[:60])}…: no such file"
            if not run.exists():
                raise DataError(f"{problem}; {missing_run(run)}") from None
            text = shlex.quote(file) if len(file) <= 60 else "TEXT"
            command = f"heedful {verb} {shlex.quote(str(run))}"
            remedy = f"{command} {text}" if verb == "explain" else f"echo {text} | {command}"
            raise DataError(f"{problem}; FILE must be a file of inputs; to pass a text: {remedy}") from None
        return source.as_one_line() if whole else source

    @property
    def are_objects(self) -> bool:
        """Whether the inputs are JSON lines."""
        if self.jsonl and self.form is not None:
            raise RequestError("--jsonl is not supported with --from; use --from and --to")
        named = self.form is None and has_suffix(self.only_file or "", *JSON_LINES)
        return self.jsonl or self.form == "jsonl" or named

    def read(
        self, source: Source | None, run: "Run", *, whole: bool = False, columns: "Columns | None" = None
    ) -> "ReadInputs":
        """Return the inputs: records of the file, or files themselves if they are images.

        Args:
            source: the source of the inputs.
            run: the run.
            whole: whether the source is one input, whatever the file's name.
            columns: the columns of an input; by default those of predictions.

        Raises:
            RequestError: the run or the file does not support the options.
            DataError: a folder has no images, or the file is in the wrong format.
        """
        from heedful.runs.column_keys import ColumnKeys
        from heedful.runs.inputs import FORMS, input_dialect, input_form, read_inputs

        columns = columns or run.task.columns
        if source is None:
            return ReadInputs(self._images(run, columns))
        names: dict[str, str] = {}
        if self.column:
            keys = ColumnKeys.of_inputs(run.recipe.task.kind, columns, run.task.columns)
            names = names_of(self.column, keys, self.files)
        is_plain = whole or self.form in ("lines", "escaped")
        form = "lines" if is_plain else input_form(run, columns, source.file, names)
        if form == "lines" and self.are_objects and not whole:
            form = "jsonl"
            if source.file.can_be_read_again:
                check_objects(source, columns.inputs)
        if self.column and form == "lines":
            raise RequestError(
                "--column requires a table (.csv, .tsv, .xlsx, .parquet), CoNLL or JSON lines; for standard "
                "input, write it to a file"
            )
        if form in FORMS and not has_suffix(self.files[0], *NAMED_FORMS) and source.file.can_be_read_again:
            log(f"heedful: {self.files[0]}: read as {FORMS[form]}")
        records = read_inputs(run, columns, source.file, form, names)
        return ReadInputs(
            map(_unescaped, records) if self.form == "escaped" else records,
            source,
            partial(input_dialect, run, columns, source.file, form, names),
        )

    def _images(self, run: "Run", columns: "Columns") -> "Iterator[Record]":
        """Yield the images that are given as files and folders."""
        from heedful.data.lines import Location, Record

        if not run.task.columns.images:
            from heedful.tasks.task_info import reads

            read = reads(run.recipe.task.kind, columns.inputs)
            if (file := self.only_file) is not None:
                raise RequestError(f"{file}: is an image; {read}; name a file of text")
            is_folder = len(self.files) == 1
            problem = f"{self.files[0]}: is a folder, not a file" if is_folder else "expected one FILE"
            raise RequestError(f"{problem}; several files and folders are for images; {read}")
        rows = ({columns.inputs[0]: path} for path in image_paths(self.files))
        return (Record(Location(""), row, row) for row in rows)


def _unescaped(record: "Record") -> "Record":
    """Return the record of a line with its escapes replaced (`heedful.cli.output.unescaped`)."""
    row = {column: unescaped(cell) for column, cell in record.row.items()}
    return replace(record, row=row, fields={**row})


@dataclass(frozen=True)
class Output:
    """The option for the format of the output, which is otherwise that of the inputs."""

    to: Annotated[
        Literal["lines", "jsonl"] | None,
        typer.Option(
            "--to",
            help="Format of the output: lines or jsonl. [default: jsonl if the inputs are, else lines]",
        ),
    ] = None

    def is_jsonl(self, inputs: Inputs) -> bool:
        """Return whether answers are JSON lines.

        Raises:
            RequestError: ``--jsonl`` is given too.
        """
        if self.to is not None and inputs.jsonl:
            raise RequestError("--jsonl is not supported with --to; use --from and --to")
        return inputs.are_objects if self.to is None else self.to == "jsonl"

    def check_with(self, out: Path | None) -> None:
        """Check that the format is also that of a file, by its name.

        Raises:
            RequestError: it is another.
        """
        if out is None or self.to is None or (self.to == "jsonl" and has_suffix(out.name, ".jsonl")):
            return
        remedy = f"--out {out.with_suffix('.jsonl')}" if self.to == "jsonl" else "leave out --out"
        raise RequestError(
            f"--to {self.to}: a file has the format of its name, {out.name}; remove --to, or write {remedy}"
        )


@dataclass(frozen=True)
class ReadInputs:
    """The inputs of a command.

    Args:
        records: the inputs, in order.
        source: their source; None: they are images.
        dialect: returns the dialect of the file if it is a table, or the usual one.
    """

    records: "Iterator[Record]"
    source: Source | None = None
    dialect: Callable[[], Dialect] = Dialect

    def blocks(self) -> "Iterator[list[Record]]":
        """Yield the inputs in blocks that are answered together."""
        return in_blocks(self.records) if self.source is None else self.source.blocks(self.records)


def check_objects(source: Source, columns: Sequence[str]) -> None:
    """Check that a file begins with an object of JSON, or an array, whose reader has a remedy of its own.

    Raises:
        RequestError: it has lines of text.
    """
    first = next(filter(str.strip, source.lines()), "{").lstrip()
    if first.startswith(("{", "[")):
        return
    fields = ", ".join(f"{column}: .[{number}]" for number, column in enumerate(columns))
    program = f"{{{columns[0]}: .}}" if len(columns) == 1 else f'split("\\t") | {{{fields}}}'
    command = f"jq -Rc {shlex.quote(program)} {shlex.quote(source.file.name)} > NEW.jsonl"
    raise RequestError(
        f"{source.file.name}: --jsonl requires JSON lines, got lines of text; leave it out (predict and "
        f"score write JSON lines with --to jsonl), or convert them: {command}"
    )


def image_paths(files: Sequence[str]) -> Iterator[str]:
    """Yield the paths of images: files as given, and those in folders and their subfolders, sorted by name.

    Raises:
        DataError: a folder has no images, or one of several files is not an image by its name.
    """
    from heedful.data.image_files import SUFFIXES, is_image, is_image_name, unread_note
    from heedful.data.lines import File, files_in

    for file in files:
        if os.path.isdir(file):
            found = [found.name for found in files_in(File(Path(file), file))]
            if not (images := [name for name in found if is_image_name(name)]):
                raise DataError(
                    f"{file}: no images in this folder; expected files named {', '.join(SUFFIXES)}"
                )
            if note := unread_note(
                [Path(name).relative_to(file) for name in found if not is_image_name(name)]
            ):
                log(f"heedful: {file}: {note}")
            yield from images
        elif is_image(file):
            yield file
        else:
            raise DataError(f"{file}: expected an image or a folder; a list of paths must be the only FILE")


def names_of(chosen: Sequence[str], keys: "ColumnKeys", files: Sequence[str | Path] = ()) -> dict[str, str]:
    """Return the fields that ``--column`` names: ``KEY=NAME``, or ``NAME`` for the next key.

    Args:
        chosen: the values of the option.
        keys: what the task calls its columns.
        files: the files; a text that is the name of a field in one of them is a ``NAME``.

    Raises:
        RequestError: a key does not exist or is missing, or there are more names than keys.
    """
    names: dict[str, str] = {}
    given = {text.partition("=")[0] for text in chosen}
    for text in chosen:
        before, separator, name = text.partition("=")
        key = keys.known(before) if separator else None
        if key is None and separator and not _is_field(text, files):
            if before in keys.others:
                raise RequestError(
                    f"--column {text}: {before!r} is not part of an input; of inputs, {keys.read}; remove it"
                )
            if keys.keys:
                meant = nearest(before, keys.keys)
                if name in keys.keys:
                    meant = f"; the key comes first: {name}={before}"
                raise RequestError(f"--column {text}: unknown key {before!r}; {keys.read}{meant}")
            key = before
        if key is None and not keys.names_alone:
            raise RequestError(
                f"--column {text}: expected KEY=NAME, as in {keys.listed[0]}={text}; {keys.read}"
            )
        if key is None:
            key, name = next((key for key in keys.keys or given if key not in names), ""), text
        if not key or key in names:
            raise RequestError(f"--column {text}: expected one name for each of {', '.join(keys.keys)}")
        names[key] = name
    return names


def _is_field(name: str, files: Sequence[str | Path]) -> bool:
    """Whether one of several files has a field of this name."""
    from heedful.data.user_files import field_names_in

    return any(os.path.isfile(file) and name in field_names_in(Path(file)) for file in files)
