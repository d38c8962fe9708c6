"""The tokenizer: text to ids and back, with one side's pre-processing and a subword model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from heedful.errors import DamagedError, RequestError
from heedful.files import json_sha256, require_end, write_text
from heedful.records import parse_strictly
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig, WordConfig
from heedful.text.normalisation import refuse_surrogates
from heedful.text.scripts import segments, words_of_pieces
from heedful.text.specials import SPECIALS, Specials
from heedful.text.subwords import SubwordModel, build, panics_as_errors, words_of
from heedful.typing import JsonObject


@dataclass(frozen=True)
class ByteSpelling:
    """Counts characters that have no entry in a vocabulary, so that several byte tokens spell them.

    Args:
        characters: ``[V]``, number of characters that begin in each token; spaces are not counted.
        spelled: ``[V]``, whether the token is the first byte of a character of several bytes.
    """

    characters: NDArray[np.int64]
    spelled: NDArray[np.bool_]

    def count(self, ids: Sequence[int]) -> tuple[int, int]:
        """Return the number of characters in ids, and how many of them are spelled in bytes."""
        indices = np.asarray(ids, dtype=np.int64)
        return int(self.characters[indices].sum()), int(self.spelled[indices].sum())


FORMAT, VERSION = "heedful-tokenizer", 1
_FIRST_OF_SEVERAL = 0xC0
"""Bytes from here on begin a character of several bytes in UTF-8; those from 0x80 on continue it."""

_CONFIG: TypeAdapter[TokenizerConfig] = TypeAdapter(TokenizerConfig)


class Tokenizer:
    """Pre-processing and a subword model. It never adds special tokens: `heedful.data` does.

    If `is_lossless_without_unknown`, ``decode(encode(x)) == x`` for any text x whose ids have no ``<unk>``.
    In general ``encode(a) + encode(b) != encode(a + b)``. To get the text that ids add to a prompt, decode
    the prompt with and without them and compare.
    """

    specials: Specials = SPECIALS

    def __init__(self, model: SubwordModel, preprocessing: PreprocessingConfig | None = None) -> None:
        self.model = model
        self.preprocessing = preprocessing or PreprocessingConfig()

    @property
    def vocab_size(self) -> int:
        """The vocabulary size V, special tokens included. Ids run from 0 to V - 1."""
        return len(self.model.pieces)

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids; the empty text has none.

        Raises:
            DataError: if the text contains a lone surrogate, so it cannot be encoded as UTF-8.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text as ids.

        Raises:
            DataError: if a text contains a lone surrogate, so it cannot be encoded as UTF-8.
        """
        for text in texts:
            refuse_surrogates(text)
        return self.model.encode([self.preprocessing.apply(text) for text in texts])

    def encode_parts(self, parts: Sequence[str], between: str) -> list[list[int]]:
        """Encode the parts of one text, with ``between`` before all but the first.

        Raises:
            DataError: if a part contains a lone surrogate, so it cannot be encoded as UTF-8.
        """
        for part in parts:
            refuse_surrogates(part)
        prepared = [self.preprocessing.apply(part) for part in parts]
        return self.model.encode([*prepared[:1], *(between + part for part in prepared[1:])])

    @cached_property
    def byte_spelling(self) -> ByteSpelling | None:
        """Counts the characters that are spelled in bytes; None if none are, or all by design."""
        pieces = self.model.pieces
        spelled = np.array([len(piece) == 1 and piece[0] >= _FIRST_OF_SEVERAL for piece in pieces])
        if self.model.config.kind in ("byte", "byte-bpe") or not spelled.any():
            return None
        starts = (sum(byte < 0x80 or byte >= _FIRST_OF_SEVERAL for byte in p) - p.count(b" ") for p in pieces)
        return ByteSpelling(np.fromiter(starts, np.int64, len(pieces)), spelled)

    @property
    def n_characters(self) -> int:
        """The number of characters that have their own entry, bytes not among them."""
        texts = (piece.decode("utf-8", "replace") for piece in self.model.pieces[len(self.specials) :])
        n_bytes = 0 if self.byte_spelling is None else 0x80  # those that are ASCII characters
        return sum(len(text) == 1 and text != "\ufffd" for text in texts) - n_bytes

    @property
    def is_lossless_without_unknown(self) -> bool:
        """Whether ids without ``<unk>`` decode to exactly the text that was encoded."""
        return self._keeps_spaces and self.preprocessing.is_faithful

    def decodes_exactly(self, texts: Sequence[str], batch: Sequence[Sequence[int]]) -> bool:
        """Whether the ids of each of these texts decode to exactly that text."""
        if not self._keeps_spaces or any(self.specials.unknown in ids for ids in batch):
            return False
        preprocessing = self.preprocessing
        return preprocessing.is_faithful or (
            preprocessing.keeps_composed_text and all(preprocessing.apply(text) == text for text in texts)
        )

    @property
    def _keeps_spaces(self) -> bool:
        return self.model.config.kind not in ("word", "wordpiece", "sentencepiece")

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to natural text. Special tokens add nothing.

        Invalid UTF-8, which only a model's output can contain, becomes U+FFFD.
        """
        return self.preprocessing.undo(self.surface(ids))

    def surface(self, ids: Sequence[int]) -> str:
        """Decode ids without undoing pre-processing: Moses tokens stay separate."""
        return b"".join(self._pieces(ids)).decode("utf-8", "replace")

    def token_bytes(self, ids: Sequence[int], *, is_continuation: bool) -> list[bytes]:
        """Return the bytes that each id adds to a text, without undoing pre-processing.

        Special tokens add none.

        Args:
            ids: the ids.
            is_continuation: whether the ids continue a text. If not, they begin a text, which has no space
                before its first word.
        """
        return [self.model.pieces[self._checked(i)] for i in ids] if is_continuation else self._pieces(ids)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the display form of each id: ``▁dog``, ``<0xE2>``, ``</s>``."""
        return [self.model.labels[self._checked(i)] for i in ids]

    def whole_words(self) -> dict[str, int]:
        """Return the words that are a single token, to initialise embeddings from word vectors."""
        ids_by_word: dict[str, int] = {}
        for i in range(len(self.specials), self.vocab_size):
            text = self._pieces([i])[0].decode("utf-8", "replace")
            if text[:1].isspace() or isinstance(self.model.config, WordConfig):
                ids_by_word.setdefault(text.strip(), i)
        ids_by_word.pop("", None)
        return ids_by_word

    def split_words(self, ids: Sequence[int]) -> tuple[list[str], list[int]]:
        """Return the words of ``surface(ids)``, and for each id the index of its word.

        Words are separated by white space; in scripts without spaces, each piece is a word
        (`heedful.text.scripts`). The index is `NO_WORD` (-1) for special tokens and for white space only.
        """
        return words_of_pieces(self._pieces(ids))

    def unknown_words(self, text: str) -> list[str]:
        """Return the pre-processed words of a text whose encoding contains ``<unk>``.

        In scripts without spaces, these are the characters that are unknown (with kind ``word``, whole words
        as everywhere).
        """
        unknown = self._with_unknown(words_of(self.model.config, self.preprocessing.apply(text)))
        if isinstance(self.model.config, WordConfig):
            return unknown
        return [part for word in unknown for part in self._with_unknown(segments(word)) or [word]]

    def _with_unknown(self, words: list[str]) -> list[str]:
        encoded = zip(words, self.model.encode(words), strict=True)
        return [word for word, ids in encoded if self.specials.unknown in ids]

    def with_preprocessing(self, preprocessing: PreprocessingConfig) -> "Tokenizer":
        """Return a tokenizer with other pre-processing and the same subword model."""
        return Tokenizer(self.model, preprocessing)

    def same_pieces_as(self, other: "Tokenizer") -> bool:
        """Whether each id has the same piece in both tokenizers (so embeddings may be tied)."""
        return self.model is other.model or self.model.pieces == other.model.pieces

    @property
    def content(self) -> JsonObject:
        """The complete state of this tokenizer, as plain JSON values."""
        return {**self.model.content, "preprocessing": self.preprocessing.model_dump(mode="json")}

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of `content`, in hexadecimal; the same with and without NFC.

        Text in NFC, as most is, gets the same ids from both, so measures per token are comparable.
        """
        preprocessing = self.preprocessing
        if preprocessing.normalization == "nfc":
            preprocessing = preprocessing.model_copy(update={"normalization": "none"})
        return json_sha256(self.with_preprocessing(preprocessing).content)

    def save(self, path: str | Path) -> None:
        """Write one JSON file atomically: format, version, SHA-256 and content.

        Raises:
            WorkError: if the file cannot be written.
        """
        content = self.content
        record = {"format": FORMAT, "version": VERSION, "sha256": json_sha256(content), "content": content}
        write_text(Path(path), json.dumps(record, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Load a tokenizer written by `save`.

        Raises:
            RequestError: if the file is missing, or is not a tokenizer of a supported version.
            DamagedError: if the content does not match its hash or is invalid.
        """
        record = _read_record(Path(path))
        content = record.get("content")
        if not isinstance(content, dict) or not _is_intact(record):
            raise DamagedError(
                f"{path}: the tokenizer is damaged: its SHA-256 does not match the one in the file"
            )
        try:
            config = _CONFIG.validate_python(content["config"])
            preprocessing = PreprocessingConfig.model_validate(content["preprocessing"])
            with panics_as_errors():
                tokenizer = cls(build(config, content["data"]), preprocessing)
                tokenizer.encode(_PROBE)  # the library checks some parts only when it needs them
                return tokenizer
        except Exception as error:  # The library raises plain exceptions.
            raise DamagedError(f"{path}: cannot rebuild the tokenizer: {error}") from error

    def _checked(self, i: int) -> int:
        if not 0 <= i < self.vocab_size:
            raise ValueError(f"id {i} is outside the vocabulary (0 to {self.vocab_size - 1})")
        return i

    def _pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the bytes of each id, without the space that encoding prepends."""
        pieces = [self.model.pieces[self._checked(i)] for i in ids]
        first = next((n for n, piece in enumerate(pieces) if piece), None)
        if first is not None:
            pieces[first] = pieces[first].removeprefix(self.model.space.encode())
        return pieces


@dataclass(frozen=True)
class EncodedTexts:
    """Texts of one side (source or target) and their token ids."""

    tokenizer: Tokenizer
    texts: Sequence[str]
    ids: Sequence[list[int]]

    @classmethod
    def encode(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> Self:
        """Encode the texts."""
        return cls(tokenizer, texts, tokenizer.encode_batch(texts))


_PROBE = "a Ä 7 – 漢 \U0010fffd"
"""A text with characters that few vocabularies have."""


def _is_intact(record: JsonObject) -> bool:
    try:
        return json_sha256(record["content"]) == record.get("sha256")
    except RecursionError:
        return False


def _read_record(path: Path) -> JsonObject:
    require_end(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path}: cannot read the tokenizer: {error.strerror}") from error
    try:
        record = parse_strictly(raw.decode("utf-8"))
    except ValueError as error:
        if FORMAT.encode() in raw[:100]:
            raise DamagedError(f"{path}: the tokenizer is damaged: {error}") from error
        raise RequestError(f"{path}: not a heedful tokenizer (not JSON)") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise RequestError(f"{path}: not a heedful tokenizer")
    if record.get("version") != VERSION:
        raise RequestError(
            f"{path}: unsupported tokenizer version {record.get('version')!r}; expected version {VERSION}"
        )
    return record
