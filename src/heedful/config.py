"""The base of every typed configuration: frozen, strict, and closed to unknown keys.

Configurations belong to builders and recipes. Blocks (`heedful.nn`) never see one.
"""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen record of settings; an unknown key or a value of another type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())
