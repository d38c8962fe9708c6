"""The files in which the transformers library keeps tokenizers, whatever their kind."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders
from tokenizers import Tokenizer as Library

from heedful.errors import DamagedError, RequestError
from heedful.interop.checkpoint import Checkpoint, Settings

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"


_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")


def settings_of(checkpoint: Checkpoint) -> Settings:
    """tokenizer_config.json, or nothing."""
    held = checkpoint.json(SETTINGS) if checkpoint.has(SETTINGS) else {}
    return Settings(held, str(checkpoint.path / SETTINGS))


def is_generic(told: Settings, config: Settings) -> bool:
    """Whether transformers takes tokenizer.json as it is.

    A class of a model's own (`BertTokenizer`), which is the default, sets what its options say instead.

    Args:
        told: tokenizer_config.json.
        config: config.json.
    """
    return (told.get("tokenizer_class", str) or config.get("tokenizer_class", str)) in _GENERIC


def read_library(checkpoint: Checkpoint) -> tuple[Path, Library, dict[str, Any]]:
    """Of tokenizer.json: its path, the tokenizer, and all that it says.

    Its truncation and padding are left out: transformers truncates and pads only if a call asks for it.

    Raises:
        DamagedError: it holds no tokenizer.
    """
    path = checkpoint.file(TOKENIZER)
    try:
        library = Library.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises plain exceptions
        raise DamagedError(f"{path}: cannot be read as a tokenizer: {error}") from None
    library.no_truncation()
    library.no_padding()
    whole = json.loads(library.to_str())
    if missing := sorted(_undefined(whole["post_processor"])):
        raise DamagedError(f"{path}: post_processor: special_tokens has no entry {missing[0]!r}")
    return path, library, whole


def _undefined(part: Any) -> set[str]:
    """The special tokens of templates that these do not define, on which the library would panic."""
    if part is None:
        return set()
    if part["type"] == "Sequence":
        return {name for each in part["processors"] for name in _undefined(each)}
    if part["type"] != "TemplateProcessing":
        return set()
    pieces = (piece.get("SpecialToken") for template in ("single", "pair") for piece in part[template])
    return {piece["id"] for piece in pieces if piece} - {*part["special_tokens"]}


def all_ids(whole: Mapping[str, Any]) -> dict[str, int]:
    """The ids of all tokens of a tokenizer.json, by their spelling, those beside the model included."""
    return {**whole["model"]["vocab"], **{token["content"]: token["id"] for token in whole["added_tokens"]}}


def spelling(told: Any) -> str | None:
    """Of a special token, which tokenizer_config.json tells by its spelling or by an object that has it."""
    told = told.get("content") if isinstance(told, dict) else told
    return told if isinstance(told, str) else None


def refuse_other_ids(path: Path, ids: Mapping[str, int], config: Settings, default: int) -> None:
    """Refuse ids that are not those of the rows of the weights.

    Args:
        path: of the tokenizer.
        ids: by the spelling of the tokens.
        config: says under vocab_size how many rows there are.
        default: of that key.

    Raises:
        RequestError: they have gaps, or are more or fewer.
    """
    if sorted(ids.values()) != list(range(len(ids))):
        raise RequestError(f"{path}: the ids have gaps: they must run from 0 to {len(ids) - 1}")
    if len(ids) != (n := config.whole("vocab_size", default)):
        raise config.wrong(
            "vocab_size", f"{n}, and {path.name} has {len(ids):,} entries: they belong to "
            "different models, or the weights have rows that no token uses"
        )  # fmt: skip


def settings_file(longest: int, spelled: Mapping[str, str], **more: Any) -> dict[str, str]:
    """tokenizer_config.json beside a tokenizer.json that says all else.

    Args:
        longest: tokens that the model can read.
        spelled: the special tokens by their keys (``eos_token``).
        more: keys that this tokenizer needs.

    Returns:
        The content, by the file's name.
    """
    content = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        # Told, or older versions give segments too, which a GPT-2 would add to its tokens.
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **spelled,
        **more,
    }
    return {SETTINGS: json.dumps(content, indent=2, ensure_ascii=False) + "\n"}


def once_taken_away(space: str) -> list[decoders.Decoder]:
    """What a decoder does last where a space was put before every text: nothing, if there was none."""
    # As an expression: taken away once, and at the beginning alone.
    return [decoders.Replace(Regex(rf"\A{space}"), "")] if space else []
