"""Export heedful's tokenizers as files of transformers, with the same ids.

| heedful | transformers |
|---|---|
| learned model, word splitting | the same; ``character`` and ``byte`` are a BPE without merges |
| the space before a text, ``lowercase``, ``normalization`` | normalizer; the decoder removes the space |
| ``moses`` | not supported: the library has no such rules |
| special tokens | spelled with a trailing space; ``split_special_tokens``: no text can spell one |
| the end token after a text | post-processor |

Two differences remain. Bytes that are not UTF-8, which only a model can generate, are shown as a different
number of U+FFFD by the kinds that spell single characters in bytes. A character that is newer than the
character tables of the library or of Python may be lower-cased, or normalised to NFKC, by only one of them.
"""

import json
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from heedful.errors import RequestError
from heedful.interop.tokenizer_files import TOKENIZER, once_taken_away, settings_file
from heedful.text.configuration import PreprocessingConfig
from heedful.text.specials import SPECIALS
from heedful.text.subwords import (
    CONTINUES,
    PLACEHOLDERS,
    UNKNOWN,
    SubwordModel,
    as_vocabulary,
    byte_letters,
    first_space,
    reserved,
)
from heedful.text.tokenizer import Tokenizer

# A sigma is final after a cased letter and not before one (Unicode 3.13, Final_Sigma). Python's lower()
# implements this rule; the library's, which handles single letters, does not.
_LETTER = r"[\p{Cased}&&\P{Case_Ignorable}]"
_LAST_SIGMA = rf"{_LETTER}\p{{Case_Ignorable}}*\KΣ(?!\p{{Case_Ignorable}}*{_LETTER})"


def write_same_ids(tokenizer: Tokenizer, longest: int, key: str) -> dict[str, str]:
    """Return the files of a tokenizer, by name.

    Args:
        tokenizer: the tokenizer of a side.
        longest: the maximum number of tokens of the model.
        key: the recipe's section of text preprocessing.

    Raises:
        RequestError: if the library does not support the tokenizer; names the key of the recipe.
    """
    preprocessing = tokenizer.preprocessing
    if preprocessing.moses:
        raise RequestError(f"{key}.moses={preprocessing.moses}: the tokenizers library has no Moses rules")
    model = tokenizer.model
    library = _library(model)
    cleaned, space = library.normalizer, first_space(model.config)
    library.normalizer = normalizers.Sequence(
        [
            *_changes(preprocessing),
            *([cleaned] if cleaned else []),
            *([normalizers.Prepend(space)] if space else []),
        ]
    )
    library.decoder = decoders.Sequence([*_joined(model), *once_taken_away(model.space)])
    end = SPECIALS.names[SPECIALS.end]
    library.post_processor = processors.TemplateProcessing(
        single=f"$A {end}",
        pair=f"$A $B {end}",
        special_tokens=[{"id": end, "ids": [SPECIALS.end], "tokens": [PLACEHOLDERS[SPECIALS.end]]}],
    )
    library.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in PLACEHOLDERS])
    spelled = {
        key: PLACEHOLDERS[i]
        for key, i in (
            ("pad_token", SPECIALS.pad),
            ("bos_token", SPECIALS.start),
            ("eos_token", SPECIALS.end),
            ("unk_token", SPECIALS.unknown),
        )
    }
    settings = settings_file(longest, spelled, split_special_tokens=True)
    return {TOKENIZER: library.to_str(pretty=True), **settings}


def _library(model: SubwordModel) -> Library:
    """Return the library's model with the same ids and word splitting."""
    config = model.config
    if config.kind == "sentencepiece":
        raise RequestError(
            "tokenizer.subwords.kind=sentencepiece: must be used for both sides or for neither"
        )
    if config.kind == "byte":
        library = Library(models.BPE(as_vocabulary([*reserved(False), *byte_letters()]), []))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return library
    if config.kind == "character":
        names = [*reserved(config.byte_fallback), *model.data["characters"]]
        unknown = None if config.byte_fallback else UNKNOWN
        spelled = models.BPE(as_vocabulary(names), [], unk_token=unknown, byte_fallback=config.byte_fallback)
        return Library(spelled)
    return Library.from_str(json.dumps(model.data))


def _changes(config: PreprocessingConfig) -> list[normalizers.Normalizer]:
    """Return the normalizers of the text preprocessing (`heedful.text.normalisation.Preprocessing`)."""
    forms: dict[str, list[normalizers.Normalizer]] = {
        "none": [],
        "nfc": [normalizers.NFC()],
        "nfkc": [normalizers.NFKC()],
    }
    form = forms[config.normalization]
    if not config.lowercase:
        return form
    return [*form, normalizers.Replace(Regex(_LAST_SIGMA), "ς"), normalizers.Lowercase(), *form]


def _joined(model: SubwordModel) -> list[Any]:
    """Return the decoders that join pieces, with a space before the first word if the kind has one."""
    kind = model.config.kind
    if kind in ("byte", "byte-bpe"):
        return [decoders.ByteLevel()]
    if kind == "word":
        return [decoders.Replace(Regex(r"\A"), " "), decoders.Fuse()]
    if kind == "wordpiece":
        # For each piece: add a space before a word, and remove the sign of a continuation.
        begins, goes_on = Regex(rf"\A(?!{CONTINUES}.)"), Regex(rf"\A{CONTINUES}(?=.)")
        return [decoders.Replace(begins, " "), decoders.Replace(goes_on, ""), decoders.Fuse()]
    fallback = [decoders.ByteFallback()] if getattr(model.config, "byte_fallback", False) else []
    return [*fallback, decoders.Fuse()]
