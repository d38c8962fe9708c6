"""heedful's tokenizers as the files of transformers, every id as it is here.

| here | there |
|---|---|
| what is learned, where words end | as it is; ``character`` and ``byte`` are a BPE without merges |
| the space before a text, ``lowercase``, ``normalization`` | normalizer; the decoder takes the space away |
| ``moses`` | nothing: the library has no such rules |
| special tokens | spelt with a space behind; ``split_special_tokens``: no text spells one |
| the end token behind a text | post-processor |

Two things are not the same. Bytes that are no UTF-8, which only a model can write, are shown in another
number of U+FFFD by the kinds that spell single characters in bytes. And the library's tables of characters,
like Python's, are of a year: a character that only one of them knows may be lower-cased, or brought into
NFKC, by one alone.
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

# A sigma ends a word behind a letter that has a case and before none (Unicode 3.13, Final_Sigma). Python's
# lower() knows that; the library's, which sees single letters, does not.
_LETTER = r"[\p{Cased}&&\P{Case_Ignorable}]"
_LAST_SIGMA = rf"{_LETTER}\p{{Case_Ignorable}}*\KΣ(?!\p{{Case_Ignorable}}*{_LETTER})"


def write_same_ids(tokenizer: Tokenizer, longest: int, key: str) -> dict[str, str]:
    """The files of a tokenizer, by their names.

    Args:
        tokenizer: of a side.
        longest: tokens that the model can read.
        key: of the recipe's section that says what is done to the text.

    Raises:
        RequestError: the library has no such tokenizer; the message names the key of the recipe.
    """
    preprocessing = tokenizer.preprocessing
    if preprocessing.moses:
        raise RequestError(f"{key}.moses={preprocessing.moses}: the tokenizers library has no rules of Moses")
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
    """The model of the library that has these ids, with the words that it is given."""
    config = model.config
    if config.kind == "sentencepiece":
        raise RequestError(
            "tokenizer.subwords.kind=sentencepiece: a model of another library, which needs one on both sides"
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
    """What is done to a text first (`heedful.text.normalisation.Preprocessing`)."""
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
    """The steps that make one text of the pieces, a space before the first word where the kind has one."""
    kind = model.config.kind
    if kind in ("byte", "byte-bpe"):
        return [decoders.ByteLevel()]
    if kind == "word":
        return [decoders.Replace(Regex(r"\A"), " "), decoders.Fuse()]
    if kind == "wordpiece":
        # Piece by piece: a space where a word begins, and then the sign away from what goes on.
        begins, goes_on = Regex(rf"\A(?!{CONTINUES}.)"), Regex(rf"\A{CONTINUES}(?=.)")
        return [decoders.Replace(begins, " "), decoders.Replace(goes_on, ""), decoders.Fuse()]
    fallback = [decoders.ByteFallback()] if getattr(model.config, "byte_fallback", False) else []
    return [*fallback, decoders.Fuse()]
