"""Convert BERT's tokenizer (Devlin et al. 2019, released code) from and to the files of transformers.

The order of the vocabulary and the text cleaning (`heedful.text.configuration.CleaningConfig`) are kept.
heedful reserves the ids 0 to 6, so all entries are renumbered (`Numbering`). Text that spells a special token
(``[SEP]``) is ordinary text in heedful; only such text is encoded differently by transformers.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, processors

from heedful.errors import RequestError, quoted
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.interop.configuration import refuse
from heedful.interop.names import Numbering
from heedful.interop.tokenizer_files import (
    SETTINGS,
    TOKENIZER,
    added_tokens,
    all_ids,
    check_added,
    check_ids,
    read_library,
    settings_file,
    special_token,
)
from heedful.text.configuration import CleaningConfig, PreprocessingConfig, WordPieceConfig
from heedful.text.specials import SPECIALS
from heedful.text.subwords import CONTINUES, UNKNOWN, as_vocabulary, build, library_data, normalizer, reserved
from heedful.text.subwords import pre_tokenizer as words_of
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping, JsonObject

VOCABULARY = "vocab.txt"
VOCAB_SIZE = 30522
"""The default of ``vocab_size`` in transformers."""


_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes with which transformers uses tokenizer.json unchanged."""

# In the order of export: the key of each special token, heedful's id, and the usual spelling.
_ROLES = {
    "pad_token": (SPECIALS.pad, "[PAD]"),
    "unk_token": (SPECIALS.unknown, "[UNK]"),
    "cls_token": (SPECIALS.classify, "[CLS]"),
    "sep_token": (SPECIALS.separate, "[SEP]"),
    "mask_token": (SPECIALS.mask, "[MASK]"),
}

# Required values of the model; heedful's tokenizers have the same.
_MODEL = {"type": "WordPiece", "continuing_subword_prefix": CONTINUES, "max_input_chars_per_word": 100}


# Defaults of BERT's tokenizer class.
_DEFAULTS = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}

# Options of tokenizer_config.json, and their names in the library's normalizer.
_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}

# The same in heedful's cleaning; case first, because accents depend on it.
_CLEANING = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "chinese",
    "clean_text": "clean",
}


@dataclass(frozen=True)
class _TokenizerFiles:
    """Contents of the files.

    Args:
        path: the file of the vocabulary, for messages.
        ids: ids of all entries, by spelling.
        added: spellings of tokens that are matched in text before it is split into words.
        specials: the spelling of each special token, by heedful's id.
        cleaning: the text cleaning.
    """

    path: Path
    ids: dict[str, int]
    added: frozenset[str]
    specials: dict[int, str]
    cleaning: CleaningConfig


def read_wordpiece(checkpoint: Checkpoint) -> tuple[Tokenizer, Numbering]:
    """Read the tokenizer of a folder, and its numbering.

    Raises:
        RequestError: if heedful does not support the tokenizer, or it does not match the weights.
        DamagedError: if a file is damaged.
    """
    options = checkpoint.settings(SETTINGS)
    options.refuse("do_basic_tokenize", "heedful's WordPiece splits text into words first", (None, True))
    files = _from_library(checkpoint) if checkpoint.has(TOKENIZER) else _from_lines(checkpoint)
    check_added(checkpoint, files.path, files.ids)
    check_ids(files.path, files.ids, checkpoint.config, VOCAB_SIZE)
    if missing := [name for name in files.specials.values() if name not in files.ids]:
        raise RequestError(
            f"{files.path}: the special token {quoted(missing[0])} is missing from the vocabulary"
        )
    special_ids = {our: files.ids[name] for our, name in files.specials.items()}
    if unsupported := sorted(files.added - {*files.specials.values()}):
        token, number = quoted(unsupported[0]), files.ids[unsupported[0]]
        raise RequestError(
            f"{files.path}: the token {token} (id {number}) is matched in text before words are "
            "split; only BERT's five special tokens are supported"
        )
    numbering = Numbering.of(special_ids, len(files.ids))
    names = sorted(files.ids, key=files.ids.__getitem__)
    learned = [names[i] for i in numbering.theirs[len(SPECIALS) :] if i is not None]
    config = WordPieceConfig(
        kind="wordpiece", vocab_size=len(SPECIALS) + len(learned), cleaning=files.cleaning
    )
    model = models.WordPiece(as_vocabulary([*reserved(False), *learned]), unk_token=UNKNOWN)
    return Tokenizer(build(config, library_data(config, model))), numbering


