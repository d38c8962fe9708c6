"""BERT's tokenizer (Devlin et al. 2019, released code) from and to the files of transformers.

What is kept: the entries of the vocabulary in their order, and what is done to text before it is cut into
words (`heedful.text.configuration.CleaningConfig`). heedful owns the ids 0 to 6, so all entries move:
`Numbering` says where to. Text that spells a special token (``[SEP]``) is ordinary text in heedful; that is
the one text that transformers encodes in another way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, processors

from heedful.errors import DamagedError, RequestError
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.interop.names import Numbering
from heedful.interop.tokenizer_files import (
    TOKENIZER,
    all_ids,
    is_generic,
    read_library,
    refuse_other_ids,
    settings_file,
    settings_of,
    spelling,
)
from heedful.text.configuration import CleaningConfig, WordPieceConfig
from heedful.text.specials import SPECIALS
from heedful.text.subwords import (
    CONTINUES,
    UNKNOWN,
    as_vocabulary,
    build,
    library_data,
    normalizer,
    reserved,
)
from heedful.text.subwords import pre_tokenizer as words_of
from heedful.text.tokenizer import Tokenizer

VOCABULARY = "vocab.txt"

# In the order in which they are written: the key that tells each, our id, and how it is usually spelt.
_ROLES = {
    "pad_token": (SPECIALS.pad, "[PAD]"),
    "unk_token": (SPECIALS.unknown, "[UNK]"),
    "cls_token": (SPECIALS.classify, "[CLS]"),
    "sep_token": (SPECIALS.separate, "[SEP]"),
    "mask_token": (SPECIALS.mask, "[MASK]"),
}

# What the model must be; the library's own numbers, which heedful's tokenizers have too.
_MODEL = {"type": "WordPiece", "continuing_subword_prefix": CONTINUES, "max_input_chars_per_word": 100}


# What BERT's class does to text if its options say nothing else.
_USUAL = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}

# Options of tokenizer_config.json, and what they are called in the library's normaliser.
_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}

# The same in heedful's cleaning, the case first, for accents go with it.
_CLEANING = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "chinese",
    "clean_text": "clean",
}


@dataclass(frozen=True)
class _Read:
    """What the files say.

    Args:
        path: of the vocabulary, for messages.
        ids: of all entries, by their spelling.
        added: the spellings of tokens that are found in text before it is cut into words.
        specials: the spelling of each special token, by our id.
        cleaning: of text.
    """

    path: Path
    ids: dict[str, int]
    added: frozenset[str]
    specials: dict[int, str]
    cleaning: CleaningConfig


def read_wordpiece(checkpoint: Checkpoint, config: Settings) -> tuple[Tokenizer, Numbering]:
    """The tokenizer of a folder, and which of its ids became which.

    Args:
        checkpoint: the folder.
        config: its configuration, which says how many tokens there are.

    Raises:
        RequestError: heedful has no such tokenizer, or it is not the one of the weights.
        DamagedError: a file is damaged.
    """
    told = settings_of(checkpoint)
    told.refuse("do_basic_tokenize", "heedful's WordPiece cuts text into words first", (None, True))
    if checkpoint.has(TOKENIZER):
        read = _from_library(checkpoint, told, as_it_is=is_generic(told, config))
    else:
        read = _from_lines(checkpoint, told)
    refuse_other_ids(read.path, read.ids, config, 30522)
    if missing := [name for name in read.specials.values() if name not in read.ids]:
        raise RequestError(f"{read.path}: has no entry for the special token {missing[0]!r}")
    special = {our: read.ids[name] for our, name in read.specials.items()}
    if strange := sorted(read.added - {*read.specials.values()}):
        raise RequestError(
            f"{read.path}: the token {strange[0]!r} (id {read.ids[strange[0]]}) is found in text before "
            "words are cut; heedful owns its special tokens, and takes over only BERT's five"
        )
    learned = [
        name for name in sorted(read.ids, key=read.ids.__getitem__) if read.ids[name] not in special.values()
    ]
    shape = WordPieceConfig(kind="wordpiece", vocab_size=len(SPECIALS) + len(learned), cleaning=read.cleaning)
    model = models.WordPiece(as_vocabulary([*reserved(False), *learned]), unk_token=UNKNOWN)
    theirs = [*(special.get(our) for our in range(len(SPECIALS))), *(read.ids[name] for name in learned)]
    return Tokenizer(build(shape, library_data(shape, model))), Numbering(tuple(theirs))


def _specials(told: Settings) -> dict[int, str]:
    return {ours: spelling(told.values.get(key)) or usual for key, (ours, usual) in _ROLES.items()}


def _from_library(checkpoint: Checkpoint, told: Settings, *, as_it_is: bool) -> _Read:
    """Of tokenizer.json, with which tokenizer_config.json must agree."""
    path, library, whole = read_library(checkpoint)
    for key, good in _MODEL.items():
        if (found := whole["model"].get(key)) != good:
            raise RequestError(f"{path}: model.{key}: {found!r}: BERT's is {good!r}")
    if (kind := _kind(whole["pre_tokenizer"])) != "BertPreTokenizer":
        raise RequestError(f"{path}: pre_tokenizer: {kind!r}: BERT's is 'BertPreTokenizer'")
    if (kind := _kind(whole["normalizer"])) not in ("BertNormalizer", None):
        raise RequestError(f"{path}: normalizer: {kind!r}: BERT's is 'BertNormalizer', or there is none")
    ids, specials = all_ids(whole), _specials(told)
    _refuse_other_frame(path, library, ids, specials)
    added = frozenset(token["content"] for token in whole["added_tokens"])
    held = whole["normalizer"] or {}
    _refuse_other_cleaning(told, held, as_it_is=as_it_is)
    return _Read(path, ids, added, specials, _cleaning(held))


def _from_lines(checkpoint: Checkpoint, told: Settings) -> _Read:
    """Of vocab.txt, BERT's own file: an entry a line."""
    if not checkpoint.has(VOCABULARY):
        raise RequestError(f"{checkpoint.path}: has no tokenizer: neither {TOKENIZER} nor {VOCABULARY}")
    path = checkpoint.file(VOCABULARY)
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path}: cannot be read: {error}") from None
    ids: dict[str, int] = {}
    for number, line in enumerate(lines):
        if line in ids:
            raise RequestError(f"{path}:{number + 1}: the entry {line!r} stands in line {ids[line] + 1} too")
        ids[line] = number
    return _Read(path, ids, frozenset(), _specials(told), _cleaning(_normaliser(told, _USUAL)))


