"""Pretrained weights: those of another run, with its tokenizers and image reader, and word vectors.

`heedful.runs.warm_start` copies the weights of a run, freezes parameters and scales learning rates.

The model reads word vectors at their own size: they are divided by what the embedding multiplies its rows by
(sqrt(d_model), say). If the output layer shares the table, the rows are its weights too, and must be small
for the first predictions to be near uniform: then the embedding must multiply them. A table is frozen as a
whole, words without a vector included, as in the static model of Kim 2014 (section 3.1). So the recipe alone
determines what is trained, and a resumed run does not need the file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.data.text import TEXT
from heedful.data.vectors import fill_embedding, read_vectors, width_of_vectors
from heedful.errors import DataError, RequestError
from heedful.nn.embeddings import SegmentedEmbedding, TokenEmbedding
from heedful.recipes.schema import ALWAYS, Recipe, Tokenization
from heedful.recipes.trees import Tree
from heedful.recipes.yaml import read_yaml
from heedful.records import read_text
from heedful.tasks.inputs.images import ImageReader, read_image_reader
from heedful.tasks.inputs.processor import COLUMNS
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_tokenizer
from heedful.typing import JsonObject

HEADS = "heads."
"""Prefix of the names of heads, which belong to a task and may be newly initialised."""


@dataclass(frozen=True)
class MappedWeights:
    """The weights of another run's model, under the names that they have in this run's model.

    Args:
        tensors: by name.
        new_parts: name prefixes of parts that the other model lacks, besides heads.
        dropped: parts of the other model that this one lacks, for messages.
    """

    tensors: Mapping[str, torch.Tensor]
    new_parts: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class WarmStart:
    """How recipes of a task start from another run; by default, with its sections and names of weights."""

    kinds: tuple[str, ...] = ()
    """Kinds of models to start from, besides those of the task's recipes."""

    def tokenizer(self, section: Tree) -> Tree:
        """Translate the section ``tokenizer`` of the other run for recipes of this task."""
        return section

    def model(self, section: Tree) -> Tree:
        """Translate the section ``model`` of the other run for recipes of this task.

        Raises:
            ValueError: if the model has parts that this task's models lack.
        """
        return section

    def weights(self, recipe: Recipe, tensors: Mapping[str, torch.Tensor]) -> MappedWeights:
        """Map the weights of the other run to those of the recipe's model."""
        return MappedWeights(tensors)


class PairWarmStart(WarmStart):
    """A model of pairs may start from a language model, whose tokenizer becomes that of both sides."""

    def tokenizer(self, section: Tree) -> Tree:
        """Return a section in which both sides have the settings of the language model's text."""
        if not isinstance(section.value, dict) or TEXT not in section.value:
            return section
        sections = dict(section.value)
        text = sections.pop(TEXT)
        both_sides = {"shared": Tree(True, text.mark), **dict.fromkeys(COLUMNS, text)}
        return Tree({**sections, **both_sides}, section.mark)


def start_folder(recipe: Recipe) -> RunFolder | None:
    """Return the folder of the run that the recipe starts from, or None.

    Raises:
        RequestError: if there is no finished run.
    """
    if recipe.start is None:
        return None
    folder = RunFolder(recipe.path(recipe.start.run))
    try:
        folder.read_card()
    except RequestError as error:
        raise RequestError(f"start.run: {error}") from None
    return folder


def start_tokenizer(recipe: Recipe, *names: str) -> Tokenizer | None:
    """Return the tokenizer of the run that the recipe starts from; None without such a run.

    Args:
        recipe: of the new run.
        names: columns whose tokenizer it may be in that run; the first one found is used.

    Raises:
        RequestError: if that run has none of these names.
    """
    folder = start_folder(recipe)
    if folder is None:
        return None
    for path in map(folder.tokenizer, names):
        if path.is_file():
            return Tokenizer.load(path)
    raise RequestError(f"start.run: {folder.path} has no tokenizer for {names[0]}, since its task differs")


def start_model_kind(recipe: Recipe) -> str | None:
    """Return the kind of the model of the run that the recipe starts from, or None."""
    folder = start_folder(recipe)
    return None if folder is None else _recipe_tree(folder)["model"]["kind"]


def load_or_train_tokenizer(
    recipe: Recipe, settings: Tokenization, name: str, texts: Iterable[str]
) -> Tokenizer:
    """Return the tokenizer of the run that the recipe starts from, if any; else one trained on these texts.

    Args:
        recipe: of the new run.
        settings: its section ``tokenizer``.
        name: the column of the texts.
        texts: to train on.
    """
    folder = start_folder(recipe)
    if folder is not None and "tokenizer" in _recipe_tree(folder):
        tokenizer = start_tokenizer(recipe, name)
        assert tokenizer is not None
        return tokenizer
    return train_tokenizer(settings.subwords, texts, settings.text)


