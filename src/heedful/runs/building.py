"""Models from a preset's name and settings, as Python code and the command line give them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar

import torch
from torch import nn

from heedful.config import Config
from heedful.errors import RequestError
from heedful.memory import room_for
from heedful.models.base import Model
from heedful.models.registry import SIZES, ModelConfig, build_model, preset
from heedful.recipes.problems import validate
from heedful.recipes.trees import Mark, Tree, merge
from heedful.typing import JsonMapping


@dataclass(frozen=True)
class Vocabularies:
    """Sizes that were asked for: of all vocabularies, or of one side (which takes precedence)."""

    vocab_size: int | None = None
    source_vocab: int | None = None
    target_vocab: int | None = None

    def sizes(self, kind: str, defaults: Sequence[int] | None = None) -> tuple[int, ...]:
        """What a model of this kind is built with.

        Args:
            kind: the family, which defines what it needs (`heedful.models.registry.SIZES`).
            defaults: for sizes that are not given; one for all, or one for each.

        Raises:
            RequestError: a size was given that the family has not, or one is missing or no whole number.
        """
        for name, size in vars(self).items():
            if size is not None and (isinstance(size, bool) or not isinstance(size, Integral) or size < 1):
                raise RequestError(f"{name}: expected a whole number of at least 1, got {size!r}")
        names = SIZES[kind]
        if not names and any(vars(self).values()):
            raise RequestError(f"a {kind} model reads no text: it has no vocabulary to give a size of")
        strange = [n for n, v in vars(self).items() if v is not None and n not in {*names, "vocab_size"}]
        if strange:
            raise RequestError(f"{strange[0]}: a {kind} has one vocabulary; give vocab_size")
        fallback = [None] * len(names) if defaults is None else [*defaults] * (len(names) // len(defaults))
        pairs = zip(names, fallback, strict=True)
        found = [getattr(self, name) or self.vocab_size or default for name, default in pairs]
        if None in found:
            both = f", or both {' and '.join(names)}" if len(names) > 1 else ""
            raise RequestError(f"give vocab_size{both}")
        return tuple(size for size in found if size is not None)

    def complete(self, kind: str) -> bool:
        """Whether nothing is left to a default."""
        return self.vocab_size is not None or all(getattr(self, name) for name in SIZES[kind])


class _Wrapped(Config):
    """For validating a model's configuration by itself."""

    model: ModelConfig


def configured(config: Any, changes: Tree) -> Any:
    """Apply changes to a model's configuration, and validate it.

    Args:
        config: a configuration, or a preset's name.
        changes: a map with the changes under ``model``.

    Raises:
        RequestError: no such preset, or a setting is wrong.
    """
    base = preset(config) if isinstance(config, str) else config
    name = config if isinstance(config, str) else base.kind
    below = Tree.of({"model": base.model_dump(mode="json")}, Mark(name))
    return validate(merge(below, changes), _Wrapped).model


def plain_settings(settings: JsonMapping) -> Tree:
    """Settings given in Python, as `configured` takes them."""
    return Tree.of({"model": dict(settings)}, Mark("in the settings"))


Built = TypeVar("Built", bound=nn.Module)


def assemble(config: Any, *sizes: int, device: str = "cpu") -> Model:
    """A freshly initialised model; on the device ``meta`` it takes no memory and no time.

    ``sizes`` are those of the vocabularies, as `build_model` takes them.

    Raises:
        RequestError: the vocabularies do not suit the configuration.
    """
    return on_device(device, build_model, config, *sizes)


def on_device(device: str, make: Callable[..., Built], *arguments: Any) -> Built:
    """What ``make`` makes of the arguments, with its parameters on the device.

    Raises:
        RequestError: for the ValueError of sizes that do not suit a configuration.
    """
    try:
        with torch.device(device), room_for("this model does not fit in memory; lower its sizes"):
            return make(*arguments)
    except ValueError as error:
        raise RequestError(str(error)) from None


def build(
    model: Any,
    *,
    vocab_size: int | None = None,
    source_vocab: int | None = None,
    target_vocab: int | None = None,
    device: str = "cpu",
    **settings: Any,
) -> Model:
    """A model, freshly initialised from torch's global generator.

    Args:
        model: a preset's name (``transformer-base``, ``gpt2``) or a configuration.
        vocab_size: entries of the vocabulary, or of both.
        source_vocab: of the source's alone; it takes precedence over ``vocab_size``.
        target_vocab: of the target's alone.
        device: where its parameters are made.
        **settings: changes to the configuration: ``n_layers=16``. An unknown one is an error.

    Raises:
        RequestError: no such preset, a wrong setting, or no size of a vocabulary.
    """
    config = configured(model, plain_settings(settings))
    sizes = Vocabularies(vocab_size, source_vocab, target_vocab).sizes(config.kind)
    return assemble(config, *sizes, device=device)
