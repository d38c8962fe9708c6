"""GPT-2's tokenizer (Radford et al. 2019, section 2.2) from and to the files of transformers.

What is kept: the merges, and the entries of the vocabulary in their order. heedful owns the ids 0 to 6
(`heedful.text.specials`), so all entries move: `Numbering` says where to. The token that ends a text
(``<|endoftext|>``) becomes the end token. Text that spells it is ordinary text in heedful; that is the one
text that transformers encodes in another way.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Library

from heedful.errors import DamagedError, RequestError
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.interop.names import Numbering
from heedful.interop.tokenizer_files import (
    TOKENIZER,
    all_ids,
    once_taken_away,
    read_library,
    refuse_other_ids,
    settings_of,
    spelling,
)
from heedful.text.configuration import ByteBpeConfig, ByteSplit
from heedful.text.specials import SPECIALS
from heedful.text.subwords import as_vocabulary, build, byte_letters, first_space, library_data, reserved
from heedful.text.subwords import pre_tokenizer as words_of
from heedful.text.tokenizer import Tokenizer

VOCABULARY, MERGES = "vocab.json", "merges.txt"
END, PAD = "<|endoftext|>", "<|pad|>"
SPLITS: tuple[ByteSplit, ...] = get_args(ByteSplit)

_BYTES = ByteBpeConfig(kind="byte-bpe", merges=1, split="gpt2")

# The special tokens besides the end's that heedful has a place for.
_ROLES = {"pad": SPECIALS.pad, "bos": SPECIALS.start, "unk": SPECIALS.unknown}

# What must not be set, for heedful's model of the kind has it not.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
    "ignore_merges": (None, False),
}


@dataclass(frozen=True)
class _Read:
    """What the files say.

    Args:
        path: of the file, for messages.
        ids: of all entries, by their spelling.
        merges: in their order.
        added: the spellings of tokens that are found in text before it is cut into words.
        roles: the spellings of those that pad, begin or stand for what is unknown, where they are told.
        split: where words end.
        around: the tokens that stand around an empty text, and around two.
        behind: what puts them there.
    """

    path: Path
    ids: dict[str, int]
    merges: list[tuple[str, str]]
    added: frozenset[str]
    roles: dict[str, str]
    split: ByteSplit
    around: tuple[list[int], list[int]] = ([], [])
    behind: str = ""


def read_byte_bpe(
    checkpoint: Checkpoint, config: Settings, *, answers: bool = False
) -> tuple[Tokenizer, Numbering, bool]:
    """The tokenizer of a folder, which of its ids became which, and whether end tokens stand around texts.

    Args:
        checkpoint: the folder.
        config: its configuration, which says how many tokens there are and which ends a text.
        answers: whether the model answers to whole texts, so that end tokens may stand around them.

    Raises:
        RequestError: heedful has no such tokenizer, or it is not the one of the weights.
        DamagedError: a file is damaged.
    """
    settings_of(checkpoint).refuse(
        "add_prefix_space",
        "heedful puts no space before texts; set it to false if the model was trained so, here and in "
        f"{TOKENIZER}",
    )
    read = _from_library(checkpoint) if checkpoint.has(TOKENIZER) else _from_parts(checkpoint)
    if any(read.around) and not answers:
        raise RequestError(
            f"{read.path}: post_processor: {read.behind!r} adds tokens to every text; heedful adds none"
        )
    refuse_other_ids(read.path, read.ids, config, 50257)
    names = sorted(read.ids, key=read.ids.__getitem__)
    specials = _specials(read, names, config)
    learned = [name for i, name in enumerate(names) if i not in specials.values()]
    _refuse_strange(read, learned)
    shape = ByteBpeConfig(kind="byte-bpe", vocab_size=len(SPECIALS) + len(learned), split=read.split)
    try:
        model = models.BPE(as_vocabulary([*reserved(False), *learned]), read.merges)
    except Exception as error:  # the library raises plain exceptions
        raise DamagedError(f"{read.path}: the merges do not fit the vocabulary: {error}") from None
    theirs = [*(specials.get(our) for our in range(len(SPECIALS))), *(read.ids[name] for name in learned)]
    framed = _is_framed(read, specials[SPECIALS.end])
    return Tokenizer(build(shape, library_data(shape, model))), Numbering(tuple(theirs)), framed


def _is_framed(read: _Read, end: int) -> bool:
    """Whether an end token stands before a text, and one behind it, and of a pair behind the second too.

    Raises:
        RequestError: others stand there.
    """
    if any(read.around) and read.around != ([end] * 2, [end] * 3):
        raise RequestError(
            f"{read.path}: post_processor: {read.behind!r} adds tokens to every text; heedful adds an end "
            "token before it and one behind each, or none"
        )
    return any(read.around)


def _from_library(checkpoint: Checkpoint) -> _Read:
    """Of tokenizer.json."""
    path, library, whole = read_library(checkpoint)
    model = whole["model"]
    if model["type"] != "BPE":
        raise RequestError(f"{path}: model: {model['type']!r}: GPT-2's is 'BPE', of bytes")
    for key, good in _PLAIN.items():
        if model.get(key) not in good:
            raise RequestError(f"{path}: model.{key}: {model[key]!r} is not known to heedful")
    merges = [(left, right) for left, right in model["merges"]]
    added = frozenset(token["content"] for token in whole["added_tokens"])
    around = (library.encode("").ids, library.encode("", "").ids)
    behind = (whole["post_processor"] or {}).get("type", "")
    split = _split(path, whole)
    return _Read(path, all_ids(whole), merges, added, _roles(checkpoint), split, around, behind)


def _roles(checkpoint: Checkpoint) -> dict[str, str]:
    """What tokenizer_config.json says of special tokens, where it is there."""
    told = settings_of(checkpoint).values
    spelled = {role: spelling(told.get(f"{role}_token")) for role in _ROLES}
    return {role: each for role, each in spelled.items() if each is not None}


def _split(path: Path, whole: Mapping[str, Any]) -> ByteSplit:
    """Which of heedful's ways to cut text into words it is."""
    found = _before(whole)
    for split in SPLITS:
        config = ByteBpeConfig(kind="byte-bpe", merges=1, split=split)
        if found == _before(json.loads(_library(models.BPE(), config).to_str())):
            return split
    raise RequestError(
        f"{path}: heedful cannot cut text into words as its normalizer and pre_tokenizer do "
        f"({json.dumps(found)[:200]}); GPT-2 has no normalizer, and the pre_tokenizer ByteLevel without a "
        "prefix space"
    )


