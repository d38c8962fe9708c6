"""Build models from the name of a preset and settings, given in Python or on the command line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TypeVar

import torch
from torch import nn

from heedful.config import Config
from heedful.errors import RequestError, type_name
from heedful.memory import gibibytes, machine_memory, memory_errors_as
from heedful.models.base import Model
from heedful.models.registry import SIZES, AnyConfig, ModelConfig, build_model, preset
from heedful.recipes.problems import validate
from heedful.recipes.settings import plain
from heedful.recipes.trees import Mark, Tree, merge


@dataclass(frozen=True)
class Vocabularies:
    """Requested vocabulary sizes: of all vocabularies, or of one side, which takes precedence."""

    vocab_size: int | None = None
    source_vocab: int | None = None
    target_vocab: int | None = None

    def sizes(self, kind: str, defaults: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the sizes that a model of this kind is built with.

        Args:
            kind: the family, which defines the sizes that it needs (`heedful.models.registry.SIZES`).
            defaults: sizes that are used if none is given; one for all, or one for each.

        Raises:
            RequestError: a size does not apply to the family, is missing, or is not a whole number.
        """
        for name, size in vars(self).items():
            if size is not None and (isinstance(size, bool) or not isinstance(size, Integral) or size < 1):
                raise RequestError(f"{name}: expected a whole number of at least 1, got {size!r}")
        names = SIZES[kind]
        if not names and any(vars(self).values()):
            raise RequestError(f"vocabulary sizes are not supported for a {kind} model, which reads no text")
        inapplicable = [n for n, v in vars(self).items() if v is not None and n not in {*names, "vocab_size"}]
        if inapplicable:
            raise RequestError(
                f"{inapplicable[0]}: a {kind} model has one vocabulary; set vocab_size instead"
            )
        fallback = [None] * len(names) if defaults is None else [*defaults] * (len(names) // len(defaults))
        pairs = zip(names, fallback, strict=True)
        sizes = [getattr(self, name) or self.vocab_size or default for name, default in pairs]
        if None in sizes:
            all_options = f", or both {' and '.join(names)}" if len(names) > 1 else ""
            raise RequestError(f"vocab_size is required{all_options}")
        return tuple(size for size in sizes if size is not None)

    def complete(self, kind: str) -> bool:
        """Return whether no default is needed."""
        return self.vocab_size is not None or all(getattr(self, name) for name in SIZES[kind])


class _Wrapped(Config):
    """Root for the validation of a model's configuration alone."""

    model: ModelConfig


def configured(config: str | AnyConfig, changes: Tree) -> AnyConfig:
    """Return a model's configuration with changes, validated.

    Args:
        config: a configuration, or the name of a preset.
        changes: a map with the changes under ``model``.

    Raises:
        RequestError: the preset is unknown, or a setting is wrong.
    """
    if not isinstance(config, str | Config):
        raise RequestError(
            f"model: expected the name of a preset or a configuration, got {type_name(config)}; give "
            "settings by name, such as n_layers=2"
        )
    base = preset(config) if isinstance(config, str) else config
    name = config if isinstance(config, str) else base.kind
    base_tree = Tree.of({"model": base.model_dump(mode="json")}, Mark(name))
    return validate(merge(base_tree, changes), _Wrapped).model


TOO_LARGE = "this model does not fit in memory"

Built = TypeVar("Built", bound=nn.Module)


def assemble(config: AnyConfig, *sizes: int, device: str = "cpu") -> Model:
    """Return a newly initialised model; on the device ``meta`` it takes no memory and no time.

    ``sizes`` are those of the vocabularies (`heedful.models.registry.build_model`).

    Raises:
        RequestError: the vocabularies do not fit the configuration.
    """
    return on_device(device, build_model, config, *sizes)


def on_device(device: str, build: Callable[..., Built], *args: object) -> Built:
    """Call ``build``, with the parameters that it creates on the device.

    Raises:
        RequestError: ``build`` raised a ValueError, for sizes that do not fit a configuration.
    """
    try:
        with torch.device(device), memory_errors_as(f"{TOO_LARGE}; lower its sizes"):
            return build(*args)
    except ValueError as error:
        raise RequestError(str(error)) from None


def build(
    model: str | AnyConfig,
    *,
    vocab_size: int | None = None,
    source_vocab: int | None = None,
    target_vocab: int | None = None,
    device: str = "cpu",
    **settings: object,
) -> Model:
    """Return a model, newly initialised from torch's global generator.

    Args:
        model: the name of a preset (``transformer-base``, ``gpt2``) or a configuration.
        vocab_size: number of entries of the vocabulary, or of both.
        source_vocab: number of entries of the source vocabulary; it takes precedence over ``vocab_size``.
        target_vocab: number of entries of the target vocabulary, likewise.
        device: the device of its parameters.
        **settings: changes of the configuration, such as ``n_layers=16``.

    Raises:
        RequestError: the preset is unknown, a setting is wrong, the size of a vocabulary is missing, or the
            weights do not fit in memory.
    """
    config = configured(model, Tree.of({"model": plain(settings, "settings")}, Mark("in the settings")))
    sizes = Vocabularies(vocab_size, source_vocab, target_vocab).sizes(config.kind)
    if torch.device(device).type == "cpu":
        _require_memory(assemble(config, *sizes, device="meta"))
    return assemble(config, *sizes, device=device)


def _require_memory(model: Model) -> None:
    """Refuse weights that do not fit in memory before any are allocated.

    Raises:
        RequestError: with both sizes.
    """
    needed, available = sum(p.numel() * p.element_size() for p in model.parameters()), machine_memory()
    if available is not None and needed > available:
        raise RequestError(
            f"{TOO_LARGE}: its weights take {gibibytes(needed)}, and this machine has "
            f"{gibibytes(available)}; lower its sizes"
        )
