"""Convert GPT-2's tokenizer (Radford et al. 2019, section 2.2) from and to the files of transformers.

Merges and the order of the vocabulary are kept. heedful reserves the ids 0 to 6 (`heedful.text.specials`),
so all entries are renumbered (`Numbering`). The token that ends a text (``<|endoftext|>``) becomes the end
token. Text that spells it is ordinary text in heedful; only such text is encoded differently by transformers.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Library

from heedful.errors import DamagedError, RequestError
from heedful.interop.checkpoint import Checkpoint
from heedful.interop.names import Numbering
from heedful.interop.tokenizer_files import (
    SETTINGS,
    TOKENIZER,
    all_ids,
    check_ids,
    read_library,
    spelling,
    without_first,
)
from heedful.text.configuration import ByteBpeConfig, ByteSplit, TokenizerConfig
from heedful.text.specials import SPECIALS
from heedful.text.subwords import as_vocabulary, build, byte_letters, first_space, library_data, reserved
from heedful.text.subwords import pre_tokenizer as words_of
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping

VOCABULARY, MERGES = "vocab.json", "merges.txt"
END, PAD = "<|endoftext|>", "<|pad|>"
SPLITS: tuple[ByteSplit, ...] = get_args(ByteSplit)

_BYTES = ByteBpeConfig(kind="byte-bpe", merges=1, split="gpt2")

# Special tokens besides the end token for which heedful has an id.
_ROLES = {"pad": SPECIALS.pad, "bos": SPECIALS.start, "unk": SPECIALS.unknown}

# Options that heedful's model does not support, with their allowed values.
_PLAIN: dict[str, tuple[object, ...]] = {
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
    "ignore_merges": (None, False),
}


@dataclass(frozen=True)
class _Read:
    """Contents of the files.

    Args:
        path: the file, for messages.
        ids: ids of all entries, by spelling.
        merges: the merges in order.
        added: spellings of tokens that are matched in text before it is split into words.
        split: how text is split into words.
        around: the special tokens added to an empty text, and to a pair of empty texts.
        behind: the type of the post-processor that adds them.
    """

    path: Path
    ids: dict[str, int]
    merges: list[tuple[str, str]]
    added: frozenset[str]
    split: ByteSplit
    around: tuple[list[int], list[int]] = ([], [])
    behind: str = ""


def read_byte_bpe(checkpoint: Checkpoint, *, whole_texts: bool = False) -> tuple[Tokenizer, Numbering, bool]:
    """Read the tokenizer of a folder, its numbering, and whether it adds end tokens before and after texts.

    Args:
        checkpoint: the folder.
        whole_texts: whether the model has a head for whole texts, so that it may add end tokens.

    Raises:
        RequestError: if heedful does not support the tokenizer, or it does not match the weights.
        DamagedError: if a file is damaged.
    """
    checkpoint.settings(SETTINGS).refuse(
        "add_prefix_space",
        "heedful adds no space before a text; set it to false if the model was trained without, here and in "
        f"{TOKENIZER}",
    )
    read = _from_library(checkpoint) if checkpoint.has(TOKENIZER) else _from_parts(checkpoint)
    if any(read.around) and not whole_texts:
        raise RequestError(
            f"{read.path}: post_processor: {read.behind!r} adds tokens to every text; heedful adds none"
        )
    check_ids(read.path, read.ids, checkpoint.config, 50257)
    names = sorted(read.ids, key=read.ids.__getitem__)
    specials = _specials(read, names, checkpoint)
    numbering, end = Numbering.of(specials, len(names)), specials[SPECIALS.end]
    learned = [names[i] for i in numbering.theirs[len(SPECIALS) :] if i is not None]
    _check_entries(read, learned)
    shape = ByteBpeConfig(kind="byte-bpe", vocab_size=len(SPECIALS) + len(learned), split=read.split)
    try:
        model = models.BPE(as_vocabulary([*reserved(False), *learned]), read.merges)
    except Exception as error:  # the library raises plain exceptions
        raise DamagedError(f"{read.path}: the merges do not fit the vocabulary: {error}") from None
    if any(read.around) and read.around != ([end] * 2, [end] * 3):
        raise RequestError(
            f"{read.path}: post_processor: {read.behind!r} adds tokens to every text; heedful adds an end "
            "token before it and one after each, or none"
        )
    return Tokenizer(build(shape, library_data(shape, model))), numbering, any(read.around)


def _from_library(checkpoint: Checkpoint) -> _Read:
    """Read tokenizer.json."""
    path, library, whole = read_library(checkpoint)
    model = whole["model"]
    if model["type"] != "BPE":
        raise RequestError(f"{path}: model: {model['type']!r}: GPT-2's is 'BPE', of bytes")
    for key, good in _PLAIN.items():
        if model.get(key) not in good:
            raise RequestError(f"{path}: model.{key}: {model[key]!r} is not supported")
    merges = [(left, right) for left, right in model["merges"]]
    added = frozenset(token["content"] for token in whole["added_tokens"])
    around = (library.encode("").ids, library.encode("", "").ids)
    behind = (whole["post_processor"] or {}).get("type", "")
    split = _split(path, whole)
    return _Read(path, all_ids(whole), merges, added, split, around, behind)


def _split(path: Path, whole: JsonMapping) -> ByteSplit:
    """Return how text is split into words."""
    found = _before(whole)
    for split in SPLITS:
        config = ByteBpeConfig(kind="byte-bpe", merges=1, split=split)
        if found == _before(json.loads(_library(models.BPE(), config).to_str())):
            return split
    raise RequestError(
        f"{path}: the normalizer and pre_tokenizer are not supported "
        f"({json.dumps(found)[:200]}); GPT-2 has no normalizer, and the pre_tokenizer ByteLevel without a "
        "prefix space"
    )


def _before(whole: JsonMapping) -> list[object]:
    """Return normalizer and pre-tokenizer, without options that only affect offsets."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if key != "trim_offsets"}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return [plain(whole["normalizer"]), plain(whole["pre_tokenizer"])]


