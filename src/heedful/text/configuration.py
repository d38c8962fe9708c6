"""Configuration of pre-processing and of subword models (discriminated by ``kind``).

Every ``vocab_size`` includes the special tokens. The vocabulary is smaller if the text does not yield
that many entries, and never larger.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from heedful.config import Config
from heedful.errors import RequestError
from heedful.text.normalisation import Form, Lowercase, lowercased, moses, normalised, require_rules

Language = Annotated[str, Field(pattern="^[a-z]{2,3}$")]
Count = Annotated[int, Field(gt=0)]
VocabularySize = Annotated[int, Field(gt=0, le=10_000_000)]  # published ones have at most a million entries
Coverage = Annotated[float, Field(gt=0, le=1)]
Split = Literal["class", "space"]
"""Where words end. ``class``: between letters, digits and other characters. ``space``: only at white space
(as in subword-nmt, for text that is already tokenised)."""
ByteSplit = Literal["class", "space", "gpt2"]
"""``gpt2``: split as GPT-2 does, with English contractions split off and no space before the first word."""


class PreprocessingConfig(Config):
    """Text pre-processing before subword segmentation, in this order: Unicode form, case, Moses.

    Args:
        lowercase: whether to lowercase the text; ``tr`` or ``az``: by the rules of Turkish or Azerbaijani, in
            which ``I`` becomes ``ı`` and ``İ`` becomes ``i``.
        moses: the language (``de``) of the Moses tokenizer's rules; null: no Moses tokenization.
        normalization: the Unicode normalization form.
        aggressive_hyphens: whether Moses also splits at hyphens: ``a-b`` becomes ``a @-@ b``.
    """

    lowercase: Lowercase = False
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

    @property
    def is_faithful(self) -> bool:
        """Whether `apply` returns every text unchanged."""
        return not self.lowercase and self.moses is None and self.normalization == "none"

    @property
    def keeps_composed_text(self) -> bool:
        """Whether `apply` returns every text that is in NFC unchanged."""
        return not self.lowercase and self.moses is None and self.normalization != "nfkc"

    def apply(self, text: str) -> str:
        """Return the text as the subword model receives it.

        Lowercasing precedes tokenisation as in the published Multi30k text; Moses then misses abbreviations
        that it only knows capitalised (``Dr.`` is one token, ``dr.`` may be two).
        """
        text = self._normalised(text)
        if self.lowercase:
            # Lowercasing can leave a sequence that has a composed form.
            text = self._normalised(lowercased(text, self.lowercase))
        return moses(self.moses).tokenise(text, self.aggressive_hyphens) if self.moses else text

    def undo(self, text: str) -> str:
        """Join tokens to natural text; case and Unicode form are not restored."""
        return moses(self.moses).detokenise(text) if self.moses else text

    def stable_prefix(self, text: str) -> str:
        """Return the prefix of ``undo(text + more)`` that does not depend on ``more``."""
        return moses(self.moses).stable_prefix(text) if self.moses else text

    def _normalised(self, text: str) -> str:
        return text if self.normalization == "none" else normalised(text, self.normalization)


class ComposingPreprocessingConfig(PreprocessingConfig):
    """Text pre-processing before subword segmentation, in this order: Unicode form, case, Moses.

    The default form is for tasks that need not return a text byte for byte: in NFC, ``é`` is one character,
    although some systems write it as two. Text that is in NFC, as most is, stays as it is.

    Args:
        normalization: the Unicode normalization form.
    """

    normalization: Form = "nfc"


class _Merging(Config):
    """Settings of byte-pair encoding (Sennrich 2016, section 3.2).

    Exactly one of ``vocab_size`` and ``merges`` must be given.

    Args:
        vocab_size: the vocabulary size, special tokens included.
        merges: the number of merges to learn; it determines the vocabulary size.
        min_frequency: the minimum count of a pair to be merged.
    """

    vocab_size: VocabularySize | None = None
    merges: VocabularySize | None = None
    min_frequency: Count = 2

    @model_validator(mode="after")
    def _one_size(self) -> "_Merging":
        if (self.vocab_size is None) == (self.merges is None):
            raise ValueError("exactly one of vocab_size and merges must be given")
        return self


class BpeConfig(_Merging):
    """Byte-pair encoding of characters.

    The most frequent characters get their own entry, if they occur at least ``min_frequency`` times. All
    others are encoded as bytes (256 entries), or as ``<unk>`` without ``byte_fallback``.

    Args:
        min_frequency: the minimum count of a character to get an entry, and of a pair to be merged.
        split: where words end: between letters, digits and other characters (``class``), or only at white
            space (``space``).
        coverage: the share of the characters of the training text whose entries are made first; at least the
            1,000 most frequent characters get one, as far as ``vocab_size`` allows.
        alphabet: the maximum number of characters that get their own entry; null: as ``coverage`` says.
        byte_fallback: whether to encode other characters as bytes.
    """

    kind: Literal["bpe"]
    split: Split = "class"
    coverage: Coverage = 0.9995
    alphabet: Count | None = None
    byte_fallback: bool = True


class ByteBpeConfig(_Merging):
    """Byte-pair encoding of UTF-8 bytes (Radford 2019, section 2.2).

    Args:
        split: where words end; ``gpt2`` also splits off English contractions.
    """

    kind: Literal["byte-bpe"]
    split: ByteSplit = "class"


class UnigramConfig(Config):
    """Unigram language model of subwords (Kudo 2018, section 3.2).

    Args:
        vocab_size: the vocabulary size, special tokens included.
        min_frequency: the minimum count of a character to get an entry.
        split: where words end: between letters, digits and other characters (``class``), or only at white
            space (``space``).
        coverage: the share of the characters of the training text whose entries are made first; at least the
            1,000 most frequent characters get one, as far as ``vocab_size`` allows.
        alphabet: the maximum number of characters that get their own entry; null: as ``coverage`` says.
        byte_fallback: whether to encode other characters as bytes.
    """

    kind: Literal["unigram"]
    vocab_size: VocabularySize
    min_frequency: Count = 2
    split: Split = "class"
    coverage: Coverage = 0.9995
    alphabet: Count | None = None
    byte_fallback: bool = True


class CleaningConfig(Config):
    """BERT's text cleaning before words are split (Devlin 2019, released code), in this order; all off by
    default.

    Args:
        clean: whether to remove control characters and replace all white space by spaces.
        chinese: whether every Chinese character is a separate word.
        strip_accents: whether to strip accents (NFD, nonspacing marks removed).
        lowercase: whether to lowercase character by character (a final sigma becomes an ordinary one).
    """

    clean: bool = False
    chinese: bool = False
    strip_accents: bool = False
    lowercase: bool = False


class WordPieceConfig(Config):
    """BERT's greedy longest match (Devlin 2019, section 3), learned by merging the most frequent pair.

    White space is lost, and a word with a character outside the alphabet becomes ``<unk>``.

    Args:
        vocab_size: the vocabulary size, special tokens included.
        min_frequency: the minimum count of a character to get an entry, and of a pair to be merged.
        coverage: the share of the characters of the training text whose entries are made first; at least the
            1,000 most frequent characters get one, as far as ``vocab_size`` allows.
        alphabet: the maximum number of characters that get their own entry; null: as ``coverage`` says.
        cleaning: the text cleaning that is applied first.
    """

    kind: Literal["wordpiece"]
    vocab_size: VocabularySize
    min_frequency: Count = 2
    coverage: Coverage = 0.9995
    alphabet: Count | None = None
    cleaning: CleaningConfig = CleaningConfig()


class WordConfig(Config):
    """Whole words, the most frequent first; other words become ``<unk>`` and white space is lost.

    Args:
        vocab_size: the maximum vocabulary size, special tokens included; null: no limit.
        min_frequency: the minimum count of a word to get an entry.
        split: where words end: between letters, digits and other characters (``class``), or only at white
            space (``space``).
    """

    kind: Literal["word"]
    vocab_size: VocabularySize | None = None
    min_frequency: Count = 1
    split: Split = "class"


class CharacterConfig(Config):
    """Single code points, the most frequent first; others are encoded as bytes or as ``<unk>``.

    Args:
        vocab_size: the maximum vocabulary size, special tokens included; null: no limit.
        min_frequency: the minimum count of a character to get an entry.
        byte_fallback: whether to encode other characters as bytes.
    """

    kind: Literal["character"]
    vocab_size: VocabularySize | None = None
    min_frequency: Count = 1
    byte_fallback: bool = False


class ByteConfig(Config):
    """The 256 bytes of UTF-8; nothing is learned."""

    kind: Literal["byte"]


class SentencePieceConfig(Config):
    """An imported model of the sentencepiece library (``heedful import``); nothing is learned."""

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
