"""Embeddings that begin with word vectors from elsewhere, and may keep them.

The model reads vectors at their own size: they are divided by what the embedding multiplies its rows by
(sqrt(d_model), say). If the output layer shares the table, the rows are its weights too, and must be small
for the first predictions to be near uniform: then the embedding must multiply them.

A table is frozen as a whole, words without a vector included, as in the static model of Kim 2014 (section
3.1). So the recipe alone determines what is trained, and a resumed run does not need the file.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from torch import nn

from heedful.data.vectors import fill_embedding, read_vectors, width_of_vectors
from heedful.errors import DataError, RequestError
from heedful.recipes.schema import ALWAYS, Recipe
from heedful.text.tokenizer import Tokenizer

_EMBEDDINGS = {
    "source": "source_embedding",
    "target": "target_embedding",
    "caption": "target_embedding",
    "text": "embedding",
}
"""The part of a model that reads each side."""


class _Filled(NamedTuple):
    """A side with vectors: its key under ``pretrained``, the file, and the embedding that is filled."""

    side: str
    file: str
    embedding: Any


def fill_vectors(
    recipe: Recipe, tokenizers: Mapping[str, Tokenizer], model: nn.Module, log: Callable[[str], None]
) -> None:
    """Fill the rows of the words that have a vector, and log how many have one.

    Args:
        recipe: with a section ``pretrained``, whose relative paths start where it was read.
        tokenizers: by side; words that one id alone spells can be filled.
        model: whose embeddings are filled.
        log: is given a line for each file.

    Raises:
        DataError: a file cannot be read, or its vectors have another width.
        RequestError: the output layer shares a table, and the embedding does not multiply it.
    """
    check_vectors(recipe, model)
    for side, file, embedding in _filled(recipe, model):
        vectors = read_vectors(recipe.path(file), tokenizers[side].whole_words())
        fill_embedding(embedding.weight, vectors, embedding.scale)
        log(f"pretrained.{side}: {vectors}")


def check_vectors(recipe: Recipe, model: nn.Module) -> None:
    """Refuse files of vectors that do not suit the model; only their beginning is read.

    Args:
        recipe: as of `fill_vectors`.
        model: whose embeddings would be filled; it may be without memory.

    Raises:
        DataError, RequestError: as `fill_vectors`, with the key.
    """
    if getattr(recipe, "pretrained", None) is None:
        return
    for side, file, embedding in _filled(recipe, model):
        _require_small_rows(side, embedding, model)
        width = embedding.weight.shape[1]
        try:
            found = width_of_vectors(recipe.path(file))
        except DataError as error:
            raise DataError(f"pretrained.{side}: {error}") from None
        if found != width:
            raise DataError(
                f"pretrained.{side}: {file}: the vectors have width {found}, and the embedding has {width}: "
                "use other vectors, or change the model's width"
            )


def frozen_tables(recipe: Recipe, model: nn.Module) -> dict[nn.Parameter, int | None]:
    """The tables that keep their vectors, and for how many updates; None: for good."""
    pretrained = getattr(recipe, "pretrained", None)
    if pretrained is None or pretrained.frozen == 0:
        return {}
    updates = None if pretrained.frozen == ALWAYS else pretrained.frozen
    return {found.embedding.weight: updates for found in _filled(recipe, model)}


def _filled(recipe: Any, model: Any) -> Iterator[_Filled]:
    for side, name in _EMBEDDINGS.items():
        if (file := getattr(recipe.pretrained, side, None)) is not None:
            yield _Filled(side, file, getattr(model, name))


def _require_small_rows(side: str, embedding: Any, model: Any) -> None:
    shared = [p for head in model.heads.values() for p in head.parameters() if p is embedding.weight]
    if shared and embedding.scale == 1.0:
        raise RequestError(
            f"pretrained.{side}: the output layer shares this table, so its rows must be small: set "
            "model.scale_embedding=true (or untie them)"
        )
