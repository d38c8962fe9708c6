"""Embeddings that begin with word vectors from elsewhere."""

from torch import Tensor

from heedful.data.vectors import fill_embedding, read_vectors
from heedful.runs.kind import Say
from heedful.runs.recipe import Recipe
from heedful.text.tokenizer import Tokenizer


def fill_from(recipe: Recipe, side: str, file: str, tokenizer: Tokenizer, weight: Tensor, say: Say) -> None:
    """Fill the rows of the words that have a vector, and say how many have one.

    Args:
        recipe: whose relative paths start where it was read.
        side: its key under ``pretrained``.
        file: of the vectors.
        tokenizer: of the side; words that one id alone spells can be filled.
        weight: the embedding, ``[V, d]``.
        say: told of it.

    Raises:
        DataError: the file cannot be read, or its vectors have another width.
    """
    report = fill_embedding(weight, read_vectors(recipe.path(file), tokenizer.whole_words()))
    say(f"pretrained.{side}: {report}")
