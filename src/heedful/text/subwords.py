"""Subword models: text to ids and ids to bytes, without special tokens and pre-processing.

The ids of the special tokens come first (`heedful.text.specials`), then the 256 bytes if the kind has
them, then the learned entries. So that no text is encoded to a special token, its entry in the library's
vocabulary ends in a space, which no word does; and no word contains ``<0x``, so none matches a byte entry.

Byte-pair and unigram models keep white space inside the pieces (`` dog``). Encoding prepends one space to
every text and decoding removes it, so that the first word is treated like any other; this is exact for
any text. (The ``gpt2`` split does not prepend a space.) Decoding joins the bytes of the pieces, because
the library's decoders lose spaces.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from heedful import limits
from heedful.errors import DataError, quoted
from heedful.text.configuration import (
    ByteConfig,
    CharacterConfig,
    CleaningConfig,
    SentencePieceConfig,
    TokenizerConfig,
)
from heedful.text.sentencepieces import Vocabulary, encoder, piece_bytes
from heedful.text.specials import SPECIALS
from heedful.typing import JsonObject

Encode = Callable[[Sequence[str]], list[list[int]]]

PLACEHOLDERS = tuple(f"{name} " for name in SPECIALS.names)
UNKNOWN = PLACEHOLDERS[SPECIALS.unknown]
BYTE_PIECES = tuple(f"<0x{value:02X}>" for value in range(256))
CONTINUES = "##"
# Post-processing by the library would add and repeat ids, even ids outside the vocabulary.
_FORBIDDEN_STEPS = ("padding", "truncation", "post_processor")
_WORDS: dict[str, str] = {
    "class": r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+",
    "space": r" ?\S+|\s+(?!\S)|\s+",
}

# The library's threads do not survive a fork: enable them in this process and disable them in forked ones.
# The value may be inherited from the parent process, so it does not show who set it.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false"))


def byte_letters() -> list[str]:
    """Return the character that represents each byte in byte-level BPE (Radford 2019).

    Printable Latin-1 characters represent themselves; other bytes map to the code points from 256 on.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(value if value in printable else next(others)) for value in range(256)]


def pre_tokenizer(config: TokenizerConfig) -> pre_tokenizers.PreTokenizer:
    """Return the pre-tokenizer that splits text into words for this kind of model."""
    if config.kind == "wordpiece":
        return pre_tokenizers.BertPreTokenizer()
    if config.kind == "word":
        spaces = config.split == "space"
        return pre_tokenizers.WhitespaceSplit() if spaces else pre_tokenizers.Whitespace()
    if config.kind not in ("bpe", "byte-bpe", "unigram"):
        raise ValueError(f"kind {config.kind} does not split text into words")
    if config.split == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    steps: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Split(Regex(_WORDS[config.split]), "isolated")]
    if config.kind == "byte-bpe":
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    elif config.split == "space":
        steps.append(pre_tokenizers.Split(Regex("<(?=0x)"), "merged_with_previous"))
    return pre_tokenizers.Sequence(steps)


def words_of(config: TokenizerConfig, text: str) -> list[str]:
    """Split a text into words: with the pre-tokenizer for kind ``word``, at white space for any other."""
    if config.kind != "word":
        return text.split()
    return [word for word, _ in pre_tokenizer(config).pre_tokenize_str(text)]


def normalizer(config: TokenizerConfig) -> normalizers.Normalizer | None:
    """Return the normalizer that is applied before text is split into words; None if there is none."""
    cleaning = getattr(config, "cleaning", CleaningConfig())
    if cleaning == CleaningConfig():
        return None
    return normalizers.BertNormalizer(
        clean_text=cleaning.clean,
        handle_chinese_chars=cleaning.chinese,
        strip_accents=cleaning.strip_accents,
        lowercase=cleaning.lowercase,
    )


CARRY_SPACES = ("bpe", "byte-bpe", "unigram")
"""Kinds whose pieces include the space before a word."""


def first_space(config: TokenizerConfig) -> str:
    """Return the prefix of every text, a space or nothing, that makes the first word like any other."""
    return " " if config.kind in CARRY_SPACES and getattr(config, "split", None) != "gpt2" else ""


class TokenTooLongError(DataError):
    """A tokenizer has a token of more than `heedful.limits.LONGEST_TEXT` bytes."""


@dataclass(frozen=True, eq=False)
class SubwordModel:
    """A trained subword model. Use `build` to create one.

    Args:
        config: the kind and its settings.
        data: the learned parameters, as plain JSON values.
        pieces: the bytes that each id adds to a decoded text; empty for a special token.
        labels: the display form of each id.
        space: the prefix that decoding removes from a text: one space, or nothing.
        encode: a function from texts to ids.
    """

    config: TokenizerConfig
    data: JsonObject
    pieces: tuple[bytes, ...]
    labels: tuple[str, ...]
    space: str
    encode: Encode

    @property
    def content(self) -> JsonObject:
        """The arguments of `build`, as plain JSON values."""
        return {"config": self.config.model_dump(mode="json"), "data": self.data}