def _before(whole: Mapping[str, Any]) -> list[Any]:
    """What is done to text before the model sees it, without what only says where tokens were found."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if key != "trim_offsets"}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return [plain(whole["normalizer"]), plain(whole["pre_tokenizer"])]


def _from_parts(checkpoint: Checkpoint) -> _Read:
    """Of vocab.json and merges.txt, GPT-2's own files."""
    if not checkpoint.has(VOCABULARY) or not checkpoint.has(MERGES):
        raise RequestError(
            f"{checkpoint.path}: has no tokenizer: neither {TOKENIZER}, nor {VOCABULARY} with {MERGES}"
        )
    ids = checkpoint.json(VOCABULARY)
    path = checkpoint.path / VOCABULARY
    if not all(type(i) is int for i in ids.values()):
        raise DamagedError(f"{path}: holds something else than ids")
    return _Read(path, ids, _merges(checkpoint.file(MERGES)), frozenset(), {}, "gpt2")


def _merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path}: cannot be read: {error}") from None
    merges = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        parts = line.rstrip("\r").split(" ")
        if len(parts) != 2:
            raise DamagedError(f"{path}:{number}: expected two pieces, found {line!r}")
        merges.append((parts[0], parts[1]))
    return merges


def _specials(read: _Read, names: list[str], config: Settings) -> dict[int, int]:
    """Their ids of the tokens that heedful has an own id for, by that."""
    end = _numbered(config, "eos_token_id", len(names))
    end = read.ids.get(END) if end is None else end
    if end is None:
        raise config.wrong("eos_token_id", "names no token of the vocabulary, and none is " + END)
    spelled = {*byte_letters(), *(left + right for left, right in read.merges)}
    if names[end] in spelled:
        raise config.wrong("eos_token_id", f"{end} is {names[end]!r}, which is a piece of ordinary text")
    found = {SPECIALS.end: end}
    for role, ours in _ROLES.items():
        their = _numbered(config, f"{role}_token_id", len(names))
        their = read.ids.get(read.roles.get(role, "")) if their is None else their
        if their is not None and names[their] in read.added and their not in found.values():
            found[ours] = their
    return found


