"""Tokenizer files of the transformers library, for all kinds of tokenizers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders
from tokenizers import Tokenizer as Library

from heedful.errors import DamagedError, RequestError
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.typing import JsonMapping, JsonObject

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"


_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")


def settings_of(checkpoint: Checkpoint) -> Settings:
    """Read tokenizer_config.json; empty if there is none."""
    held = checkpoint.json(SETTINGS) if checkpoint.has(SETTINGS) else {}
    return Settings(held, str(checkpoint.path / SETTINGS))


def is_generic(settings: Settings, config: Settings) -> bool:
    """Return whether transformers uses tokenizer.json unchanged.

    Model-specific classes (`BertTokenizer`), which are the default, override parts of it by their options.

    Args:
        settings: tokenizer_config.json.
        config: config.json.
    """
    return (settings.get("tokenizer_class", str) or config.get("tokenizer_class", str)) in _GENERIC


def read_library(checkpoint: Checkpoint) -> tuple[Path, Library, JsonObject]:
    """Read tokenizer.json; return its path, the tokenizer and its content.

    Truncation and padding are disabled, since transformers applies them only on request.

    Raises:
        DamagedError: it is not a tokenizer.
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
    """Return the special tokens that templates use but do not define; the library would panic on them."""
    if part is None:
        return set()
    if part["type"] == "Sequence":
        return {name for each in part["processors"] for name in _undefined(each)}
    if part["type"] != "TemplateProcessing":
        return set()
    pieces = (piece.get("SpecialToken") for template in ("single", "pair") for piece in part[template])
    return {piece["id"] for piece in pieces if piece} - {*part["special_tokens"]}


def all_ids(whole: JsonMapping) -> dict[str, int]:
    """Return the ids of all tokens of a tokenizer.json by spelling, including added tokens."""
    return {**whole["model"]["vocab"], **{token["content"]: token["id"] for token in whole["added_tokens"]}}


def spelling(value: Any) -> str | None:
    """Return the spelling of a special token, given in tokenizer_config.json as string or object."""
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def refuse_other_ids(path: Path, ids: Mapping[str, int], config: Settings, default: int) -> None:
    """Check that the ids match the rows of the weights.

    Args:
        path: path of the tokenizer.
        ids: ids by spelling of the tokens.
        config: configuration with vocab_size.
        default: default of vocab_size.

    Raises:
        RequestError: the ids have gaps, or their number is not vocab_size.
    """
    if sorted(ids.values()) != list(range(len(ids))):
        raise RequestError(f"{path}: the ids have gaps: they must run from 0 to {len(ids) - 1}")
    if len(ids) != (n := config.whole("vocab_size", default)):
        raise config.wrong(
            "vocab_size", f"{n}, and {path.name} has {len(ids):,} entries: they belong to "
            "different models, or the weights have rows that no token uses"
        )  # fmt: skip


def settings_file(longest: int, spelled: Mapping[str, str], **more: Any) -> dict[str, str]:
    """Return tokenizer_config.json for a tokenizer.json.

    Args:
        longest: maximum number of tokens of the model.
        spelled: special tokens by key (``eos_token``).
        more: further keys of this tokenizer.

    Returns:
        The content by file name.
    """
    content = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        # Required: older versions add token_type_ids otherwise, which GPT-2 would add to its embeddings.
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **spelled,
        **more,
    }
    return {SETTINGS: json.dumps(content, indent=2, ensure_ascii=False) + "\n"}


def once_taken_away(space: str) -> list[decoders.Decoder]:
    """Return the last decoder step, which removes the space prepended to every text, if any."""
    # A regular expression, to remove it once and only at the beginning.
    return [decoders.Replace(Regex(rf"\A{space}"), "")] if space else []
