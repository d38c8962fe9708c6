"""Take validation and test sets from the training source, by a hash of the content of each row.

    share of the hash in [0, 1):   |--- valid ---|--- test ---|------------- train -------------|

A row's part depends on nothing but its content: not on the order or number of the rows, nor on a seed. Equal
rows are therefore in the same part. So are all rows of one image, and all questions on one passage, since
only the image or passage is hashed: a model is not validated on what it has seen with another answer.
"""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from heedful.data.images import IMAGE, LazyImage, with_images
from heedful.data.lines import LocatedRow, Row, Rows, Source
from heedful.data.sources import SourceConfig, open_source
from heedful.data.store import row_bytes
from heedful.data.text import TextSource
from heedful.errors import DataError

TRAIN, VALID = "train", "valid"

SHARED = (IMAGE, "passage")
"""Columns whose value several rows may share; if a row has one, its value alone is hashed."""

Share = Annotated[float, Field(gt=0, lt=1)]


class PartSource(Source):
    """A part of the rows of a source; recipes name it by ``data.split``.

    Args:
        source: the source.
        shares: the share of each part but the training data.
        part: ``train``, or a key of ``shares``.
    """

    source: SourceConfig
    shares: dict[str, Share]
    part: str

    @property
    def kind(self) -> str:
        """The kind of the source."""
        return self.source.kind

    @property
    def sources(self) -> list[SourceConfig]:
        """The source, for `heedful.data.sources.list_columns`."""
        return [self.source]

    def open(self, root: Path) -> Rows:
        """Yield the rows of the part, in their order.

        Raises:
            DataError: as the source, or if the part has no row.
        """
        return self._rows(open_source(self.source, root), root)

    def open_whole(self, root: Path) -> Rows:
        """Yield the rows of the part with the fields of their records."""
        return self._rows(open_source(self.source, root, whole=True), root)

    def _rows(self, rows: Rows, root: Path) -> Rows:
        n_rows, is_empty = 0, True
        for row in rows:
            n_rows += 1
            if part_of(row, self.shares, root) == self.part:
                is_empty = False
                yield row
        if is_empty:
            share = "the rest" if self.part == TRAIN else f"{self.shares[self.part]:g}"
            raise DataError(
                f"data.split leaves no rows: none of the {n_rows:,} of the source is in the part "
                f"{self.part} ({share}); change the shares, {self._smaller_rows()}, or "
                "give data.valid rows of its own (in Python: data={'valid': …})"
            )

    def _smaller_rows(self) -> str:
        """Return how the source yields more rows: text can be split into documents smaller than files."""
        if isinstance(self.source, TextSource) and self.source.documents == "file":
            return "read smaller rows (data.train.documents=line or blank-lines)"
        return "read smaller rows"


def part_of(located: LocatedRow[Row], shares: Mapping[str, float], root: Path) -> str:
    """Return the name of the part of a row: ``train``, or a key of ``shares``.

    Args:
        located: a row of a source.
        shares: the share of each part but the training data. The part ``valid`` is taken first, then the
            others in their order, so a further share does not change the validation data.
        root: the folder that relative paths of images are resolved against, as in `with_images`.
    """
    number = int.from_bytes(blake2b(_identity(located, root), digest_size=8).digest(), "big") / 2**64
    for name in sorted(shares, key=lambda name: name != VALID):
        if number < shares[name]:
            return name
        number -= shares[name]
    return TRAIN


def _identity(located: LocatedRow[Row], root: Path) -> bytes:
    """Return the bytes that are hashed: of the whole row, or of what it shares with others."""
    column = next((column for column in SHARED if column in located.row), None)
    if column is None:
        return row_bytes(located.row)
    value = with_images(located, (IMAGE,), root).row[column]
    if isinstance(value, LazyImage):
        return value.encoded() or value.name.encode()  # a missing file is reported when it is read
    return row_bytes({column: value})


DataSource = SourceConfig | PartSource
"""The source of a data set: of its own, or a part of the training source."""


class DataSets(NamedTuple):
    """The sources of the data sets of a recipe."""

    train: DataSource
    valid: DataSource
    test: dict[str, DataSource]


def training_source(source: SourceConfig, shares: Mapping[str, float]) -> DataSource:
    """Return the source of the rows that a training reads: all, or those that are in no other part."""
    return PartSource(source=source, shares=dict(shares), part=TRAIN) if shares else source


def data_sets(
    train: SourceConfig,
    valid: SourceConfig | None,
    test: Mapping[str, SourceConfig],
    shares: Mapping[str, float],
) -> DataSets:
    """Return the data sets of a recipe: the given ones, and the parts of the training source.

    Args:
        train: the training source.
        valid: the validation source; None: the part ``valid``.
        test: the given test sets.
        shares: the share of each part but the training data.
    """
    parts = {name: PartSource(source=train, shares=dict(shares), part=name) for name in shares}
    of_split = parts.pop(VALID, None)
    valid_set = of_split if valid is None else valid
    assert valid_set is not None  # `heedful.recipes.schema.DataConfig` checks it
    return DataSets(training_source(train, shares), valid_set, {**test, **parts})
