"""The base of every typed configuration: frozen, strict, and closed to unknown keys.

Configurations belong to builders and recipes. Blocks (`heedful.nn`) never see one.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

LARGEST = 3.4028234663852886e38
"""The largest finite number of 32 bits, in which models compute."""


class Config(BaseModel):
    """A frozen record of settings; an unknown key or a value of another type is an error.

    Numbers are finite, in 32 bits too.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, protected_namespaces=(), allow_inf_nan=False
    )

    @field_validator("*", mode="after")
    @classmethod
    def _finite_in_32_bits(cls, value: Any) -> Any:
        if _exceeds(value):
            raise ValueError(f"expected a number of at most {LARGEST:.2g}")
        return value


def _exceeds(value: Any) -> bool:
    """Whether a number in the value is too large for 32 bits."""
    if isinstance(value, float):
        return abs(value) > LARGEST
    if isinstance(value, Mapping):
        return any(map(_exceeds, value.values()))
    return isinstance(value, list | tuple) and any(map(_exceeds, value))