def build(config: TokenizerConfig, data: JsonObject) -> SubwordModel:
    """Build a subword model from learned parameters (just trained, or read from a file).

    Raises:
        ValueError: if the parameters do not define a model of this kind, or post-process ids.
        TokenTooLongError: if a token is too long.
    """
    if isinstance(config, ByteConfig):
        return _make(config, data, [bytes([value]) for value in range(256)], "", _encode_bytes)
    if isinstance(config, CharacterConfig):
        return _build_characters(config, data)
    if isinstance(config, SentencePieceConfig):
        pieces = piece_bytes(Vocabulary.of(data).learned)
        return _make(config, data, pieces, " ", encoder(data))
    library = _library(data)
    entries = sorted(library.get_vocab().items(), key=lambda entry: entry[1])
    names = [name for name, _ in entries]
    if [i for _, i in entries] != list(range(len(entries))) or tuple(names[: len(SPECIALS)]) != PLACEHOLDERS:
        raise ValueError("the vocabulary must begin with the special tokens and have no gaps")
    learned = list(_piece_bytes(config, names[len(SPECIALS) :]))
    # Pieces of kinds that lose white space are decoded with a leading space that the text did not have.
    prefix = first_space(config)
    space = " " if config.kind in ("wordpiece", "word") else prefix

    def encode(texts: Sequence[str]) -> list[list[int]]:
        prefixed = [prefix + text if text else text for text in texts]
        return [encoding.ids for encoding in library.encode_batch_fast(prefixed, add_special_tokens=False)]

    return _make(config, data, learned, space, encode)


def _library(data: JsonObject) -> Library:
    for name in _FORBIDDEN_STEPS:
        if data.get(name) is not None:
            raise ValueError(f"{name} must be null: ids must not change after encoding")
    with panics_as_errors():
        return Library.from_str(json.dumps(data))


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Convert failed assertions of the tokenizers library, which are no `Exception`, to `ValueError`."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the tokenizers library cannot use it: {error}") from None


def _make(
    config: TokenizerConfig, data: JsonObject, learned: list[bytes], space: str, encode: Encode
) -> SubwordModel:
    if (longest := max(learned, key=len, default=b"")) and len(longest) > limits.LONGEST_TEXT:
        raise TokenTooLongError(
            f"the tokenizer has a token of {len(longest):,} bytes, more than {limits.LONGEST_TEXT:,}: "
            f"{quoted(longest.decode(errors='replace'))}; remove it, or separate words by spaces"
        )
    pieces = (*(b"" for _ in SPECIALS.names), *learned)
    labels = (*SPECIALS.names, *(_label(config, piece) for piece in learned))
    return SubwordModel(config, data, pieces, labels, space, encode)


def _piece_bytes(config: TokenizerConfig, names: list[str]) -> Iterator[bytes]:
    """Yield the bytes of every learned entry of the library's vocabulary."""
    if config.kind == "byte-bpe":
        values = {letter: value for value, letter in enumerate(byte_letters())}
        yield from (bytes(values[letter] for letter in name) for name in names)
    elif config.kind == "word":
        yield from (f" {name}".encode() for name in names)
    elif config.kind == "wordpiece":
        for name in names:
            continues = name.startswith(CONTINUES) and name != CONTINUES
            yield (name.removeprefix(CONTINUES) if continues else f" {name}").encode()
    else:
        n_bytes = 256 if getattr(config, "byte_fallback", False) else 0
        yield from (bytes([value]) for value in range(n_bytes))
        yield from (name.encode() for name in names[n_bytes:])


def _label(config: TokenizerConfig, piece: bytes) -> str:
    """Return the display form of a piece: a space is ``▁``, an unprintable character ``<0x..>``."""
    if config.kind in ("wordpiece", "word"):
        is_start = piece.startswith(b" ")
        return piece[1:].decode() if is_start else CONTINUES + piece.decode()
    return "".join(_displayed(character) for character in piece.decode("utf-8", "surrogateescape"))


def _displayed(character: str) -> str:
    if character == " ":
        return "▁"
    if character.isprintable():
        return character
    return "".join(BYTE_PIECES[value] for value in character.encode("utf-8", "surrogateescape"))


def _encode_bytes(texts: Sequence[str]) -> list[list[int]]:
    return [[value + len(SPECIALS) for value in text.encode()] for text in texts]


def _build_characters(config: CharacterConfig, data: JsonObject) -> SubwordModel:
    letters: str = data["characters"]
    offset = len(SPECIALS) + (256 if config.byte_fallback else 0)
    ids = {letter: [offset + i] for i, letter in enumerate(letters)}

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[i for letter in text for i in ids.get(letter) or unlisted(letter)] for text in texts]

    def unlisted(letter: str) -> list[int]:
        return _encode_bytes([letter])[0] if config.byte_fallback else [SPECIALS.unknown]

    learned = [bytes([value]) for value in range(offset - len(SPECIALS))]
    return _make(config, data, [*learned, *(letter.encode() for letter in letters)], "", encode)


def library_data(config: TokenizerConfig, model: models.Model) -> JsonObject:
    """Return a library model with the pre-tokenizer and normalizer of this kind, as plain JSON values."""
    library = Library(model)
    library.pre_tokenizer = pre_tokenizer(config)
    if (text_normalizer := normalizer(config)) is not None:
        library.normalizer = text_normalizer
    data: JsonObject = json.loads(library.to_str())
    return data


def reserved(byte_fallback: bool) -> list[str]:
    """Return the first entries of the library's vocabulary: special tokens, then bytes if it has them."""
    return [*PLACEHOLDERS, *(BYTE_PIECES if byte_fallback else ())]


def as_vocabulary(names: Iterable[str]) -> dict[str, int]:
    """Number the names in order; a duplicate keeps its first number."""
    return {name: i for i, name in enumerate(dict.fromkeys(names))}