def _specials(checkpoint: Checkpoint) -> dict[int, str]:
    return {ours: special_token(checkpoint, key) or usual for key, (ours, usual) in _ROLES.items()}


def _from_library(checkpoint: Checkpoint) -> _TokenizerFiles:
    """Read tokenizer.json, with which tokenizer_config.json must agree."""
    options = checkpoint.settings(SETTINGS)
    path, library, content = read_library(checkpoint)
    for key, expected in _MODEL.items():
        if (actual := content["model"].get(key)) != expected:
            raise RequestError(f"{path}: model.{key}: {quoted(actual)}: BERT's is {expected!r}")
    split, normaliser = content["pre_tokenizer"] or {}, content["normalizer"] or {}
    if (kind := split.get("type")) != "BertPreTokenizer":
        raise RequestError(f"{path}: pre_tokenizer: {kind!r}: BERT's is 'BertPreTokenizer'")
    if (kind := normaliser.get("type")) not in ("BertNormalizer", None):
        raise RequestError(f"{path}: normalizer: {kind!r}: BERT's is 'BertNormalizer', or there is none")
    ids, specials = all_ids(content), _specials(checkpoint)
    _check_special_tokens(path, library, ids, specials)
    added = frozenset(token["content"] for token in content["added_tokens"])
    name = options.get("tokenizer_class", str) or checkpoint.config.get("tokenizer_class", str)
    _check_cleaning(options, normaliser, is_generic=name in _GENERIC)
    return _TokenizerFiles(path, ids, added, specials, _cleaning(normaliser))


def _from_lines(checkpoint: Checkpoint) -> _TokenizerFiles:
    """Read vocab.txt, BERT's own file: one entry per line."""
    if not checkpoint.has(VOCABULARY):
        raise RequestError(f"{checkpoint.path}: has no tokenizer: neither {TOKENIZER} nor {VOCABULARY}")
    path = checkpoint.path / VOCABULARY
    ids: dict[str, int] = {}
    for index, line in enumerate(checkpoint.text(VOCABULARY).removesuffix("\n").split("\n")):
        if line in ids:
            raise RequestError(
                f"{path}:{index + 1}: duplicate entry {quoted(line)}; it is also in line {ids[line] + 1}"
            )
        ids[line] = index
    added, options = added_tokens(checkpoint), checkpoint.settings(SETTINGS)
    cleaning = _cleaning(_normaliser(options, _DEFAULTS))
    return _TokenizerFiles(path, {**added, **ids}, frozenset(added), _specials(checkpoint), cleaning)


def _normaliser(options: Settings, defaults: JsonMapping) -> JsonObject:
    """Return the normalizer requested by tokenizer_config.json; missing options are ``defaults``."""
    requested = {ours: options.get(key, bool) for key, ours in _OPTIONS.items()}
    return {**defaults, **{key: value for key, value in requested.items() if value is not None}}


def _check_cleaning(options: Settings, normaliser: JsonMapping, *, is_generic: bool) -> None:
    """Refuse options of tokenizer_config.json that contradict the normalizer of tokenizer.json.

    Which of them applies depends on the class that transformers creates: BERT's class, the default, uses the
    options, including their defaults; a generic class ignores them.

    Raises:
        RequestError: names the option.
    """
    requested = _normaliser(options, normaliser if is_generic else _DEFAULTS)
    configured, applied = _cleaning(requested).model_dump(), _cleaning(normaliser).model_dump()
    for key, name in _CLEANING.items():
        if configured[name] != applied[name]:
            default = "" if options.values.get(key) is not None else " (the default)"
            raise options.error(
                key,
                f"{json.dumps(configured[name])}{default}, but the normalizer of {TOKENIZER} has "
                f"{json.dumps(applied[name])}; set both to the value used in training",
            )