def _numbered(config: Settings, key: str, n: int) -> int | None:
    """The token that a configuration names; what lies outside was left of a larger model's defaults."""
    found = config.get(key, int)
    return found if found is not None and 0 <= found < n else None


def _refuse_strange(read: _Read, learned: Iterable[str]) -> None:
    """Refuse entries that heedful's model of the kind cannot have.

    Raises:
        RequestError: names the first one.
    """
    learned = list(learned)
    letters = set(byte_letters())
    for name in learned:
        if name in read.added or not letters.issuperset(name):
            raise RequestError(
                f"{read.path}: the token {name!r} (id {read.ids[name]}) is not spelt in bytes; heedful owns "
                "its special tokens, and takes over only those that end, begin and fill"
            )
    if missing := sorted(letters - {*learned}):
        raise RequestError(f"{read.path}: {len(missing)} of the 256 bytes have no entry: {missing[0]!r} …")


# Writing -------------------------------------------------------------------------------------------------


def write_byte_bpe(
    tokenizer: Tokenizer, *, answers: bool = False, framed: bool = False
) -> tuple[str, dict[str, str], Numbering]:
    """A tokenizer as the content of tokenizer.json.

    The entries come in their order, and after them the end token, as GPT-2 has it, and where texts are
    answered one that pads. The other specials have no place there: nothing reads or writes them.

    Args:
        tokenizer: of the run.
        answers: whether the model answers to whole texts.
        framed: whether end tokens stand around these.

    Returns:
        The content, how the special tokens are spelt, and which of their ids ours have.

    Raises:
        RequestError: the tokenizer is of another kind, or changes text before it is encoded.
    """
    config = tokenizer.model.config
    if not tokenizer.preprocessing.build().is_faithful:
        raise RequestError("tokenizer.text: text that is changed before it is encoded has no form in GPT-2")
    if config.kind not in ("byte-bpe", "byte"):
        raise RequestError(
            f"tokenizer.subwords.kind={config.kind}: GPT-2's tokens are spelt in bytes; "
            "only tokenizers of the kinds byte-bpe and byte can be written"
        )
    data = tokenizer.model.data
    names = byte_letters()
    merges: list[tuple[str, str]] = []
    if config.kind == "byte-bpe":
        vocabulary: dict[str, int] = data["model"]["vocab"]
        names = sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIALS) :]
        merges = [(left, right) for left, right in data["model"]["merges"]]
    # No piece has a space in it: the second name is always free.
    end = END if END not in names else "<|end of text|>"
    pad = PAD if PAD not in names else "<|pads a text|>"
    added = {end: SPECIALS.end} | ({pad: SPECIALS.pad} if answers else {})
    library = _library(models.BPE(as_vocabulary([*names, *added]), merges), config)
    library.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in added])
    theirs: list[int | None] = [None] * len(SPECIALS) + [*range(len(names))]
    for number, ours in enumerate(added.values(), len(names)):
        theirs[ours] = number
    if framed:
        library.post_processor = processors.TemplateProcessing(
            single="<end> $A <end>",
            pair="<end> $A <end> $B <end>",
            special_tokens=[{"id": "<end>", "ids": [len(names)], "tokens": [end]}],
        )
    spelled = dict.fromkeys(("bos_token", "eos_token", "unk_token"), end)
    return (
        library.to_str(pretty=True),
        spelled | ({"pad_token": pad} if answers else {}),
        Numbering(tuple(theirs)),
    )


def _library(model: models.Model, config: Any) -> Library:
    """The model with the words and spaces of a kind, as the library can be told of them."""
    library = Library(model)
    # Single bytes are the same however words are cut.
    library.pre_tokenizer = words_of(_BYTES if config.kind == "byte" else config)
    library.decoder = decoders.ByteLevel()
    if space := first_space(config):
        library.normalizer = normalizers.Prepend(space)
        library.decoder = decoders.Sequence([library.decoder, *once_taken_away(space)])
    return library
