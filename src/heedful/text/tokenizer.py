"""The tokenizer: text to ids and back, one side's pre-processing around a subword model."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from heedful.errors import DamagedError
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig, WordConfig
from heedful.text.normalisation import refuse_surrogates
from heedful.text.specials import SPECIALS, Specials
from heedful.text.storage import read_content, sha256, write_content
from heedful.text.subwords import SubwordModel, build, words_of

NO_WORD = -1
_CONFIG: TypeAdapter[TokenizerConfig] = TypeAdapter(TokenizerConfig)


class Tokenizer:
    """Pre-processing and a subword model. It never adds special tokens: `heedful.data` does.

    ``decode(encode(x)) == x`` for any text x where `promises_round_trip` says so. Encoding is not a
    homomorphism: ``encode(a) + encode(b)`` is not ``encode(a + b)``. To get the text that ids add to
    a prompt, decode both and compare.
    """

    specials: Specials = SPECIALS

    def __init__(self, model: SubwordModel, preprocessing: PreprocessingConfig | None = None) -> None:
        self.model = model
        self.preprocessing = preprocessing or PreprocessingConfig()
        self._text = self.preprocessing.build()

    @property
    def vocab_size(self) -> int:
        """V, the special tokens included. Ids run from 0 to V - 1."""
        return len(self.model.pieces)

    @property
    def promises_round_trip(self) -> bool:
        """Whether ``decode(encode(x)) == x`` for any text (one without lone surrogates)."""
        return self.model.is_faithful and self._text.is_faithful

    def encode(self, text: str) -> list[int]:
        """The ids of a text; none for the empty text.

        Raises:
            DataError: the text holds a lone surrogate, so it has no UTF-8 form.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, in order.

        Raises:
            DataError: a text holds a lone surrogate, so it has no UTF-8 form.
        """
        for text in texts:
            refuse_surrogates(text)
        return self.model.encode([self._text.apply(text) for text in texts])

    def encode_parts(self, parts: Sequence[str], between: str) -> list[list[int]]:
        """The ids of the parts of one text, with ``between`` before all but the first.

        Raises:
            DataError: a part holds a lone surrogate, so it has no UTF-8 form.
        """
        for part in parts:
            refuse_surrogates(part)
        plain = [self._text.apply(part) for part in parts]
        return self.model.encode([*plain[:1], *(between + part for part in plain[1:])])

    @property
    def spells_what_it_knows(self) -> bool:
        """Whether ids without a single ``<unk>`` give back the very text that they were made of."""
        changing = {"word", "wordpiece", "sentencepiece"}
        return self.model.config.kind not in changing and self._text.is_faithful

    def spells(self, batch: Sequence[Sequence[int]]) -> bool:
        """Whether the ids of some texts give back the very same texts."""
        return self.spells_what_it_knows and not any(self.specials.unknown in ids for ids in batch)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, as a person would write it. Specials add nothing.

        Bytes that are not UTF-8, which only a model can produce, become U+FFFD.
        """
        return self._text.undo(self.surface(ids))

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of ids, in order."""
        return [self.decode(ids) for ids in batch]

    def surface(self, ids: Sequence[int]) -> str:
        """The text of the ids before pre-processing is undone: Moses tokens are still apart.

        The words that `words` counts are ``surface(ids).split()``.
        """
        return b"".join(self._pieces(ids)).decode("utf-8", "replace")

    def spelled(self, ids: Sequence[int], *, begun: bool) -> list[bytes]:
        """The bytes that each id adds to a text, before pre-processing is undone; specials add none.

        Args:
            ids: the ids.
            begun: whether they follow others. If not, they are those of a whole text, which has no space
                before its first word.
        """
        return [self.model.pieces[self._checked(i)] for i in ids] if begun else self._pieces(ids)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """How each id is shown to people: ``▁dog``, ``<0xE2>``, ``</s>``."""
        return [self.model.labels[self._checked(i)] for i in ids]

    def whole_words(self) -> dict[str, int]:
        """The words that one id alone spells, for filling embeddings from word vectors."""
        found: dict[str, int] = {}
        for i in range(len(self.specials), self.vocab_size):
            text = self._pieces([i])[0].decode("utf-8", "replace")
            if text[:1].isspace() or isinstance(self.model.config, WordConfig):
                found.setdefault(text.strip(), i)
        found.pop("", None)
        return found

    def words(self, ids: Sequence[int]) -> list[int]:
        """For each id, the index of its word in ``surface(ids).split()``.

        That is the word of its first character that is no white space; `NO_WORD` (-1) for a special
        and for white space alone.
        """
        pieces = self._pieces(ids)
        numbers = _word_of_each_byte(b"".join(pieces))
        found, start = [], 0
        for piece in pieces:
            own = numbers[start : start + len(piece)]
            found.append(next((number for number in own if number != NO_WORD), NO_WORD))
            start += len(piece)
        return found

    def unknown_rate(self, ids: Sequence[int]) -> float:
        """The share of ``<unk>`` among the ids; 0 where there are none."""
        return sum(i == self.specials.unknown for i in ids) / max(len(ids), 1)

    def unknown_words(self, text: str) -> list[str]:
        """The words of a text, as pre-processing leaves them, of which something is ``<unk>``."""
        words = words_of(self.model.config, self._text.apply(text))
        return [
            word
            for word, ids in zip(words, self.model.encode(words), strict=True)
            if self.specials.unknown in ids
        ]

    def with_preprocessing(self, preprocessing: PreprocessingConfig) -> "Tokenizer":
        """Another side's tokenizer over the same subword model."""
        return Tokenizer(self.model, preprocessing)

    def same_pieces_as(self, other: "Tokenizer") -> bool:
        """Whether ids stand for the same pieces in both (so embeddings may be tied)."""
        return self.model is other.model or self.model.pieces == other.model.pieces

    @property
    def content(self) -> dict[str, Any]:
        """All that makes this tokenizer, as plain JSON values."""
        return {**self.model.content, "preprocessing": self.preprocessing.model_dump(mode="json")}

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of `content`, in hexadecimal."""
        return sha256(self.content)

    def save(self, path: str | Path) -> None:
        """Write one JSON file; a reader sees the old file or the new one, never a part.

        Raises:
            WorkError: the file cannot be written.
        """
        write_content(Path(path), self.content)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read what `save` wrote.

        Raises:
            RequestError: there is no such file, or it is not a tokenizer of a known version.
            DamagedError: the content is not what was written.
        """
        content = read_content(Path(path))
        try:
            config = _CONFIG.validate_python(content["config"])
            preprocessing = PreprocessingConfig.model_validate(content["preprocessing"])
            return cls(build(config, content["data"]), preprocessing)
        except Exception as error:  # The library raises plain exceptions.
            raise DamagedError(f"{path}: the tokenizer cannot be rebuilt: {error}") from error

    def _checked(self, i: int) -> int:
        if not 0 <= i < self.vocab_size:
            raise ValueError(f"id {i} is outside the vocabulary (0 to {self.vocab_size - 1})")
        return i

    def _pieces(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each id, without the space that was put before the text."""
        pieces = [self.model.pieces[self._checked(i)] for i in ids]
        first = next((n for n, piece in enumerate(pieces) if piece), None)
        if first is not None:
            pieces[first] = pieces[first].removeprefix(self.model.space.encode())
        return pieces


def _word_of_each_byte(spelled: bytes) -> list[int]:
    """For each byte, the index of its white-space word, or `NO_WORD`."""
    numbers: list[int] = []
    word, inside = NO_WORD, False
    for sign in spelled.decode("utf-8", "surrogateescape"):
        is_space = sign.isspace()
        word += not is_space and not inside
        inside = not is_space
        numbers += [NO_WORD if is_space else word] * len(sign.encode("utf-8", "surrogateescape"))
    return numbers
