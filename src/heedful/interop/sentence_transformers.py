"""Folders of the sentence-transformers library: a BERT whose hidden states are pooled to a vector of a text.

| file | content | here |
|---|---|---|
| modules.json | the steps in order: Transformer, Pooling, then Normalize or Dense | other steps are refused |
| 1_Pooling/config.json | mean, first or maximum of the hidden states | ``model.pooling`` |
| 2_Normalize | vectors of length 1 | named: cosines are the same |
| 2_Dense | a layer on the vector | refused |
| sentence_bert_config.json | max_seq_length, do_lower_case | ``model.max_length``; as in the tokenizer |
| config_sentence_transformers.json | the default prompt | named |

The run has the task sentence-embedding.
"""

from dataclasses import dataclass, field

from heedful.errors import DamagedError, RequestError
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.typing import JsonMapping

MODULES, SENTENCE = "modules.json", "sentence_bert_config.json"
SENTENCE_SETTINGS = "config_sentence_transformers.json"
TASK = "sentence-embedding"
_POOLING = "1_Pooling/config.json"
_FIRST_STEP = "Transformer"

# Their names, as key or as value of `pooling_mode`, by ours.
_MODES = {"cls": "first", "mean": "mean", "max": "max"}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class SentenceModel:
    """How a text becomes a vector.

    Args:
        pooling: ``first``, ``mean`` or ``max``.
        longest: maximum number of tokens of a text, including special tokens; None: the model's.
        notes: differences to sentence-transformers.
    """

    pooling: str
    longest: int | None
    notes: list[str] = field(default_factory=list)


def read_sentence_model(checkpoint: Checkpoint) -> SentenceModel | None:
    """Return how texts are pooled, or None if the folder is not one of sentence-transformers.

    Raises:
        RequestError: heedful does not support a step.
        DamagedError: a file is damaged.
    """
    if not checkpoint.has(MODULES):
        return None
    checkpoint.settings(SENTENCE_SETTINGS)
    steps, notes, pooling = _steps(checkpoint), list[str](), None
    for kind, folder in steps:
        if kind == "Pooling" and pooling is None:
            pooling = _pooling(checkpoint.settings(f"{folder}/config.json" if folder else _POOLING))
        elif kind == "Normalize":
            notes.append(
                "vectors are not scaled to length 1, as sentence-transformers does (Normalize); their "
                "cosines are the same"
            )
        elif kind != _FIRST_STEP:
            raise RequestError(
                f"{checkpoint.path / MODULES}: the step {kind} is not supported: expected Transformer, "
                "Pooling and Normalize"
            )
    if pooling is None:
        raise RequestError(
            f"{checkpoint.path / MODULES}: expected a step Pooling, which gives the vector of a text"
        )
    return SentenceModel(pooling, _longest(checkpoint), notes)


def _steps(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """Return kind and folder of each step, in order."""
    steps = checkpoint.json_list(MODULES)
    try:
        return [(str(step["type"]).rsplit(".", 1)[-1], str(step.get("path", ""))) for step in steps]
    except (AttributeError, KeyError, TypeError):
        raise DamagedError(f"{checkpoint.path / MODULES}: expected steps with type and path") from None


def _pooling(settings: Settings) -> str:
    """Return our name of the pooling.

    Raises:
        RequestError: it is another one, or several are concatenated.
    """
    flags: list[str] = [mode for key, mode in _FLAGS.items() if settings.get(key, bool, False)]
    mode = settings.get("pooling_mode", str)
    modes = flags or ([mode] if mode is not None else ["mean"])
    if len(modes) > 1 or modes[0] not in _MODES:
        raise settings.error("pooling_mode", f"{' and '.join(modes)}: expected one of {', '.join(_MODES)}")
    settings.refuse("include_prompt", "heedful pools all tokens, also those of a prompt", (None, True))
    settings.keys_read.add("word_embedding_dimension")
    settings.keys_read.add("embedding_dimension")
    return _MODES[modes[0]]


def _longest(checkpoint: Checkpoint) -> int | None:
    settings = checkpoint.settings(SENTENCE)
    if settings.get("do_lower_case", bool, False):
        _require_lower_case(checkpoint, settings)
    return None if settings.get("max_seq_length", int) is None else settings.positive_int("max_seq_length")


def _require_lower_case(checkpoint: Checkpoint, settings: Settings) -> None:
    """Refuse lower-casing before a tokenizer that does not do it itself.

    Raises:
        RequestError: the tokenizer reads case.
    """
    options: JsonMapping = checkpoint.settings("tokenizer_config.json").values
    if options.get("do_lower_case", True) is not True:
        raise settings.error("do_lower_case", "true, but the tokenizer reads case (do_lower_case false)")
