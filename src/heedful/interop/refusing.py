"""Checks that a format supports the model of a run."""

from collections.abc import Mapping
from typing import Any

from heedful.errors import RequestError


def refuse_others(config: Any, whose: str, only: Mapping[str, tuple[Any, str]]) -> None:
    """Check that keys of a model configuration have the only value that the format supports.

    Args:
        config: configuration of the model.
        whose: name of the format.
        only: required value and reason, by key.

    Raises:
        RequestError: a key has another value; the message names the recipe key.
    """
    for key, (value, why) in only.items():
        if (found := getattr(config, key)) != value:
            raise RequestError(f"model.{key}={_format_value(found)}: not supported by {whose}: {why}")


def refuse_other_heads(config: Any, whose: str) -> None:
    """Check that keys and values are not grouped and that heads have d_model / n_heads dimensions.

    Raises:
        RequestError: they are not; the message names the key.
    """
    width = config.d_model / config.n_heads
    for key, usual in (("n_kv_heads", config.n_heads), ("d_k", width), ("d_v", width)):
        if (found := getattr(config, key)) not in (None, usual):
            raise RequestError(
                f"model.{key}={found}: not supported by {whose}: it has one key and value head per query "
                "head, each of size d_model / n_heads"
            )


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
