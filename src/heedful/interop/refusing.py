"""Checks that a format supports the model of a run."""

from collections.abc import Mapping
from typing import Any

from heedful.config import Config
from heedful.errors import RequestError


def refuse_others(config: Any, whose: str, only: Mapping[str, tuple[Any, str]]) -> None:
    """Check that keys of a model configuration have the only value that the format supports.

    Args:
        config: configuration of the model.
        whose: name of the format.
        only: required value and reason, by key; dots lead into sections.

    Raises:
        RequestError: a key has another value; the message names the recipe key.
    """
    for key, (value, why) in only.items():
        found = config
        for part in key.split("."):
            found = getattr(found, part)
        if found != value:
            raise RequestError(f"model.{key}={_format_value(found)}: not supported by {whose}: {why}")


def refuse_other_heads(config: Any, whose: str) -> None:
    """Check that keys and values are not grouped and that heads have d_model / n_heads dimensions.

    Raises:
        RequestError: they are not; the message names the key.
    """
    heads = config.layer.mixer
    width = config.d_model / heads.n_heads
    for key, usual in (("n_kv_heads", heads.n_heads), ("d_k", width), ("d_v", width)):
        if (found := getattr(heads, key)) not in (None, usual):
            raise RequestError(
                f"model.layer.mixer.{key}={found}: not supported by {whose}: it has one key and value head "
                "per query head, each of size d_model / n_heads"
            )


def _format_value(value: Any) -> str:
    """Return a value as it is written in a recipe, shortened to one line."""
    if isinstance(value, list | Config):
        return "[…]" if isinstance(value, list) else "{…}"
    return str(value).lower() if isinstance(value, bool) else str(value)


ALIKE: dict[str, tuple[Any, str]] = {
    "pattern": (None, "its layers are alike"),
    "layer.mixer.kind": ("attention", "it uses attention"),
    "layer.mixer.visible.kind": ("all", "it has no attention windows or blocks"),
    "layer.norm.kind": ("layer", "its norms are layer norms"),
    "layer.norm.bias": (True, "its norms have biases"),
    "layer.mixer.bias": (True, "its attention has biases"),
    "layer.channels.kind": (
        "feed-forward",
        "it has feed-forward networks without gates",
    ),
    "layer.channels.bias": (True, "its feed-forward networks have biases"),
}
"""What all formats of stacks of attention and feed-forward networks require."""
