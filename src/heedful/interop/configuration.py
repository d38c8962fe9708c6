"""Tables of config.json: the settings of a model in both directions, and what a format requires of it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from heedful.config import Config
from heedful.errors import RequestError
from heedful.interop.checkpoint import Settings
from heedful.models.mixers import AttentionConfig
from heedful.typing import JsonMapping, JsonObject

ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_python": "gelu",
}
"""heedful's names of activation functions by the names of transformers."""

_WRITTEN = {ours: their for their, ours in reversed(ACTIVATIONS.items())}


class Key(NamedTuple):
    """A key of config.json and the setting of heedful's models with the same meaning.

    Args:
        theirs: key in config.json.
        ours: key in the section ``model`` of a recipe; dots lead into sections.
        read: reads and checks the value, given settings, key and default.
        default: value in transformers if the key is missing; None: it is required.
    """

    theirs: str
    ours: str
    read: Callable[[Settings, str, Any], Any] = Settings.positive_int
    default: Any = None


def read_activation(settings: Settings, key: str, default: str) -> str:
    """Read the name of an activation function."""
    return settings.choice(key, ACTIVATIONS, default)


def read_epsilon(settings: Settings, key: str, default: float) -> float:
    """Read the ε of the norms.

    Raises:
        RequestError: it is not between 0 and 1.
    """
    epsilon = settings.get(key, (int, float), default)
    if not 0 < epsilon < 1:
        raise settings.error(key, f"must be between 0 and 1, got {epsilon}")
    return float(epsilon)


def stack_keys(dropout: float) -> tuple[Key, ...]:
    """Return the keys of BERT and ViT; ``dropout`` is the default of their dropout rates."""
    return (
        Key("hidden_size", "d_model", default=768),
        Key("num_hidden_layers", "n_layers", default=12),
        Key("num_attention_heads", "layer.mixer.n_heads", default=12),
        Key("intermediate_size", "layer.channels.d_ff", default=3072),
        Key("hidden_act", "layer.channels.activation", read_activation, "gelu"),
        Key("layer_norm_eps", "layer.norm.eps", read_epsilon, 1e-12),
        Key("hidden_dropout_prob", "dropout", Settings.rate, dropout),
        Key("attention_probs_dropout_prob", "layer.mixer.dropout", Settings.rate, dropout),
    )


def read_keys(settings: Settings, keys: Sequence[Key]) -> JsonObject:
    """Return the settings of a model as the section ``model`` of a recipe.

    Raises:
        RequestError: a value is invalid, or the number of heads does not divide the width.
    """
    values = {key.ours: key.read(settings, key.theirs, key.default) for key in keys}
    theirs = {key.ours: key.theirs for key in keys}
    width, heads = "d_model", "layer.mixer.n_heads"
    if values[width] % values[heads]:
        raise settings.error(
            theirs[heads], f"{values[heads]} does not divide {theirs[width]}={values[width]}"
        )
    section: JsonObject = {}
    for path, value in values.items():
        *sections, last = path.split(".")
        subsection = section
        for name in sections:
            subsection = subsection.setdefault(name, {})
        subsection[last] = value
    return section


def write_keys(config: Config, keys: Sequence[Key]) -> JsonObject:
    """Return the keys of config.json for a model; the inverse of `read_keys`."""
    values = {key.theirs: attrgetter(key.ours)(config) for key in keys}
    return values | {key.theirs: _WRITTEN[values[key.theirs]] for key in keys if key.read is read_activation}


def label_names(settings: Settings) -> JsonMapping:
    """Return ``id2label``, or as many numbered labels as ``num_labels`` says; by default two.

    Raises:
        RequestError: both are given and differ.
    """
    n_labels = next(
        (settings.positive_int(key) for key in ("num_labels", "_num_labels") if key in settings.values), None
    )
    id2label: JsonMapping | None = settings.get("id2label", dict)
    if id2label is None:
        return {str(index): f"LABEL_{index}" for index in range(2 if n_labels is None else n_labels)}
    if n_labels not in (None, len(id2label)):
        raise settings.error(
            "num_labels", f"{n_labels}, but id2label has {len(id2label)} entries; remove num_labels"
        )
    return id2label


def read_labels(settings: Settings) -> tuple[str, ...]:
    """Read the labels in the order of their indices; like transformers, default to two labels.

    Raises:
        RequestError: they are invalid, or the task is not single-label classification.
    """
    kind = settings.get("problem_type", str)
    if kind in ("regression", "multi_label_classification"):
        raise settings.error("problem_type", f"{kind!r}: not supported, only single-label classification is")
    id2label = label_names(settings)
    labels = [id2label.get(str(index)) for index in range(len(id2label))]
    if not all(isinstance(label, str) for label in labels) or len({*labels}) < max(2, len(labels)):
        raise settings.error(
            "id2label", f"expected at least two different labels numbered from 0, got {id2label!r}"
        )
    return tuple(map(str, labels))


def write_labels(labels: Collection[str]) -> JsonObject:
    """Return the keys of config.json for the labels."""
    return {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
        "problem_type": "single_label_classification",
    }


ALIKE: dict[str, tuple[object, str]] = {
    "pattern": (None, "its layers are alike"),
    "layer.mixer.kind": ("attention", "it uses attention"),
    "layer.mixer.visible.kind": ("all", "its tokens see all tokens"),
    "layer.norm.kind": ("layer", "its norms are layer norms"),
    "layer.norm.bias": (True, "its norms have biases"),
    "layer.mixer.bias": (True, "its attention has biases"),
    "layer.channels.kind": ("feed-forward", "it has feed-forward networks without gates"),
    "layer.channels.bias": (True, "its feed-forward networks have biases"),
}
"""What all formats of stacks of attention and feed-forward networks require."""


def unsupported(config: Config, format_name: str, required: Mapping[str, tuple[object, str]]) -> list[str]:
    """Return why a model cannot be exported: each key that has another value than the only one supported.

    Keys that the model does not have are left out, because the kind of its sections is another one. Keys and
    values must not be grouped, and heads must have d_model / n_heads dimensions.

    Args:
        config: configuration of the model.
        format_name: name of the format.
        required: required value and reason, by key; dots lead into sections.
    """
    reasons = []
    for key, (value, reason) in required.items():
        actual = _value(config, key)
        if actual is not MISSING and actual != value:
            reasons.append(f"model.{key}={_format_value(actual)}: not supported by {format_name}: {reason}")
    attention = _value(config, "layer.mixer")
    if not isinstance(attention, AttentionConfig):
        return reasons
    width = attrgetter("d_model")(config) / attention.n_heads
    for key, default in (("n_kv_heads", attention.n_heads), ("d_k", width), ("d_v", width)):
        if (actual := getattr(attention, key)) not in (None, default):
            reasons.append(
                f"model.layer.mixer.{key}={actual}: not supported by {format_name}: it has one key and value "
                "head per query head, each of size d_model / n_heads"
            )
    return reasons


MISSING = object()
"""Value of a key that a model does not have."""


def _value(config: Config, key: str) -> object:
    try:
        return attrgetter(key)(config)
    except AttributeError:
        return MISSING


def refuse(reasons: Sequence[str]) -> None:
    """Raise an error with all reasons why a run cannot be exported, if there are any.

    Raises:
        RequestError: there are; each is a line.
    """
    if reasons:
        raise RequestError("\n  ".join(reasons))


def _format_value(value: object) -> str:
    """Return a value as it is written in a recipe, shortened to one line."""
    if isinstance(value, list | Config):
        return "[…]" if isinstance(value, list) else "{…}"
    return str(value).lower() if isinstance(value, bool) else str(value)
