"""Convert Marian's tokenizers: a sentencepiece model for each side, and one vocabulary for both, or two.

| file | content |
|---|---|
| source.spm, target.spm | models of the sentencepiece library |
| vocab.json | the ids of all tokens; only of the source if there is a target_vocab.json |
| target_vocab.json | the ids of the target's tokens |

The models split text into pieces, the vocabulary numbers them; pieces that it lacks are ``<unk>``.
"""

from typing import NamedTuple

from heedful.errors import DamagedError, RequestError, quoted
from heedful.interop.checkpoint import Checkpoint, Settings, indented
from heedful.interop.names import Numbering
from heedful.interop.tokenizer_files import SETTINGS
from heedful.tasks.inputs.processor import COLUMNS, Tokenizers
from heedful.text.configuration import SentencePieceConfig
from heedful.text.sentencepieces import Vocabulary, model_file, sentencepiece_data
from heedful.text.specials import SPECIALS
from heedful.text.subwords import build
from heedful.text.tokenizer import Tokenizer

MODELS = {side: f"{side}.spm" for side in COLUMNS}
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
UNKNOWN = "<unk>"
KIND = SentencePieceConfig(kind="sentencepiece")

_KEYS = {SPECIALS.start: "decoder_start_token_id", SPECIALS.end: "eos_token_id", SPECIALS.pad: "pad_token_id"}


class Numberings(NamedTuple):
    """The numberings of both sides."""

    source: Numbering
    target: Numbering


def numbering(settings: Settings, size: int, unknown: int | None) -> Numbering:
    """Return the numbering: heedful's special tokens first, then all others in order.

    Args:
        settings: the configuration with start, end and padding tokens.
        size: the size of the vocabulary.
        unknown: the unknown token.

    Raises:
        RequestError: if a token is missing or outside the vocabulary, or start and end token are the same.
    """
    start, end = settings.get("decoder_start_token_id", int), settings.get("eos_token_id", int)
    if start is None or end is None:
        raise settings.error("decoder_start_token_id", "it and eos_token_id must be given")
    specials = {SPECIALS.end: end, SPECIALS.start: start}
    for ours, their in ((SPECIALS.pad, settings.get("pad_token_id", int)), (SPECIALS.unknown, unknown)):
        if their is not None and their not in specials.values():
            specials[ours] = their
    if outside := [their for their in specials.values() if not 0 <= their < size]:
        raise settings.error(
            "vocab_size", f"{size}: the special token {outside[0]} is outside the vocabulary"
        )
    if start == end:
        raise settings.error("decoder_start_token_id", "must differ from eos_token_id")
    return Numbering.of(specials, size)


def read_sentencepieces(checkpoint: Checkpoint, sizes: tuple[int, int]) -> tuple[Tokenizers, Numberings]:
    """Read the tokenizers of a folder, and their numberings.

    Args:
        checkpoint: the folder.
        sizes: the sizes of the vocabularies in the configuration.

    Raises:
        RequestError: if a file is missing, or does not match the model.
        DamagedError: if a file cannot be read.
    """
    if not checkpoint.has(VOCABULARY):
        raise RequestError(
            f"{checkpoint.path}: has no tokenizers: neither {VOCABULARY} with "
            f"{' and '.join(MODELS.values())}, nor heedful's"
        )
    has_two_vocabularies = checkpoint.has(TARGET_VOCABULARY)
    files = (VOCABULARY, TARGET_VOCABULARY if has_two_vocabularies else VOCABULARY)
    tokenizers, numberings = [], []
    for side, file, size in zip(COLUMNS, files, sizes, strict=True):
        names = _names(checkpoint, file)
        if len(names) != size:
            raise RequestError(
                f"{checkpoint.path / file}: has {len(names)} tokens, but the model has {size} ({side}): "
                "they belong to different models"
            )
        side_numbering = numbering(
            checkpoint.config, size, names.index(UNKNOWN) if UNKNOWN in names else None
        )
        vocabulary = Vocabulary(names, side_numbering.theirs[: len(SPECIALS)])
        tokenizers.append(_tokenizer(checkpoint, MODELS[side], vocabulary))
        numberings.append(side_numbering)
    return Tokenizers(*tokenizers), Numberings(*numberings)


def _names(checkpoint: Checkpoint, file: str) -> tuple[str, ...]:
    """Return the tokens in the order of their ids."""
    ids = checkpoint.json(file)
    names = {i: name for name, i in ids.items() if type(i) is int}
    if sorted(names) != list(range(len(ids))):
        raise DamagedError(f"{checkpoint.path / file}: its ids must be 0 to {len(ids) - 1}")
    return tuple(names[i] for i in range(len(names)))


def _tokenizer(checkpoint: Checkpoint, file: str, vocabulary: Vocabulary) -> Tokenizer:
    path = checkpoint.file(file)
    try:
        model = path.read_bytes()
        tokenizer = Tokenizer(build(KIND, sentencepiece_data(model, vocabulary)))
        ordinary = _ordinary(model)
    except (OSError, RuntimeError) as error:
        raise DamagedError(f"{path}: is not a valid sentencepiece model: {error}") from None
    for our, key in _KEYS.items():
        their = vocabulary.specials[our]
        if their is not None and (name := vocabulary.names[their]) in ordinary:
            raise checkpoint.config.error(
                key,
                f"{their} is {quoted(name)}, a piece of ordinary text in {path.name}; it must be a special "
                "token",
            )
    return tokenizer


def _ordinary(model: bytes) -> set[str]:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_proto=model)
    special = (processor.is_control, processor.is_unknown, processor.is_unused)
    ids = range(processor.get_piece_size())
    return {processor.id_to_piece(i) for i in ids if not any(is_kind(i) for is_kind in special)}


def has_sentencepieces(processor: Tokenizers) -> bool:
    """Return whether both tokenizers were imported from such files."""
    return all(side.model.config.kind == KIND.kind for side in (processor.source, processor.target))


def write_sentencepieces(processor: Tokenizers) -> tuple[dict[str, str | bytes], Numberings]:
    """Return the files of tokenizers imported from such files, and their numberings."""
    sides = dict(zip(COLUMNS, (processor.source, processor.target), strict=True))
    vocabularies = {side: Vocabulary.of(tokenizer.model.data) for side, tokenizer in sides.items()}
    files: dict[str, str | bytes] = {MODELS[side]: model_file(sides[side].model.data) for side in COLUMNS}
    source, target = (vocabularies[side] for side in COLUMNS)
    has_two_vocabularies = source != target
    for name, vocabulary in {VOCABULARY: source, TARGET_VOCABULARY: target}.items():
        if has_two_vocabularies or name == VOCABULARY:
            files[name] = indented({token: i for i, token in enumerate(vocabulary.names)})
    special_tokens = [None if i is None else target.names[i] for i in target.specials]
    # In Marian, the start token is also the padding token.
    pad = special_tokens[SPECIALS.pad] or special_tokens[SPECIALS.start]
    tokens = {
        "eos_token": special_tokens[SPECIALS.end],
        "unk_token": special_tokens[SPECIALS.unknown],
        "pad_token": pad,
    }
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": has_two_vocabularies, **tokens}
    files[SETTINGS] = indented({key: value for key, value in settings.items() if value is not None})
    return files, Numberings(Numbering(source.theirs), Numbering(target.theirs))
