"""A model of the sentencepiece library (Kudo and Richardson 2018), taken over as it is.

How it normalises text and which pieces it chooses stands in its own file, which is kept whole; it is not
trained here. The vocabulary is a list of its own beside the file, for models that share one between two
languages, as Marian's translators do. A text may begin with a code of the vocabulary, such as ``>>fra<<``,
that says which language is wanted; the code is a token, and no text to the model.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from heedful.text.specials import SPECIALS

BLANK = "▁"
_CODE = re.compile(r">>[^<>\s]+<<")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of another library's model, and which of them are heedful's specials.

    Args:
        names: in the order of their ids.
        specials: the id of each of heedful's specials, in their order; None where there is no such token.
    """

    names: tuple[str, ...]
    specials: tuple[int | None, ...]

    @cached_property
    def theirs(self) -> tuple[int | None, ...]:
        """Their id, by ours: the specials', then all others in their order."""
        taken = {*self.specials}
        return (*self.specials, *(i for i in range(len(self.names)) if i not in taken))

    @property
    def learned(self) -> list[str]:
        """The tokens that are not special, in the order of our ids."""
        return [self.names[i] for i in self.theirs[len(SPECIALS) :] if i is not None]

    @classmethod
    def of(cls, data: dict[str, Any]) -> "Vocabulary":
        """As a tokenizer keeps it."""
        return cls(tuple(data["names"]), tuple(data["specials"]))


def kept(model: bytes, vocabulary: Vocabulary) -> dict[str, Any]:
    """A model's file and its vocabulary as plain JSON values, for `heedful.text.subwords.build`."""
    return {
        "model": base64.b64encode(model).decode("ascii"),
        "names": list(vocabulary.names),
        "specials": list(vocabulary.specials),
    }


def model_file(data: dict[str, Any]) -> bytes:
    """The library's file, of what `kept` made."""
    return base64.b64decode(data["model"], validate=True)


def spelled_pieces(names: Sequence[str]) -> list[bytes]:
    """The bytes that each token adds to a text."""
    return [bytes.fromhex(m[1]) if (m := _BYTE.fullmatch(n)) else _plain(n) for n in names]


def _plain(name: str) -> bytes:
    return name.replace(BLANK, " ").encode()


def encoder(data: dict[str, Any]) -> Callable[[Sequence[str]], list[list[int]]]:
    """From texts to ids.

    Raises:
        RuntimeError: the library cannot read its file.
    """
    # The library is needed for such tokenizers alone.
    from sentencepiece import SentencePieceProcessor

    processor: Any = SentencePieceProcessor(model_proto=model_file(data))
    learned = Vocabulary.of(data).learned
    ids = {name: number for number, name in enumerate(learned, len(SPECIALS))}

    def encode(texts: Sequence[str]) -> list[list[int]]:
        codes = [_code(text) for text in texts]
        rest = [text[len(code) :] for text, code in zip(texts, codes, strict=True)]
        found = processor.encode(rest, out_type=str)
        return [
            [ids.get(piece, SPECIALS.unknown) for piece in ([code] if code else []) + pieces]
            for code, pieces in zip(codes, found, strict=True)
        ]

    def _code(text: str) -> str:
        found = _CODE.match(text)
        return found[0] if found and found[0] in ids else ""

    return encode
