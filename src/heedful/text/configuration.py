"""What is done to a side's text, and what kind of subword model to train (told apart by ``kind``).

Every ``vocab_size`` is the whole size, the special tokens included. Where the text does not give that
many entries the vocabulary is smaller; it is never larger.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from heedful.config import Config
from heedful.errors import RequestError
from heedful.text.normalisation import Form, Preprocessing, require_rules

Language = Annotated[str, Field(pattern="^[a-z]{2,3}$")]
Count = Annotated[int, Field(gt=0)]
Split = Literal["class", "space"]
"""Where words end. ``class``: between letters, digits and other signs. ``space``: at white space only
(subword-nmt's way, for text that was tokenised before)."""
ByteSplit = Literal["class", "space", "gpt2"]
"""``gpt2``: as GPT-2 does, English contractions apart and no space put before the first word."""


class PreprocessingConfig(Config):
    """What a text goes through before subwords are cut, in this order: form, case, Moses.

    Args:
        lowercase: whether all letters become small.
        moses: the language (``de``) by whose rules the Moses scripts cut tokens; null: none.
        normalization: the Unicode form that characters are brought into.
        aggressive_hyphens: whether Moses also cuts at hyphens: ``a-b`` becomes ``a @-@ b``.
    """

    lowercase: bool = False
    moses: Language | None = None
    normalization: Form = "none"
    aggressive_hyphens: bool = False

    @field_validator("moses")
    @classmethod
    def _has_rules(cls, language: str | None) -> str | None:
        if language is not None:
            try:
                require_rules(language)
            except RequestError as error:
                raise ValueError(str(error)) from None
        return language

    def build(self) -> Preprocessing:
        """The object that does it."""
        return Preprocessing(self.lowercase, self.moses, self.normalization, self.aggressive_hyphens)


class _Merging(Config):
    """The settings of byte-pair encoding (Sennrich 2016, section 3.2).

    Exactly one of ``vocab_size`` and ``merges`` must be given.

    Args:
        vocab_size: entries in all, special ones included.
        merges: how many merges are learned; the vocabulary is as large as that makes it.
        min_frequency: how often a pair must occur to be merged.
    """

    vocab_size: Count | None = None
    merges: Count | None = None
    min_frequency: Count = 2

    @model_validator(mode="after")
    def _one_size(self) -> "_Merging":
        if (self.vocab_size is None) == (self.merges is None):
            raise ValueError("give either vocab_size or merges, and not both")
        return self


class BpeConfig(_Merging):
    """Byte-pair encoding of characters.

    The ``alphabet`` most frequent characters that occur ``min_frequency`` times get an entry of their
    own. Others are spelt with the 256 entries of the bytes, or become ``<unk>`` without
    ``byte_fallback``.

    Args:
        min_frequency: how often a character must occur to get an entry, and a pair to be merged.
        split: where words end: between letters, digits and other signs (``class``), or at white space only.
        alphabet: the most characters that get entries.
        byte_fallback: whether other characters are spelt in bytes.
    """

    kind: Literal["bpe"]
    split: Split = "class"
    alphabet: Count = 1000
    byte_fallback: bool = True


class ByteBpeConfig(_Merging):
    """Byte-pair encoding of UTF-8 bytes (Radford 2019, section 2.2).

    Args:
        split: where words end; ``gpt2`` also takes English contractions apart.
    """

    kind: Literal["byte-bpe"]
    split: ByteSplit = "class"


class UnigramConfig(Config):
    """The unigram language model of subwords (Kudo 2018, section 3.2).

    Args:
        vocab_size: entries in all, special ones included.
        min_frequency: how often a character must occur to get an entry.
        split: where words end: between letters, digits and other signs (``class``), or at white space only.
        alphabet: the most characters that get entries.
        byte_fallback: whether other characters are spelt in bytes.
    """

    kind: Literal["unigram"]
    vocab_size: Count
    min_frequency: Count = 2
    split: Split = "class"
    alphabet: Count = 1000
    byte_fallback: bool = True


class CleaningConfig(Config):
    """What BERT does to text before words are cut (Devlin 2019, released code), in this order; nothing
    of it by default.

    Args:
        clean: control characters are left out, and all white space becomes spaces.
        chinese: every Chinese character is a word of its own.
        strip_accents: letters lose their accents (NFD, without its nonspacing marks).
        lowercase: character by character, so that every sigma is the same.
    """

    clean: bool = False
    chinese: bool = False
    strip_accents: bool = False
    lowercase: bool = False


class WordPieceConfig(Config):
    """BERT's greedy longest match (Devlin 2019, section 3), learned by merging the most frequent pair.

    White space is not kept, and a word with a character outside the alphabet becomes ``<unk>``.

    Args:
        vocab_size: entries in all, special ones included.
        min_frequency: how often a character must occur to get an entry, and a pair to be merged.
        alphabet: the most characters that get entries.
        cleaning: what is done to the text first.
    """

    kind: Literal["wordpiece"]
    vocab_size: Count
    min_frequency: Count = 2
    alphabet: Count = 1000
    cleaning: CleaningConfig = CleaningConfig()


class WordConfig(Config):
    """Whole words, the most frequent first; others become ``<unk>`` and white space is not kept.

    Args:
        vocab_size: the most entries, special ones included; null: no limit.
        min_frequency: how often a word must occur to get an entry.
        split: where words end: between letters, digits and other signs (``class``), or at white space only.
    """

    kind: Literal["word"]
    vocab_size: Count | None = None
    min_frequency: Count = 1
    split: Split = "class"


class CharacterConfig(Config):
    """Single code points, the most frequent kept; others become bytes, or else ``<unk>``.

    Args:
        vocab_size: the most entries, special ones included; null: no limit.
        min_frequency: how often a character must occur to get an entry.
        byte_fallback: whether other characters are spelt in bytes.
    """

    kind: Literal["character"]
    vocab_size: Count | None = None
    min_frequency: Count = 1
    byte_fallback: bool = False


class ByteConfig(Config):
    """The 256 bytes of UTF-8; nothing is learned."""

    kind: Literal["byte"]


class SentencePieceConfig(Config):
    """A model of the sentencepiece library, taken over as it is (``heedful import``); nothing is learned."""

    kind: Literal["sentencepiece"]


TokenizerConfig = Annotated[
    BpeConfig
    | ByteBpeConfig
    | UnigramConfig
    | WordPieceConfig
    | WordConfig
    | CharacterConfig
    | ByteConfig
    | SentencePieceConfig,
    Field(discriminator="kind"),
]
