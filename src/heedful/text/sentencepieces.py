"""Imported models of the sentencepiece library (Kudo and Richardson 2018).

The model file, which defines normalisation and segmentation, is stored unchanged; heedful does not train such
models. The vocabulary is a separate list, because models such as Marian's translators share one between two
languages. A text may begin with a language code of the vocabulary, such as ``>>fra<<``, which is encoded as
one token and not passed to the sentencepiece model.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from heedful.text.specials import SPECIALS
from heedful.typing import JsonObject

BLANK = "▁"
_CODE = re.compile(r">>[^<>\s]+<<")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of an imported model, and which of them are heedful's special tokens.

    Args:
        names: the tokens, in the order of their ids.
        specials: the id of each of heedful's special tokens, in heedful's order; None if there is no such
            token.
    """

    names: tuple[str, ...]
    specials: tuple[int | None, ...]

    @cached_property
    def theirs(self) -> tuple[int | None, ...]:
        """The imported model's id for each of heedful's ids: special tokens first, then the others."""
        special_ids = {*self.specials}
        return (*self.specials, *(i for i in range(len(self.names)) if i not in special_ids))

    @property
    def learned(self) -> list[str]:
        """The tokens that are not special, in the order of heedful's ids."""
        return [self.names[i] for i in self.theirs[len(SPECIALS) :] if i is not None]

    @classmethod
    def of(cls, data: JsonObject) -> "Vocabulary":
        """Read the vocabulary from the data that `sentencepiece_data` returned."""
        return cls(tuple(data["names"]), tuple(data["specials"]))


def sentencepiece_data(model: bytes, vocabulary: Vocabulary) -> JsonObject:
    """Return a model file and its vocabulary as plain JSON values, for `heedful.text.subwords.build`."""
    return {
        "model": base64.b64encode(model).decode("ascii"),
        "names": list(vocabulary.names),
        "specials": list(vocabulary.specials),
    }


def model_file(data: JsonObject) -> bytes:
    """Return the sentencepiece model file from the data that `sentencepiece_data` returned."""
    return base64.b64decode(data["model"], validate=True)


def piece_bytes(names: Sequence[str]) -> list[bytes]:
    """Return the bytes that each token adds to a text."""
    return [
        bytes.fromhex(match[1]) if (match := _BYTE.fullmatch(name)) else name.replace(BLANK, " ").encode()
        for name in names
    ]


def encoder(data: JsonObject) -> Callable[[Sequence[str]], list[list[int]]]:
    """Return a function from texts to ids.

    Raises:
        RuntimeError: if the library cannot read the model file.
    """
    # Imported here because only such tokenizers need the library.
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_proto=model_file(data))
    learned = Vocabulary.of(data).learned
    ids = {name: number for number, name in enumerate(learned, len(SPECIALS))}

    def encode(texts: Sequence[str]) -> list[list[int]]:
        codes = [_code(text) for text in texts]
        rest = [text[len(code) :] for text, code in zip(texts, codes, strict=True)]
        segmented = processor.encode(rest, out_type=str)
        return [
            [ids.get(piece, SPECIALS.unknown) for piece in ([code] if code else []) + pieces]
            for code, pieces in zip(codes, segmented, strict=True)
        ]

    def _code(text: str) -> str:
        match = _CODE.match(text)
        return match[0] if match and match[0] in ids else ""

    return encode