def _kind(part: Mapping[str, Any] | None) -> str | None:
    return None if part is None else part["type"]


def _normaliser(told: Settings, usual: Mapping[str, Any]) -> dict[str, Any]:
    """The normaliser that the options of tokenizer_config.json ask for; what they leave open is as usual."""
    asked = {ours: told.get(key, bool) for key, ours in _OPTIONS.items()}
    return {**usual, **{key: value for key, value in asked.items() if value is not None}}


def _refuse_other_cleaning(told: Settings, held: Mapping[str, Any], *, as_it_is: bool) -> None:
    """Refuse options of tokenizer_config.json that the normaliser of tokenizer.json contradicts.

    Which of them counts depends on the class that transformers makes: of BERT's, the options do, also by
    their defaults; a generic class ignores them.

    Raises:
        RequestError: naming the option.
    """
    asked = _normaliser(told, held if as_it_is else _USUAL)
    theirs, ours = _cleaning(asked).model_dump(), _cleaning(held).model_dump()
    for key, name in _CLEANING.items():
        if theirs[name] != ours[name]:
            default = "" if told.values.get(key) is not None else " (the default)"
            raise told.wrong(
                key,
                f"{_shown(theirs[name])}{default}, but the normalizer of {TOKENIZER} says "
                f"{_shown(ours[name])}; make both say how the model was trained",
            )


