"""Refusing runs that a format cannot hold."""

from collections.abc import Mapping
from typing import Any

from heedful.errors import RequestError


def refuse_others(config: Any, whose: str, only: Mapping[str, tuple[Any, str]]) -> None:
    """Refuse a model's configuration in which a key has another value than the only one.

    Args:
        config: of the model.
        whose: what the format is called.
        only: by the key, the value and the reason.

    Raises:
        RequestError: naming the key as it stands in the recipe.
    """
    for key, (value, why) in only.items():
        if (found := getattr(config, key)) != value:
            raise RequestError(f"model.{key}={_shown(found)}: {whose} cannot hold this model: {why}")


def refuse_other_heads(config: Any, whose: str) -> None:
    """Refuse heads that are grouped, or of another width than d_model / n_heads.

    Raises:
        RequestError: naming the key.
    """
    width = config.d_model / config.n_heads
    for key, usual in (("n_kv_heads", config.n_heads), ("d_k", width), ("d_v", width)):
        if (found := getattr(config, key)) not in (None, usual):
            raise RequestError(
                f"model.{key}={found}: {whose} cannot hold this model: its heads share nothing, and "
                "are d_model / n_heads wide"
            )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
