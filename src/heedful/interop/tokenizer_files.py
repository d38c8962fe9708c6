"""Tokenizer files of the transformers library, and the export of heedful's tokenizers with the same ids.

`write_same_ids` converts:

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
from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from heedful.errors import DamagedError, RequestError, quoted
from heedful.interop.checkpoint import ENCODING, Checkpoint, Settings, indented
from heedful.interop.names import Numbering
from heedful.text.configuration import PreprocessingConfig
from heedful.text.normalisation import DOTTED_I
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
from heedful.typing import JsonMapping, JsonObject

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
SPECIAL_TOKENS, ADDED_TOKENS = "special_tokens_map.json", "added_tokens.json"

# A sigma is final after a cased letter and not before one (Unicode 3.13, Final_Sigma). Python's lower()
# implements this rule; the library's, which handles single letters, does not.
_LETTER = r"[\p{Cased}&&\P{Case_Ignorable}]"
_LAST_SIGMA = rf"{_LETTER}\p{{Case_Ignorable}}*\KΣ(?!\p{{Case_Ignorable}}*{_LETTER})"


def read_library(checkpoint: Checkpoint) -> tuple[Path, Library, JsonObject]:
    """Read tokenizer.json; return its path, the tokenizer and its content.

    Truncation and padding are disabled, since transformers applies them only on request.

    Raises:
        DamagedError: it is not a tokenizer.
    """
    path = checkpoint.file(TOKENIZER)
    try:
        library = Library.from_str(path.read_text(encoding=ENCODING))
    except Exception as error:  # the library raises plain exceptions
        raise DamagedError(f"{path}: cannot be read as a tokenizer: {error}") from None
    library.no_truncation()
    library.no_padding()
    content = json.loads(library.to_str())
    if missing := sorted(_undefined(content["post_processor"])):
        raise DamagedError(f"{path}: post_processor: special_tokens has no entry {quoted(missing[0])}")
    return path, library, content


def _undefined(post_processor: JsonMapping | None) -> set[str]:
    """Return the special tokens that templates use but do not define; the library would panic on them."""
    if post_processor is None:
        return set()
    if post_processor["type"] == "Sequence":
        return {name for step in post_processor["processors"] for name in _undefined(step)}
    if post_processor["type"] != "TemplateProcessing":
        return set()
    pieces = (
        piece.get("SpecialToken") for template in ("single", "pair") for piece in post_processor[template]
    )
    return {piece["id"] for piece in pieces if piece} - {*post_processor["special_tokens"]}


PADDED_TO, MAX_PADDING = 8, 1024
"""Vocabularies are padded to a multiple of this number, with fewer rows than that."""


def all_ids(content: JsonMapping) -> dict[str, int]:
    """Return the ids of all tokens of a tokenizer.json by spelling, including added tokens."""
    return {
        **content["model"]["vocab"],
        **{token["content"]: token["id"] for token in content["added_tokens"]},
    }


def spelling(value: object) -> str | None:
    """Return the spelling of a special token, given in tokenizer_config.json as string or object."""
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def special_token(checkpoint: Checkpoint, key: str) -> str | None:
    """Return the spelling of a special token (``eos_token``) in either file; None: neither has it.

    Raises:
        RequestError: the files differ.
    """
    spellings = {}
    for name in (SETTINGS, SPECIAL_TOKENS):
        settings = checkpoint.settings(name)
        settings.keys_read.add(key)
        if (token := spelling(settings.values.get(key))) is not None:
            spellings[name] = token
    if len({*spellings.values()}) > 1:
        raise checkpoint.settings(SPECIAL_TOKENS).error(
            key, f"{quoted(spellings[SPECIAL_TOKENS])}, but {SETTINGS} has {quoted(spellings[SETTINGS])}; "
            "set both to the token that the model was trained with"
        )  # fmt: skip
    return next(iter(spellings.values()), None)


def added_tokens(checkpoint: Checkpoint) -> dict[str, int]:
    """Return the ids of the tokens that a folder adds to a vocabulary, by spelling.

    Raises:
        RequestError: an id is not a number.
    """
    settings, added = checkpoint.settings(SETTINGS), checkpoint.settings(ADDED_TOKENS)
    added.keys_read.update(added.values)
    tokens = {name: added.get(name, int) for name in added.values}
    for number, token in settings.get("added_tokens_decoder", dict, {}).items():
        name = spelling(token)
        if name is None or not str(number).isdecimal():
            raise settings.error(
                "added_tokens_decoder", f"expected tokens by their ids, got {quoted(number)}"
            )
        tokens[name] = int(number)
    return tokens


def check_added(checkpoint: Checkpoint, path: Path, ids: Mapping[str, int]) -> None:
    """Check that the tokens which a folder adds are in the vocabulary that was read.

    Raises:
        RequestError: a token is missing or has another id.
    """
    for name, number in added_tokens(checkpoint).items():
        if ids.get(name) != number:
            raise RequestError(
                f"{checkpoint.path / SETTINGS}: the added token {quoted(name)} has the id {number}, but in "
                f"{path.name} {f'{ids[name]}' if name in ids else 'it is missing'}; save the tokenizer again "
                "with `save_pretrained`"
            )


def length_notes(checkpoint: Checkpoint, longest: int) -> list[str]:
    """Return a note if transformers truncates texts earlier than heedful when asked to truncate."""
    settings = checkpoint.settings(SETTINGS)
    limit = settings.get("model_max_length", (int, float), longest)
    if limit >= longest:
        return []
    return [
        f"{settings.source}: model_max_length={limit} is not read: heedful reads {longest} tokens, as "
        "transformers does unless it is asked to truncate"
    ]


def check_ids(path: Path, ids: Mapping[str, int], config: Settings, default: int) -> None:
    """Check that the ids match the rows of the weights, apart from padding (see `unused_rows`).

    Raises:
        RequestError: the ids have gaps, or their number is not vocab_size, and the difference is no padding.
    """
    if sorted(ids.values()) != list(range(len(ids))):
        raise RequestError(f"{path}: the ids have gaps: they must run from 0 to {len(ids) - 1}")
    n = config.positive_int("vocab_size", default)
    is_padded = n % PADDED_TO == 0 and 0 < n - len(ids) < MAX_PADDING
    if len(ids) != n and not is_padded:
        raise config.error(
            "vocab_size", f"{n}, and {path.name} has {len(ids):,} entries: they belong to "
            "different models, or the weights have rows that no token uses"
        )  # fmt: skip


def unused_rows(numbering: Numbering, vocab_size: int) -> list[str]:
    """Return a note on rows of the weights that no token uses, if there are any; they are not imported."""
    n_unused = vocab_size - len(numbering.ours)
    if not n_unused:
        return []
    return [
        f"vocab_size is padded: the last {n_unused} rows belong to no token and are dropped; logits of "
        "tokens are the same, and their probabilities sum to 1"
    ]


def settings_file(longest: int, special_tokens: Mapping[str, str], **options: object) -> dict[str, str]:
    """Return tokenizer_config.json for a tokenizer.json.

    Args:
        longest: maximum number of tokens of the model.
        special_tokens: special tokens by key (``eos_token``).
        options: further keys of this tokenizer.

    Returns:
        The content by file name.
    """
    content = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        # Required: older versions add token_type_ids otherwise, which GPT-2 would add to its embeddings.
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **special_tokens,
        **options,
    }
    return {SETTINGS: indented(content)}


def strip_prefix_decoders(space: str) -> list[decoders.Decoder]:
    """Return the last decoder step, which removes the space prepended to every text, if any."""
    # A regular expression, to remove it once and only at the beginning.
    return [decoders.Replace(Regex(rf"\A{space}"), "")] if space else []


# Export with the same ids -----------------------------------------------------------------------------


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
    text_normalizer, space = library.normalizer, first_space(model.config)
    library.normalizer = normalizers.Sequence(
        [
            *_normalizers(preprocessing),
            *([text_normalizer] if text_normalizer else []),
            *([normalizers.Prepend(space)] if space else []),
        ]
    )
    library.decoder = decoders.Sequence([*_decoders(model), *strip_prefix_decoders(model.space)])
    end = SPECIALS.names[SPECIALS.end]
    library.post_processor = processors.TemplateProcessing(
        single=f"$A {end}",
        pair=f"$A $B {end}",
        special_tokens=[{"id": end, "ids": [SPECIALS.end], "tokens": [PLACEHOLDERS[SPECIALS.end]]}],
    )
    library.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in PLACEHOLDERS])
    keys = ("pad_token", "bos_token", "eos_token", "unk_token")
    ids = (SPECIALS.pad, SPECIALS.start, SPECIALS.end, SPECIALS.unknown)
    special_tokens = {key: PLACEHOLDERS[i] for key, i in zip(keys, ids, strict=True)}
    settings = settings_file(longest, special_tokens, split_special_tokens=True)
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
        bpe = models.BPE(as_vocabulary(names), [], unk_token=unknown, byte_fallback=config.byte_fallback)
        return Library(bpe)
    return Library.from_str(json.dumps(model.data))


def _normalizers(config: PreprocessingConfig) -> list[normalizers.Normalizer]:
    """Return the normalizers of the text preprocessing (`heedful.text.configuration.PreprocessingConfig`)."""
    forms: dict[str, list[normalizers.Normalizer]] = {
        "none": [],
        "nfc": [normalizers.NFC()],
        "nfkc": [normalizers.NFKC()],
    }
    form = forms[config.normalization]
    if not config.lowercase:
        return form
    replacements = ((Regex(_LAST_SIGMA), "ς"), *(() if config.lowercase is True else DOTTED_I))
    steps = [normalizers.Replace(*replacement) for replacement in replacements]
    return [*form, *steps, normalizers.Lowercase(), *form]


def _decoders(model: SubwordModel) -> list[decoders.Decoder]:
    """Return the decoders that join pieces, with a space before the first word if the kind has one."""
    kind = model.config.kind
    if kind in ("byte", "byte-bpe"):
        return [decoders.ByteLevel()]
    if kind == "word":
        return [decoders.Replace(Regex(r"\A"), " "), decoders.Fuse()]
    if kind == "wordpiece":
        # For each piece: add a space before a word, and remove the sign of a continuation.
        word_start, continuation = Regex(rf"\A(?!{CONTINUES}.)"), Regex(rf"\A{CONTINUES}(?=.)")
        return [decoders.Replace(word_start, " "), decoders.Replace(continuation, ""), decoders.Fuse()]
    fallback = [decoders.ByteFallback()] if getattr(model.config, "byte_fallback", False) else []
    return [*fallback, decoders.Fuse()]
