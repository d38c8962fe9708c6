"""Models from a preset's name and settings, as Python code and the command line give them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from heedful.config import Config
from heedful.errors import RequestError
from heedful.models.registry import ModelConfig, build_model, preset
from heedful.runs.problems import validate
from heedful.runs.trees import Mark, Tree, merge


class _Wrapped(Config):
    """For validating a model's configuration by itself."""

    model: ModelConfig


def configured(config: Any, changes: Tree) -> Any:
    """A model's configuration with changes laid upon it, validated anew.

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


def plain_settings(settings: Mapping[str, Any]) -> Tree:
    """Settings given in Python, as `configured` takes them."""
    return Tree.of({"model": dict(settings)}, Mark("in the settings"))


def assemble(config: Any, source_vocab: int, target_vocab: int, *, device: str = "cpu") -> nn.Module:
    """A freshly initialised model; on the device ``meta`` it takes no memory and no time.

    Raises:
        RequestError: the vocabularies do not suit the configuration.
    """
    try:
        with torch.device(device):
            return build_model(config, source_vocab, target_vocab)
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
) -> nn.Module:
    """A model, freshly initialised from torch's global generator.

    Args:
        model: a preset's name (``transformer-base``) or a configuration.
        vocab_size: entries of both vocabularies.
        source_vocab: of the source's alone; it stands before ``vocab_size``.
        target_vocab: of the target's alone.
        device: where its parameters are made.
        **settings: changes to the configuration: ``n_heads=16``. An unknown one is an error.

    Raises:
        RequestError: no such preset, a wrong setting, or no size of a vocabulary.
    """
    source, target = source_vocab or vocab_size, target_vocab or vocab_size
    if source is None or target is None:
        raise RequestError("give vocab_size, or both source_vocab and target_vocab")
    return assemble(configured(model, plain_settings(settings)), source, target, device=device)
