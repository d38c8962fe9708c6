"""What replaces a word or a patch: words and patches of the training data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float
from torch import Tensor

from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError, RequestError, WorkError
from heedful.explain.attribution.features import Features
from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.variants import Content, patch_slices
from heedful.nn.patches import Images
from heedful.runs.evaluate import chosen_splits
from heedful.runs.loading import LoadedRun
from heedful.runs.prepare import rows_of
from heedful.tasks.inputs.processor import TextProcessor, Tokenizers
from heedful.tasks.model_input import INSERTED
from heedful.tasks.prediction import TaskInput
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import surface_words

ROWS_READ = 20_000
"""Maximum number of leading training rows that are read."""

TEXTS, IMAGES = 2000, 50
"""Maximum number of them whose words, or patches, are drawn; evenly spaced, as files may be sorted."""

CHARACTERS = 500_000
"""Maximum number of characters of these texts together; of longer texts fewer are taken, evenly spaced."""


_READ: WeakKeyDictionary[LoadedRun, "Replacements"] = WeakKeyDictionary()
"""Replacements of runs whose training data were read before."""


class Replacements(Protocol):
    """Draws what replaces a feature."""

    def draw(self, generator: np.random.Generator, features: Features, index: int) -> Content:
        """Return the content of a feature."""


@dataclass(frozen=True)
class Words:
    """The words of texts, each as often as it occurs, as the ids that the model reads.

    Args:
        ids: of each word.
        most: maximum number of ids that a text may grow by; None: any number.
    """

    ids: Sequence[tuple[int, ...]]
    most: int | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer, texts: Iterable[Sequence[int]], most: int | None = None) -> "Words":
        """Collect the words of texts, given their ids; special tokens are left out.

        Raises:
            DataError: there are none.
        """
        found: list[tuple[int, ...]] = []
        for all_ids in texts:
            ids = [token for token in all_ids if token not in INSERTED]
            _, words = surface_words(tokenizer, ids)
            groups: dict[int, list[int]] = {}
            for token, word in zip(ids, words, strict=False):  # the last word is the end token
                groups.setdefault(word, []).append(token)
            found += map(tuple, groups.values())
        if not found:
            raise DataError("the training data have no words")
        return cls(found, most)

    def draw(self, generator: np.random.Generator, features: Features, index: int) -> Content:
        """Return the ids of a word; one of few enough ids if the model reads texts of a limited length."""
        room = None if self.most is None else len(features.tokens[index]) + self.most // len(features)
        for _ in range(100):
            ids = self.ids[int(generator.integers(len(self.ids)))]
            if room is None or len(ids) <= room:
                return ids
        return ids[:room]


@dataclass(frozen=True)
class Patches:
    """The patches of images, each of which replaces the patch at the same place of another image.

    Args:
        pixels: of the images, normalised as the model reads them.
        grid: rows and columns of patches.
    """

    pixels: Float[Tensor, "N C H W"]
    grid: tuple[int, int]

    def draw(self, generator: np.random.Generator, features: Features, index: int) -> Content:
        """Return the pixels of the patch of another image."""
        image = self.pixels[int(generator.integers(len(self.pixels)))]
        return image[(slice(None), *patch_slices(index, self.grid, image.shape[1:]))]


def training_replacements(run: LoadedRun, measured: Measured) -> Replacements:
    """Return the words or patches of a run's training data.

    Args:
        run: the run.
        measured: an input of the run.

    Raises:
        RequestError: the training data cannot be read.
    """
    try:
        if run not in _READ:
            _READ[run] = replacements_from(run, _training_inputs(run), measured)
        words = _READ[run]
        return replace(words, most=_room(run, measured)) if isinstance(words, Words) else words
    except (DataError, WorkError, OSError) as error:  # its message may have a path of this machine
        raise RequestError(
            "words that replace others are drawn from the training data, which cannot be read here; use view "
            "occlusion"
        ) from error
    except RequestError as error:
        raise RequestError(
            f"words that replace others are drawn from the training data: {error}; use view occlusion"
        ) from None


def _training_inputs(run: LoadedRun) -> list[TaskInput]:
    (source,) = chosen_splits(run, "train", None).values()
    return texts_of(run, islice(rows_of(run.recipe, source), ROWS_READ))


def texts_of(run: LoadedRun, rows: Iterable[LocatedRow[Row]]) -> list[TaskInput]:
    """Return the first text of each row, or its image."""
    columns = run.task.embedded_columns
    name = columns.inputs[0]
    column = columns.trained_as.get(name, name)
    return [row.row[column] for row in rows]


def replacements_from(run: LoadedRun, inputs: Sequence[TaskInput], measured: Measured) -> Replacements:
    """Return the words or patches of inputs, as the run reads them.

    Raises:
        DataError: they have no words, or an image cannot be read.
    """
    axis = measured.prepared.axes[measured.features.axis]
    chosen = spaced(inputs, IMAGES if measured.features.is_image else TEXTS)
    if not measured.features.is_image:
        chosen = bounded_texts(chosen)
    prepared = run.task.embedding_inputs(chosen)
    read = prepared.batch([number for number in range(len(chosen)) if number not in prepared.errors])
    if isinstance(read, Images):
        assert axis.grid is not None
        return Patches(read.pixels, axis.grid)
    processor = run.task.processor
    assert isinstance(processor, TextProcessor | Tokenizers)
    tokenizer = processor.source if isinstance(processor, Tokenizers) else processor.text
    ids = [part.tolist() for part in read.ids.split(list(read.layout.lengths))]
    return Words.of(tokenizer, ids, _room(run, measured))


def spaced(inputs: Sequence[TaskInput], most: int) -> Sequence[TaskInput]:
    """Return at most so many inputs, evenly spaced."""
    return inputs[:: -(-len(inputs) // max(1, most)) or 1]


def bounded_texts(texts: Sequence[TaskInput]) -> Sequence[TaskInput]:
    """Return as many texts, evenly spaced, as have about `CHARACTERS` together, and not more of one."""
    length = sum(map(_length, texts))
    chosen = spaced(texts, len(texts) * CHARACTERS // max(1, length)) if length > CHARACTERS else texts
    return [text[:CHARACTERS] if isinstance(text, str) else text for text in chosen]


def _length(text: TaskInput) -> int:
    """Return the characters of a text, or of a list of words."""
    return len(text) if isinstance(text, str) else sum(map(len, text)) if isinstance(text, list) else 0


def _room(run: LoadedRun, measured: Measured) -> int | None:
    """Return how many tokens an input may grow by; None: any number."""
    side = measured.prepared.batch.source or measured.prepared.batch.inputs
    longest = getattr(run.recipe, "max_source", None) or getattr(run.recipe.model, "longest", None)
    return None if longest is None else max(0, longest - side.layout.n_tokens)
