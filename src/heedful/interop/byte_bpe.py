"""Convert GPT-2's tokenizer (Radford et al. 2019, section 2.2) from and to the files of transformers.

Merges and the order of the vocabulary are kept. heedful reserves the ids 0 to 6 (`heedful.text.specials`),
so all entries are renumbered (`Numbering`). The token that ends a text (``<|endoftext|>``) becomes the end
token. Text that spells it is ordinary text in heedful; only such text is encoded differently by transformers.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Library

from heedful.errors import DamagedError, RequestError, quoted
from heedful.interop.checkpoint import Checkpoint
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
    special_token,
    strip_prefix_decoders,
)
from heedful.text.configuration import ByteBpeConfig, ByteSplit, PreprocessingConfig, TokenizerConfig
from heedful.text.specials import SPECIALS
from heedful.text.subwords import as_vocabulary, build, byte_letters, first_space, library_data, reserved
from heedful.text.subwords import pre_tokenizer as words_of
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping

VOCABULARY, MERGES = "vocab.json", "merges.txt"
VOCAB_SIZE = 50257
"""The default of ``vocab_size`` in transformers."""

END, PAD = "<|endoftext|>", "<|pad|>"
SPLITS: tuple[ByteSplit, ...] = get_args(ByteSplit)

_BYTES = ByteBpeConfig(kind="byte-bpe", merges=1, split="gpt2")

# Special tokens besides the end token for which heedful has an id.
_ROLES = {
    "pad": SPECIALS.pad,
    "bos": SPECIALS.start,
    "unk": SPECIALS.unknown,
    "cls": SPECIALS.classify,
    "sep": SPECIALS.separate,
    "mask": SPECIALS.mask,
}

# Options that heedful's model does not support, with their allowed values.
_REQUIRED: dict[str, tuple[object, ...]] = {
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
    "ignore_merges": (None, False),
}


@dataclass(frozen=True)
class _TokenizerFiles:
    """Contents of the files.

    Args:
        path: the file, for messages.
        ids: ids of all entries, by spelling.
        merges: the merges in order.
        added: spellings of tokens that are matched in text before it is split into words.
        split: how text is split into words.
        template_ids: the special tokens added to an empty text, and to a pair of empty texts.
        post_processor: the type of the post-processor that adds them.
    """

    path: Path
    ids: dict[str, int]
    merges: list[tuple[str, str]]
    added: frozenset[str]
    split: ByteSplit
    template_ids: tuple[list[int], list[int]] = ([], [])
    post_processor: str = ""


def read_byte_bpe(checkpoint: Checkpoint, *, whole_texts: bool = False) -> tuple[Tokenizer, Numbering, bool]:
    """Read the tokenizer of a folder, its numbering, and whether it adds end tokens before and after texts.

    Args:
        checkpoint: the folder.
        whole_texts: whether the model has a head for whole texts, so that it may add end tokens.

    Raises:
        RequestError: if heedful does not support the tokenizer, or it does not match the weights.
        DamagedError: if a file is damaged.
    """
    for key in () if whole_texts and checkpoint.has(TOKENIZER) else ("add_bos_token", "add_eos_token"):
        checkpoint.settings(SETTINGS).refuse(
            key, "heedful adds no token to a text; set it to false if the model was trained without"
        )
    checkpoint.settings(SETTINGS).refuse(
        "add_prefix_space",
        "heedful adds no space before a text; set it to false if the model was trained without, here and in "
        f"{TOKENIZER}",
    )
    files = _from_library(checkpoint) if checkpoint.has(TOKENIZER) else _from_parts(checkpoint)
    if any(files.template_ids) and not whole_texts:
        raise RequestError(
            f"{files.path}: post_processor: {quoted(files.post_processor)} adds tokens to every text; "
            "heedful adds none"
        )
    check_added(checkpoint, files.path, files.ids)
    check_ids(files.path, files.ids, checkpoint.config, VOCAB_SIZE)
    names = sorted(files.ids, key=files.ids.__getitem__)
    specials = _specials(files, names, checkpoint)
    numbering, end = Numbering.of(specials, len(names)), specials[SPECIALS.end]
    learned = [names[i] for i in numbering.theirs[len(SPECIALS) :] if i is not None]
    _check_entries(files, learned)
    config = ByteBpeConfig(kind="byte-bpe", vocab_size=len(SPECIALS) + len(learned), split=files.split)
    try:
        model = models.BPE(as_vocabulary([*reserved(False), *learned]), files.merges)
    except Exception as error:  # the library raises plain exceptions
        raise DamagedError(f"{files.path}: the merges do not fit the vocabulary: {error}") from None
    if any(files.template_ids) and files.template_ids != ([end] * 2, [end] * 3):
        raise RequestError(
            f"{files.path}: post_processor: {quoted(files.post_processor)} adds tokens to every text; "
            "heedful adds an end token before it and one after each, or none"
        )
    return Tokenizer(build(config, library_data(config, model))), numbering, any(files.template_ids)


def _from_library(checkpoint: Checkpoint) -> _TokenizerFiles:
    """Read tokenizer.json."""
    path, library, content = read_library(checkpoint)
    model = content["model"]
    if model["type"] != "BPE":
        raise RequestError(f"{path}: model: {model['type']!r}: GPT-2's is 'BPE', of bytes")
    for key, allowed in _REQUIRED.items():
        if model.get(key) not in allowed:
            raise RequestError(f"{path}: model.{key}: {quoted(model[key])} is not supported")
    merges = [(left, right) for left, right in model["merges"]]
    added = frozenset(token["content"] for token in content["added_tokens"])
    template_ids = (library.encode("").ids, library.encode("", "").ids)
    post_processor = (content["post_processor"] or {}).get("type", "")
    split = _split(path, content)
    return _TokenizerFiles(path, all_ids(content), merges, added, split, template_ids, post_processor)


def _split(path: Path, content: JsonMapping) -> ByteSplit:
    """Return how text is split into words."""
    steps = _text_steps(content)
    for split in SPLITS:
        config = ByteBpeConfig(kind="byte-bpe", merges=1, split=split)
        if steps == _text_steps(json.loads(_library(models.BPE(), config).to_str())):
            return split
    raise RequestError(
        f"{path}: the normalizer and pre_tokenizer are not supported "
        f"({json.dumps(steps)[:200]}); GPT-2 has no normalizer, and the pre_tokenizer ByteLevel without a "
        "prefix space"
    )


def _text_steps(content: JsonMapping) -> list[object]:
    """Return normalizer and pre-tokenizer, without options that only affect offsets."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items() if key != "trim_offsets"}
        return [plain(entry) for entry in value] if isinstance(value, list) else value

    return [plain(content["normalizer"]), plain(content["pre_tokenizer"])]


