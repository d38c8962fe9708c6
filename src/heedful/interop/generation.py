"""Generation settings of transformers (``generation_config.json``) as heedful's decoding, and back.

| generation_config.json | heedful's ``decoding`` |
|---|---|
| num_beams 1, do_sample false | greedy |
| num_beams k | beam: k (of a diverse beam search, without its groups) |
| length_penalty | length_penalty ``average``, alpha: both divide by ``length ** alpha`` |
| early_stopping ``never`` | the exact stopping of heedful's beam search |
| do_sample, temperature, top_k, top_p, min_p | sample: the same |
| epsilon_cutoff | epsilon |
| max_length, max_new_tokens | the most tokens to generate; max_length also counts the start token or prompt |

Older folders have the same keys in ``config.json``; transformers reads them there if there is no
``generation_config.json``.
"""

from typing import Any, NamedTuple

from heedful.decoding.config import BeamSettings, DecodingConfig, DiverseBeamConfig, MbrConfig, SampleSettings
from heedful.decoding.scoring import AverageLength, GnmtLength, NoPenalty
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.typing import JsonObject

GENERATION = "generation_config.json"

TYPICAL_LENGTH = 25
"""Length in tokens at which the exponent of transformers' length penalty is fitted to the penalty of GNMT."""

_LIBRARY_TOP_K = 50  # what transformers samples from, unless a folder says otherwise

# Settings of one kind of decoding, which have no effect on the others.
_BEAM_KEYS = ("early_stopping", "length_penalty")
_SAMPLE_KEYS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "top_h",
)
_LENGTH_KEYS = ("max_length", "max_new_tokens")


class Generation(NamedTuple):
    """Generation settings that were read.

    Args:
        decoding: the section ``decoding`` of a recipe without ``max_length``; None if the folder has none.
        max_length: maximum length as given; of an encoder-decoder including the start token, of a language
            model including the prompt.
        max_new_tokens: maximum number of generated tokens, which takes precedence.
        notes: differences to transformers.
    """

    decoding: JsonObject | None
    max_length: int | None
    max_new_tokens: int | None
    notes: list[str]


def generation_settings(checkpoint: Checkpoint) -> Settings:
    """Return the settings that transformers generates with: those of the newer file if it exists."""
    return checkpoint.settings(GENERATION) if checkpoint.has(GENERATION) else checkpoint.config


def read_generation(checkpoint: Checkpoint) -> Generation:
    """Read how transformers generates with a folder.

    Raises:
        RequestError: a setting has the wrong type or is out of range.
    """
    settings = generation_settings(checkpoint)
    is_stated = any(settings.values.get(key) is not None for key in ("do_sample", "num_beams"))
    samples, beams = settings.get("do_sample", bool, False), settings.positive_int("num_beams", 1)
    max_length, max_new_tokens = (
        None if settings.get(key, int) is None else settings.positive_int(key) for key in _LENGTH_KEYS
    )
    for key in ("eos_token_id", "decoder_start_token_id"):  # generated as the configuration says
        if settings.values.get(key) == checkpoint.config.values.get(key):
            settings.keys_read.add(key)
    notes: list[str] = []
    if samples and beams > 1:
        notes.append(f"{settings.source}: num_beams={beams} with do_sample: heedful samples without a beam")
    decoding: JsonObject
    if samples:
        decoding = _read_sampling(settings)
        settings.keys_read.update(_BEAM_KEYS)
    elif beams > 1:
        decoding, note = _read_beam(settings, beams)
        notes += [note] if note else []
        settings.keys_read.update(_SAMPLE_KEYS)
    else:
        decoding = {"kind": "greedy"}
        settings.keys_read.update({*_BEAM_KEYS, *_SAMPLE_KEYS})
    return Generation(decoding if is_stated else None, max_length, max_new_tokens, notes)


def _read_sampling(settings: Settings) -> JsonObject:
    temperature = settings.get("temperature", (int, float), 1.0)
    top_k = settings.get("top_k", int, _LIBRARY_TOP_K)
    top_p, min_p = settings.get("top_p", (int, float), 1.0), settings.get("min_p", (int, float), 0.0)
    epsilon = settings.get("epsilon_cutoff", (int, float), 0.0)
    for key, value, is_valid in (
        ("temperature", temperature, temperature > 0),
        ("top_k", top_k, top_k >= 0),
        ("top_p", top_p, 0 < top_p <= 1),
        ("min_p", min_p, 0 <= min_p <= 1),
        ("epsilon_cutoff", epsilon, 0 <= epsilon <= 1),
    ):
        if not is_valid:
            raise settings.error(key, f"out of range: {value}")
    return {
        "kind": "sample",
        "temperature": float(temperature),
        "top_k": top_k or None,
        "top_p": float(top_p),
        "min_p": float(min_p),
        "epsilon": float(epsilon),
    }


