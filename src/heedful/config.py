"""Base class of all typed configurations: frozen, strict, without unknown keys.

Builders and recipes use configurations. Blocks (`heedful.nn`) never see one.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

LARGEST = 3.4028234663852886e38
"""The largest finite 32-bit floating-point number, the type in which models compute."""

LARGEST_WHOLE = 2**63 - 1
"""The largest signed 64-bit integer, the index type of torch and numpy."""


class Config(BaseModel):
    """Frozen record of settings; unknown keys and values of another type are errors.

    Floating-point numbers must be finite in 32 bits, and integers must fit in 64 bits.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, protected_namespaces=(), allow_inf_nan=False
    )

    @field_validator("*", mode="after")
    @classmethod
    def _finite_in_32_bits(cls, value: Any) -> Any:
        if (limit := _exceeded(value)) is not None:
            raise ValueError(f"expected a number of at most {limit:.2g}")
        return value


def _exceeded(value: Any) -> float | None:
    """Return the limit that a number in the value exceeds, or None."""
    if isinstance(value, int):
        return LARGEST_WHOLE if abs(value) > LARGEST_WHOLE else None
    if isinstance(value, float):
        return LARGEST if abs(value) > LARGEST else None
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return next((limit for part in parts if (limit := _exceeded(part)) is not None), None)