def _from_parts(checkpoint: Checkpoint) -> _TokenizerFiles:
    """Read vocab.json and merges.txt, GPT-2's own files."""
    if not checkpoint.has(VOCABULARY) or not checkpoint.has(MERGES):
        raise RequestError(
            f"{checkpoint.path}: has no tokenizer: neither {TOKENIZER}, nor {VOCABULARY} with {MERGES}"
        )
    ids = checkpoint.json(VOCABULARY)
    path = checkpoint.path / VOCABULARY
    if not all(type(i) is int for i in ids.values()):
        raise DamagedError(f"{path}: all values must be integer ids")
    added = added_tokens(checkpoint)
    return _TokenizerFiles(path, {**added, **ids}, _merges(checkpoint), frozenset(added), "gpt2")


def _merges(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    merges = []
    for line_number, line in enumerate(checkpoint.text(MERGES).split("\n"), 1):
        if not line.strip() or (line_number == 1 and line.startswith("#version")):
            continue
        pieces = line.rstrip("\r").split(" ")
        if len(pieces) != 2:
            raise DamagedError(
                f"{checkpoint.path / MERGES}:{line_number}: expected two pieces, got {quoted(line)}"
            )
        merges.append((pieces[0], pieces[1]))
    return merges


def _specials(files: _TokenizerFiles, names: list[str], checkpoint: Checkpoint) -> dict[int, int]:
    """Return their id of each of heedful's special tokens that they have."""
    config = checkpoint.config

    def configured_id(key: str, name: str | None) -> int | None:
        """Return the id that the configuration gives, if it is in the vocabulary (not a leftover default)."""
        token_id = config.get(key, int)
        return token_id if token_id is not None and 0 <= token_id < len(names) else files.ids.get(name or "")

    end = configured_id("eos_token_id", END)
    if end is None:
        raise config.error("eos_token_id", "is not in the vocabulary, and there is no token " + END)
    text_pieces = {*byte_letters(), *(left + right for left, right in files.merges)}
    if names[end] in text_pieces:
        raise config.error(
            "eos_token_id", f"{end} is {quoted(names[end])}, which is a piece of ordinary text"
        )
    ids_by_special = {SPECIALS.end: end}
    special_token(checkpoint, "eos_token")
    for role, ours in _ROLES.items():
        spelled = files.ids.get(special_token(checkpoint, f"{role}_token") or "")
        # The configuration may have the default, which is the end token, for a start token of its own.
        for their in (configured_id(f"{role}_token_id", None), spelled):
            if their is not None and names[their] in files.added and their not in ids_by_special.values():
                ids_by_special.setdefault(ours, their)
    return ids_by_special


def _check_entries(files: _TokenizerFiles, learned: Sequence[str]) -> None:
    """Refuse entries that heedful's model does not support.

    Raises:
        RequestError: names the first of them.
    """
    letters = set(byte_letters())
    for name in learned:
        if name in files.added or not letters.issuperset(name):
            raise RequestError(
                f"{files.path}: the token {quoted(name)} (id {files.ids[name]}) is not spelled in bytes; of "
                "special tokens, only those that end, start and pad a text and the unknown token are imported"
            )
    if missing := sorted(letters - {*learned}):
        raise RequestError(f"{files.path}: {len(missing)} of the 256 bytes have no entry: {missing[0]!r} …")


# Export --------------------------------------------------------------------------------------------------


def tokenizer_obstacles(text: PreprocessingConfig, subwords: Any) -> list[str]:
    """Return the settings of a tokenizer that GPT-2 does not support."""
    reasons = []
    if not text.keeps_composed_text:
        reasons.append("tokenizer.text: GPT-2 does not support changes of the text before it is encoded")
    if (kind := subwords.kind) not in ("byte-bpe", "byte"):
        reasons.append(
            f"tokenizer.subwords.kind={kind}: not supported by GPT-2, whose tokens are spelled in "
            "bytes; only byte-bpe and byte can be exported"
        )
    return reasons


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
    refuse(tokenizer_obstacles(tokenizer.preprocessing, config))
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
    special_ids = {ours: number for number, ours in enumerate(added.values(), len(names))}
    if framed:
        library.post_processor = processors.TemplateProcessing(
            single="<end> $A <end>",
            pair="<end> $A <end> $B <end>",
            special_tokens=[{"id": "<end>", "ids": [len(names)], "tokens": [end]}],
        )
    special_tokens = dict.fromkeys(("bos_token", "eos_token", "unk_token"), end)
    special_tokens |= {"pad_token": pad} if whole_texts else {}
    numbering = Numbering.of(special_ids, len(names) + len(added))
    return library.to_str(pretty=True), special_tokens, numbering


def _library(model: models.Model, config: TokenizerConfig) -> Library:
    """Return the model with the word splitting and spaces of a kind, as a tokenizer of the library."""
    library = Library(model)
    # Single bytes do not depend on the word splitting.
    library.pre_tokenizer = words_of(_BYTES if config.kind == "byte" else config)
    library.decoder = decoders.ByteLevel()
    if space := first_space(config):
        library.normalizer = normalizers.Prepend(space)
        library.decoder = decoders.Sequence([library.decoder, *strip_prefix_decoders(space)])
    return library