def _read_beam(settings: Settings, beams: int) -> tuple[JsonObject, str | None]:
    alpha = float(settings.get("length_penalty", (int, float), 1.0))
    if not 0 <= alpha < float("inf"):
        raise settings.error("length_penalty", f"must be at least 0, got {alpha:g}")
    stopping = settings.values.get("early_stopping")
    settings.keys_read.add("early_stopping")
    note = None
    if stopping != "never":
        note = (
            f"{settings.source}: early_stopping={_shown(stopping)}: heedful stops a search when no better "
            'text is possible (as transformers with "never"), so it may find one with a higher score'
        )
    decoding = {
        "kind": "beam",
        "beam": beams,
        "length_penalty": {"kind": "average", "alpha": alpha},
        "unfinished": "keep",
    }
    return decoding, note


def _shown(value: object) -> str:
    return "false (the default)" if value is None else str(value).lower()


class WrittenGeneration(NamedTuple):
    """Keys of generation_config.json, and notes about differences."""

    content: JsonObject
    notes: list[str]


def write_generation(config: DecodingConfig) -> WrittenGeneration:
    """Return the keys for a decoding, without limits and special tokens.

    Every key that a pipeline of transformers has a default of its own for is written.
    """
    content, notes = _written_search(config)
    notes += [
        f"decoding.{name}: not exported; set {key} in transformers, whose rule may differ"
        for name, key in (
            ("min_length", "min_new_tokens"),
            ("repetition_penalty", "repetition_penalty"),
            ("no_repeat_ngram", "no_repeat_ngram_size"),
        )
        if getattr(config, name) != type(config).model_fields[name].default
    ]
    return WrittenGeneration(content, notes)


def _written_search(config: DecodingConfig) -> WrittenGeneration:
    match config:
        case SampleSettings() if config.temperature > 0:
            content: JsonObject = {
                "do_sample": True,
                "num_beams": 1,
                "temperature": config.temperature,
                "top_k": config.top_k or 0,
                "top_p": config.top_p,
                **({"min_p": config.min_p} if config.min_p else {}),
                **({"epsilon_cutoff": config.epsilon} if config.epsilon else {}),
            }
            notes = []
            if isinstance(config, MbrConfig):
                notes.append(
                    "decoding.kind=mbr: not exported, because transformers has no minimum Bayes risk "
                    "decoding; the files describe how samples are drawn"
                )
            return WrittenGeneration(content, notes)
        case BeamSettings() if config.beam > 1:
            penalty, notes = _written_penalty(config.length_penalty)
            if isinstance(config, DiverseBeamConfig):
                notes.append(
                    "decoding.groups, decoding.diversity: not exported, because transformers has no diverse "
                    "beam search of its own; the files describe a beam search"
                )
            if config.coverage:
                notes.append("decoding.coverage: not exported, because transformers has no coverage penalty")
            content = {"num_beams": config.beam, "length_penalty": penalty, "early_stopping": "never"}
            return WrittenGeneration({"do_sample": False, **content}, notes)
    return WrittenGeneration({"do_sample": False, "num_beams": 1}, [])


def _written_penalty(penalty: Any) -> tuple[float, list[str]]:
    """Return the exponent of ``length ** exponent``, and a note if it is an approximation."""
    match penalty:
        case NoPenalty():
            return 0.0, []
        case AverageLength(alpha=alpha):
            return alpha, []
        case GnmtLength(alpha=alpha) if alpha > 0:
            # Both divisors grow by the same factor around the typical length.
            exponent = round(alpha * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH), 4)
            return exponent, [
                f"decoding.length_penalty: transformers has no penalty of the kind gnmt; length_penalty="
                f"{exponent:g} is close to it for texts of about {TYPICAL_LENGTH} tokens, but a search may "
                "choose another text. The kind average (and none) is exported exactly"
            ]
    return 0.0, []