def _shown(value: bool) -> str:
    return "true" if value else "false"


def _cleaning(normaliser: Mapping[str, Any]) -> CleaningConfig:
    """What a normaliser of the library does; accents go with the case where nothing is said of them."""
    lowercase, accents = normaliser.get("lowercase", False), normaliser.get("strip_accents")
    return CleaningConfig(
        clean=normaliser.get("clean_text", False),
        chinese=normaliser.get("handle_chinese_chars", False),
        strip_accents=lowercase if accents is None else accents,
        lowercase=lowercase,
    )


def _refuse_other_frame(
    path: Path, library: Library, ids: Mapping[str, int], specials: Mapping[int, str]
) -> None:
    """Refuse other tokens around a text than heedful puts there; where none are told, they are BERT's."""
    first, last = (ids.get(specials[our]) for our in (SPECIALS.classify, SPECIALS.separate))
    single, both = library.encode(""), library.encode("", "")
    if library.post_processor is not None and (single.ids, both.ids) != ([first, last], [first, last, last]):
        raise RequestError(
            f"{path}: post_processor: puts other tokens around texts than BERT's: "
            f"{' '.join(both.tokens) or 'none'}, and not [CLS] … [SEP] … [SEP]"
        )


# Writing -------------------------------------------------------------------------------------------------


def write_wordpiece(tokenizer: Tokenizer, longest: int) -> tuple[dict[str, str], Numbering]:
    """A tokenizer as files, and which of their ids ours have.

    BERT's special tokens come first, then the entries in their order. Start and end token have no place
    there: BERT neither reads nor writes them.

    Args:
        tokenizer: of the run.
        longest: tokens that the model can read.

    Raises:
        RequestError: the tokenizer is of another kind, or changes text before it is cleaned.
    """
    config = tokenizer.model.config
    if config.kind != "wordpiece":
        raise RequestError(
            f"tokenizer.subwords.kind={config.kind}: BERT's tokenizer is a WordPiece; "
            "only tokenizers of the kind wordpiece can be written"
        )
    if not tokenizer.preprocessing.build().is_faithful:
        raise RequestError(
            "tokenizer.text: text that is changed there has no form in BERT, which cleans text in its own "
            "way: tokenizer.subwords.cleaning"
        )
    vocabulary: dict[str, int] = tokenizer.model.data["model"]["vocab"]
    names = sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIALS) :]
    specials = {key: usual for key, (_, usual) in _ROLES.items()}
    if taken := sorted({*names} & {*specials.values()}):
        raise RequestError(f"the tokenizer has an entry {taken[0]!r}, which is a special token of BERT")
    theirs: list[int | None] = [None] * len(SPECIALS)
    for number, (ours, _) in enumerate(_ROLES.values()):
        theirs[ours] = number
    numbering = Numbering((*theirs, *range(len(specials), len(specials) + len(names))))
    content = _library([*specials.values(), *names], config).to_str(pretty=True)
    settings = settings_file(
        longest,
        specials,
        # Told, or pairs come without their segments.
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        do_lower_case=config.cleaning.lowercase,
        strip_accents=config.cleaning.strip_accents,
        tokenize_chinese_chars=config.cleaning.chinese,
    )
    return {TOKENIZER: content, **settings}, numbering


def _library(names: list[str], config: WordPieceConfig) -> Library:
    """The model with what stands before and behind it."""
    spelled = dict(_ROLES.values())
    library = Library(models.WordPiece(as_vocabulary(names), unk_token=spelled[SPECIALS.unknown]))
    cleaned = normalizer(config)
    if cleaned is not None:
        library.normalizer = cleaned
    library.pre_tokenizer, library.decoder = words_of(config), decoders.WordPiece()
    first, last = spelled[SPECIALS.classify], spelled[SPECIALS.separate]
    library.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(name, names.index(name)) for name in (first, last)],
    )
    library.add_special_tokens([*spelled.values()])
    return library