def _from_parts(checkpoint: Checkpoint) -> _Read:
    """Read vocab.json and merges.txt, GPT-2's own files."""
    if not checkpoint.has(VOCABULARY) or not checkpoint.has(MERGES):
        raise RequestError(
            f"{checkpoint.path}: has no tokenizer: neither {TOKENIZER}, nor {VOCABULARY} with {MERGES}"
        )
    ids = checkpoint.json(VOCABULARY)
    path = checkpoint.path / VOCABULARY
    if not all(type(i) is int for i in ids.values()):
        raise DamagedError(f"{path}: all values must be integer ids")
    return _Read(path, ids, _merges(checkpoint), frozenset(), "gpt2")


def _merges(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(checkpoint.text(MERGES).split("\n"), 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        parts = line.rstrip("\r").split(" ")
        if len(parts) != 2:
            raise DamagedError(f"{checkpoint.path / MERGES}:{number}: expected two pieces, got {line!r}")
        merges.append((parts[0], parts[1]))
    return merges


def _specials(read: _Read, names: list[str], checkpoint: Checkpoint) -> dict[int, int]:
    """Return their id of each of heedful's special tokens that they have."""
    config = checkpoint.config

    def configured(key: str, name: str | None) -> int | None:
        """Return the id that the configuration gives, if it is in the vocabulary (not a leftover default)."""
        found = config.get(key, int)
        return found if found is not None and 0 <= found < len(names) else read.ids.get(name or "")

    end = configured("eos_token_id", END)
    if end is None:
        raise config.wrong("eos_token_id", "is not in the vocabulary, and there is no token " + END)
    spelled = {*byte_letters(), *(left + right for left, right in read.merges)}
    if names[end] in spelled:
        raise config.wrong("eos_token_id", f"{end} is {names[end]!r}, which is a piece of ordinary text")
    found = {SPECIALS.end: end}
    for role, ours in _ROLES.items():
        name = spelling(checkpoint.settings(SETTINGS).values.get(f"{role}_token"))
        their = configured(f"{role}_token_id", name)
        if their is not None and names[their] in read.added and their not in found.values():
            found[ours] = their
    return found


def _check_entries(read: _Read, learned: Sequence[str]) -> None:
    """Refuse entries that heedful's model does not support.

    Raises:
        RequestError: names the first of them.
    """
    letters = set(byte_letters())
    for name in learned:
        if name in read.added or not letters.issuperset(name):
            raise RequestError(
                f"{read.path}: the token {name!r} (id {read.ids[name]}) is not spelled in bytes; of special "
                "tokens, only those that end, start and pad a text and the unknown token are imported"
            )
    if missing := sorted(letters - {*learned}):
        raise RequestError(f"{read.path}: {len(missing)} of the 256 bytes have no entry: {missing[0]!r} …")


# Export --------------------------------------------------------------------------------------------------


def write_byte_bpe(
    tokenizer: Tokenizer, *, whole_texts: bool = False, framed: bool = False
) -> tuple[str, dict[str, str], Numbering]:
    """Return a tokenizer as the content of tokenizer.json.

    The entries keep their order; the end token follows them, as in GPT-2, and then, for heads on whole texts,
    a padding token. Other special tokens are not exported, because nothing reads or generates them.

    Args:
        tokenizer: the tokenizer of the run.
        whole_texts: whether the model has a head for whole texts.
        framed: whether end tokens are added before and after these texts.

    Returns:
        The content, the spelling of the special tokens, and the numbering.

    Raises:
        RequestError: if the tokenizer is of another kind, or changes text before encoding.
    """
    config = tokenizer.model.config
    if not tokenizer.preprocessing.is_faithful:
        raise RequestError("tokenizer.text: GPT-2 does not support changes of the text before it is encoded")
    if config.kind not in ("byte-bpe", "byte"):
        raise RequestError(
            f"tokenizer.subwords.kind={config.kind}: not supported by GPT-2, whose tokens are spelled in "
            "bytes; only byte-bpe and byte can be exported"
        )
    data = tokenizer.model.data
    names = byte_letters()
    merges: list[tuple[str, str]] = []
    if config.kind == "byte-bpe":
        vocabulary: dict[str, int] = data["model"]["vocab"]
        names = sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIALS) :]
        merges = [(left, right) for left, right in data["model"]["merges"]]
    # No piece contains a space, so the second name is always free.
    end = END if END not in names else "<|end of text|>"
    pad = PAD if PAD not in names else "<|pads a text|>"
    added = {end: SPECIALS.end} | ({pad: SPECIALS.pad} if whole_texts else {})
    library = _library(models.BPE(as_vocabulary([*names, *added]), merges), config)
    library.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in added])
    numbers = {ours: number for number, ours in enumerate(added.values(), len(names))}
    if framed:
        library.post_processor = processors.TemplateProcessing(
            single="<end> $A <end>",
            pair="<end> $A <end> $B <end>",
            special_tokens=[{"id": "<end>", "ids": [len(names)], "tokens": [end]}],
        )
    spelled = dict.fromkeys(("bos_token", "eos_token", "unk_token"), end)
    spelled |= {"pad_token": pad} if whole_texts else {}
    numbering = Numbering.of(numbers, len(names) + len(added))
    return library.to_str(pretty=True), spelled, numbering


def _library(model: models.Model, config: TokenizerConfig) -> Library:
    """Return the model with the word splitting and spaces of a kind, as a tokenizer of the library."""
    library = Library(model)
    # Single bytes do not depend on the word splitting.
    library.pre_tokenizer = words_of(_BYTES if config.kind == "byte" else config)
    library.decoder = decoders.ByteLevel()
    if space := first_space(config):
        library.normalizer = normalizers.Prepend(space)
        library.decoder = decoders.Sequence([library.decoder, *without_first(space)])
    return library
