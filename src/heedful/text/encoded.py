"""Texts beside their ids, so that they are encoded once, whoever asks for either."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Encoded:
    """One side of some texts.

    Args:
        tokenizer: of the side.
        texts: in order.
        ids: of each text.
    """

    tokenizer: Tokenizer
    texts: Sequence[str]
    ids: Sequence[list[int]]

    @classmethod
    def by(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> Self:
        """The texts, encoded."""
        return cls(tokenizer, texts, tokenizer.encode_batch(texts))
