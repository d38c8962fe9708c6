"""Texts together with their token ids, so that each text is encoded only once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Encoded:
    """Texts of one side (source or target) and their token ids.

    Args:
        tokenizer: the tokenizer of this side.
        texts: the texts.
        ids: the token ids of each text.
    """

    tokenizer: Tokenizer
    texts: Sequence[str]
    ids: Sequence[list[int]]

    @classmethod
    def by(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> Self:
        """Encode the texts."""
        return cls(tokenizer, texts, tokenizer.encode_batch(texts))
