"""How a Marian of transformers generates, as the section ``decoding`` of a recipe, and back.

An export also keeps heedful's own decoding in config.json, which is read again as long as
generation_config.json says the same (`heedful.interop.generation`).
"""

from typing import Any

from pydantic import TypeAdapter, ValidationError

from heedful.decoding.config import DecodingConfig
from heedful.interop.checkpoint import Checkpoint
from heedful.interop.generation import (
    WrittenGeneration,
    generation_settings,
    read_generation,
    write_generation,
)
from heedful.interop.heads import heedful_options
from heedful.interop.names import Numbering
from heedful.tasks.generation.text_generation import MAX_SOURCE
from heedful.text.specials import SPECIALS
from heedful.typing import JsonObject


def read_decoding(checkpoint: Checkpoint, target: Numbering) -> tuple[JsonObject, list[str]]:
    """Return the section ``decoding`` of the recipe, and notes about differences to transformers."""
    settings = generation_settings(checkpoint)
    never = [[target.theirs[our]] for our in SPECIALS.never_generated]
    bad_words = settings.values.get("bad_words_ids")
    if isinstance(bad_words, list) and all(word in never for word in bad_words):
        settings.keys_read.add("bad_words_ids")
    exported = heedful_options(checkpoint.config).get("decoding")
    if exported is not None and (decoding_as_exported := _as_exported(checkpoint, exported)) is not None:
        return decoding_as_exported, []
    generation = read_generation(checkpoint)
    decoding, notes = generation.decoding or {"kind": "greedy"}, generation.notes
    n_tokens = generation.max_new_tokens
    if n_tokens is None and generation.max_length is not None:
        n_tokens = generation.max_length - 1  # the start token counts in transformers
    if n_tokens is None:
        notes.append(
            "no maximum length is given: transformers then stops after 20 tokens, heedful as "
            "decoding.max_length says"
        )
        return decoding, notes
    return decoding | {"max_length": {"ratio": 0.0, "extra": n_tokens, "cap": n_tokens}}, notes


def _as_exported(checkpoint: Checkpoint, exported: object) -> JsonObject | None:
    """Return a decoding of heedful's that was exported; None if the folder was given another since.

    Raises:
        RequestError: it is not a decoding.
    """
    try:
        decoding = TypeAdapter[Any](DecodingConfig).validate_python(exported)
    except ValidationError:
        raise checkpoint.config.error("task_specific_params", "heedful.decoding is not a decoding") from None
    settings = generation_settings(checkpoint)
    for key, value in write_decoding(decoding, MAX_SOURCE).content.items():
        settings.keys_read.add(key)
        if settings.values.get(key) != value:
            return None
    return JsonObject(decoding.model_dump(mode="json"))


def write_decoding(decoding: Any, max_source: int) -> WrittenGeneration:
    """Return the keys of generation_config.json for a decoding, with the maximum length."""
    # The start token counts in transformers.
    limit = {"max_length": decoding.max_length.of(max_source) + 1}
    content, notes = write_generation(decoding)
    return WrittenGeneration(limit | content, notes)
