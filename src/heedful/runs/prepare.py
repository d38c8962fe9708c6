"""From a recipe's sources to what training reads: tokenizers, token ids, and a report of what was kept."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.data.digest import RowDigest
from heedful.data.report import DataReport, keep
from heedful.data.sources import Located, SourceConfig, open_source
from heedful.data.store import TokenStore
from heedful.errors import DataError
from heedful.runs.folder import RunFolder, read_json, write_json
from heedful.runs.recipe import Recipe
from heedful.tasks.translation import COLUMNS, SOURCE, TARGET, Tokenizers
from heedful.text.configuration import PreprocessingConfig
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_shared, train_tokenizer

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """What a training reads."""

    tokenizers: Tokenizers
    train: TokenStore
    valid: TokenStore
    valid_rows: list[dict[str, str]]


def rows_of(source: SourceConfig, root: Path) -> Iterator[Located]:
    """The rows of a source, each with both columns.

    Raises:
        DataError: a row lacks a column.
    """
    for row in open_source(source, root):
        for column in COLUMNS:
            if column not in row.row:
                raise DataError(f"{row.where}: there is no column {column!r}; the row has {sorted(row.row)}")
        yield row


def find_sources(recipe: Recipe, root: Path) -> None:
    """Look for every file that the recipe names, those of the test sets too, before any work.

    Raises:
        DataError: one is missing; the message has the recipe's key.
    """
    tests = {f"data.test.{name}": source for name, source in recipe.data.test.items()}
    for key, source in {"data.train": recipe.data.train, "data.valid": recipe.data.valid, **tests}.items():
        if source.kind in {"files", "tsv", "jsonl"}:
            with _naming(key):
                open_source(source, root)


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Put the recipe's key before what is wrong with its data."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{key}: {error}") from None


def prepare(recipe: Recipe, folder: RunFolder, say: Say) -> Prepared:
    """Train or load the tokenizers, tokenise the data once, and write the data report.

    What is in the run's folder already, and belongs to the same recipe, is used as it is: so a resumed
    run sees the tokens that it saw before.

    Raises:
        DataError: the data cannot be used, or are not those that the run was started with.
    """
    root = Path(recipe.root or ".")
    before = read_json(folder.data_report) if folder.data_report.exists() else None
    if before is None:
        find_sources(recipe, root)
    tokenizers = load_tokenizers(folder) if folder.tokenizer(TARGET).exists() else None
    if tokenizers is None:
        say("training the tokenizer")
        with _naming("data.train"):
            tokenizers = train_tokenizers(recipe, root)
        tokenizers.source.save(folder.tokenizer(SOURCE))
        tokenizers.target.save(folder.tokenizer(TARGET))
    key = f"{tokenizers.source.fingerprint}-{tokenizers.target.fingerprint}"
    n_ids = max(tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    valid_rows: list[dict[str, str]] = []
    done = [folder.cache / "train", folder.cache / "valid", folder.data_report]
    if all(path.exists() for path in done):
        if recipe.validation.decode != 0:
            digest = RowDigest()
            valid_rows = [r.row for r in digest.through(rows_of(recipe.data.valid, root))]
            _refuse_others("valid", digest, before)
        train, valid = (TokenStore.open(folder.cache / part, key) for part in ("train", "valid"))
        return Prepared(tokenizers, train, valid, valid_rows)
    say("tokenising the data")
    unknown = {side: getattr(tokenizers, side).specials.unknown for side in COLUMNS}
    reports: dict[str, Any] = {}
    stores = {}
    for part, source in (("valid", recipe.data.valid), ("train", recipe.data.train)):
        report, digest = DataReport(unknown), RowDigest()
        rows = digest.through(rows_of(source, root))
        if part == "valid":
            rows = _noting(rows, valid_rows)
        kept = keep(tokenizers.encode(rows), recipe.data.filter, report)
        with _naming(f"data.{part}"):
            ids = (row.row for row in kept)
            stores[part] = TokenStore.build(ids, COLUMNS, folder.cache / part, key, n_ids=n_ids)
        try:
            _refuse_others(part, digest, before)
        except DataError:
            shutil.rmtree(folder.cache)
            raise
        reports[part] = {**report.to_dict(), "sha256": digest.hexdigest()}
        for line in report.lines():
            say(f"{part}: {line}" if line.startswith("rows") else line)
    write_json(folder.data_report, {"version": 1, **reports})
    return Prepared(tokenizers, stores["train"], stores["valid"], valid_rows)


def _refuse_others(part: str, digest: RowDigest, report: Any) -> None:
    """Compare rows that were read again with those of the run's own data report, if it has one."""
    if report is not None and report[part]["sha256"] != digest.hexdigest():
        raise DataError(
            f"data.{part}: its rows are not those that the run was started with; "
            "bring them back, or start a new run"
        )


def _noting(rows: Iterator[Located], into: list[dict[str, str]]) -> Iterator[Located]:
    for row in rows:
        into.append(row.row)
        yield row


def train_tokenizers(recipe: Recipe, root: Path) -> Tokenizers:
    """From the training data: one subword model for both sides, or one for each."""
    settings = recipe.tokenizer

    def side(column: str) -> tuple[Iterator[str], PreprocessingConfig]:
        lines = (row.row[column] for row in rows_of(recipe.data.train, root))
        return lines, getattr(settings, column)

    source, target = side(SOURCE), side(TARGET)
    if settings.shared:
        return Tokenizers(*train_shared(settings.subwords, [source, target]))
    return Tokenizers(
        train_tokenizer(settings.subwords, *source), train_tokenizer(settings.subwords, *target)
    )


def load_tokenizers(folder: RunFolder) -> Tokenizers:
    """The tokenizers that are kept in a run."""
    return Tokenizers(Tokenizer.load(folder.tokenizer(SOURCE)), Tokenizer.load(folder.tokenizer(TARGET)))