def _cleaning(normaliser: JsonMapping) -> CleaningConfig:
    """Return the cleaning of a normalizer; by default, accents are stripped if text is lower-cased."""
    lowercase, accents = normaliser.get("lowercase", False), normaliser.get("strip_accents")
    return CleaningConfig(
        clean=normaliser.get("clean_text", False),
        chinese=normaliser.get("handle_chinese_chars", False),
        strip_accents=lowercase if accents is None else accents,
        lowercase=lowercase,
    )


def _check_special_tokens(
    path: Path, library: Library, ids: Mapping[str, int], specials: Mapping[int, str]
) -> None:
    """Refuse a post-processor that adds other tokens than BERT's; without one, BERT's are assumed."""
    first, last = (ids.get(specials[our]) for our in (SPECIALS.classify, SPECIALS.separate))
    single_encoding, pair_encoding = library.encode(""), library.encode("", "")
    if library.post_processor is not None and (single_encoding.ids, pair_encoding.ids) != (
        [first, last],
        [first, last, last],
    ):
        raise RequestError(
            f"{path}: post_processor: expected [CLS] … [SEP] … [SEP] around a pair of texts, got "
            f"{' '.join(pair_encoding.tokens) or 'none'}"
        )


# Export --------------------------------------------------------------------------------------------------


def tokenizer_obstacles(text: PreprocessingConfig, subwords: Any) -> list[str]:
    """Return the settings of a tokenizer that BERT does not support."""
    reasons = []
    if (kind := subwords.kind) != "wordpiece":
        reasons.append(
            f"tokenizer.subwords.kind={kind}: BERT's tokenizer is a WordPiece; only wordpiece can be exported"
        )
    if not text.keeps_composed_text:
        reasons.append(
            "tokenizer.text: changes of the text are not supported by BERT; use tokenizer.subwords.cleaning "
            "instead"
        )
    return reasons


def write_wordpiece(tokenizer: Tokenizer, longest: int) -> tuple[dict[str, str], Numbering]:
    """Return a tokenizer as files, and its numbering.

    BERT's special tokens come first, then the entries in order. Start and end token are not exported, because
    BERT does not use them.

    Args:
        tokenizer: the tokenizer of the run.
        longest: the maximum number of tokens of the model.

    Raises:
        RequestError: if the tokenizer is of another kind, or changes text before cleaning.
    """
    config = tokenizer.model.config
    refuse(tokenizer_obstacles(tokenizer.preprocessing, config))
    assert isinstance(config, WordPieceConfig)
    vocabulary: dict[str, int] = tokenizer.model.data["model"]["vocab"]
    names = sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIALS) :]
    specials = {key: usual for key, (_, usual) in _ROLES.items()}
    if clashes := sorted({*names} & {*specials.values()}):
        raise RequestError(
            f"the tokenizer has an entry {quoted(clashes[0])}, which is a special token of BERT"
        )
    special_ids = {ours: number for number, (ours, _) in enumerate(_ROLES.values())}
    numbering = Numbering.of(special_ids, len(specials) + len(names))
    content = _library([*specials.values(), *names], config).to_str(pretty=True)
    settings = settings_file(
        longest,
        specials,
        # Required for the segments of pairs.
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        do_lower_case=config.cleaning.lowercase,
        strip_accents=config.cleaning.strip_accents,
        tokenize_chinese_chars=config.cleaning.chinese,
    )
    return {TOKENIZER: content, **settings}, numbering


def _library(names: list[str], config: WordPieceConfig) -> Library:
    """Return a tokenizer of the library, with normalizer, pre-tokenizer, decoder and post-processor."""
    special_tokens = dict(_ROLES.values())
    library = Library(models.WordPiece(as_vocabulary(names), unk_token=special_tokens[SPECIALS.unknown]))
    cleaned = normalizer(config)
    if cleaned is not None:
        library.normalizer = cleaned
    library.pre_tokenizer, library.decoder = words_of(config), decoders.WordPiece()
    first, last = special_tokens[SPECIALS.classify], special_tokens[SPECIALS.separate]
    library.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(name, names.index(name)) for name in (first, last)],
    )
    library.add_special_tokens([*special_tokens.values()])
    return library