def start_image_reader(recipe: Recipe, size: int, channels: int) -> ImageReader | None:
    """Return the image reader of the run that the recipe starts from, at this size; None without such a run.

    Images are normalised with the mean for which its weights were trained.

    Raises:
        RequestError: if that run reads no images, or with other channels.
    """
    folder = start_folder(recipe)
    if folder is None:
        return None
    if not folder.images.is_file():
        raise RequestError(f"start.run: {folder.path} reads no images; expected a run of an image task")
    reader = read_image_reader(folder.images)
    if reader.channels != channels:
        raise RequestError(
            f"start.run: {folder.path} reads {reader.channels} channels, but the recipe needs {channels}"
        )
    return replace(reader, size=size, first="")


def _recipe_tree(folder: RunFolder) -> JsonObject:
    return read_yaml(read_text(folder.recipe), str(folder.recipe)).data


_EMBEDDINGS = {
    "source": "source_embedding",
    "target": "target_embedding",
    "caption": "target_embedding",
    "text": "embedding",
}
"""The name of the embedding for each key of ``pretrained``."""


class _VectorsFile(NamedTuple):
    """A file of word vectors: its key under ``pretrained``, its path, and the embedding that it fills."""

    side: str
    file: str
    embedding: TokenEmbedding | SegmentedEmbedding


def fill_vectors(
    recipe: Recipe, tokenizers: Mapping[str, Tokenizer], model: nn.Module, log: Callable[[str], None]
) -> None:
    """Fill the rows of the words that have a vector, and log how many have one.

    Args:
        recipe: with a section ``pretrained``, whose relative paths start where it was read.
        tokenizers: by side; words that one id alone spells can be filled.
        model: whose embeddings are filled.
        log: called with a line for each file.

    Raises:
        DataError: a file cannot be read, or its vectors have another width.
        RequestError: the output layer shares a table, and the embedding does not multiply it.
    """
    check_vectors(recipe, model)
    for side, file, embedding in _vectors_files(recipe, model):
        vectors = read_vectors(recipe.path(file), tokenizers[side].whole_words())
        fill_embedding(embedding.weight, vectors, embedding.scale)
        log(f"pretrained.{side}: {vectors}")


def check_vectors(recipe: Recipe, model: nn.Module) -> None:
    """Check that files of vectors suit the model; only the beginning of each is read.

    Args:
        recipe: as of `fill_vectors`.
        model: whose embeddings would be filled; it may be on the meta device.

    Raises:
        DataError, RequestError: as `fill_vectors`, with the key.
    """
    if getattr(recipe, "pretrained", None) is None:
        return
    for side, file, embedding in _vectors_files(recipe, model):
        _require_small_rows(side, embedding, model)
        width = embedding.weight.shape[1]
        try:
            size = width_of_vectors(recipe.path(file))
        except DataError as error:
            raise DataError(f"pretrained.{side}: {error}") from None
        if size != width:
            raise DataError(
                f"pretrained.{side}: {file}: the vectors have width {size}, and the embedding has {width}: "
                "use other vectors, or change the model's width"
            )


def frozen_tables(recipe: Recipe, model: nn.Module) -> dict[nn.Parameter, int | None]:
    """Return the tables that keep their vectors, and for how many updates; None: for all."""
    pretrained = getattr(recipe, "pretrained", None)
    if pretrained is None or pretrained.frozen == 0:
        return {}
    updates = None if pretrained.frozen == ALWAYS else pretrained.frozen
    return {vectors.embedding.weight: updates for vectors in _vectors_files(recipe, model)}


def _vectors_files(recipe: Recipe, model: nn.Module) -> Iterator[_VectorsFile]:
    pretrained = getattr(recipe, "pretrained", None)
    for side, name in _EMBEDDINGS.items():
        if (file := getattr(pretrained, side, None)) is not None:
            embedding = model.get_submodule(name)
            assert isinstance(embedding, TokenEmbedding | SegmentedEmbedding)
            yield _VectorsFile(side, file, embedding)


def _require_small_rows(side: str, embedding: TokenEmbedding | SegmentedEmbedding, model: nn.Module) -> None:
    is_shared = any(p is embedding.weight for p in model.get_submodule("heads").parameters())
    if is_shared and embedding.scale == 1.0:
        raise RequestError(
            f"pretrained.{side}: the output layer shares this table, which requires small rows; set "
            "model.scale_embedding=true, or untie them"
        )
