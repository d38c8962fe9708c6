"""Random model configurations are refused by key, or build a model with finite gradients."""

import random
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import torch
from pydantic import BaseModel, ValidationError

from heedful.models.registry import BUILDERS, SIZES, AnyConfig
from heedful.nn.layout import Layout, Tokens
from heedful.nn.patches import Images
from heedful.recipes.yaml import dump_yaml

SMALL = {
    "d_model": (3, 4, 6, 8, 9, 12),
    "n_heads": (1, 2, 3),
    "n_layers": (1, 2),
    "n_decoder_layers": (1, 2),
    "d_ff": (4, 5),
    "d_embedding": (3, 4, 6),
    "d_hidden": (4, 5, 6),
    "width": (4, 5, 6),
    "image_size": (8, 12, 16),
    "patch_size": (3, 4),
}


def drawn(kind: Any, rng: random.Random) -> Any:
    """A value of the type, often at an edge of what a configuration takes."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return drawn(parts[0], rng)
    if origin is Literal:
        return rng.choice(parts)
    if origin in (Union, types.UnionType):
        return drawn(rng.choice(parts), rng)
    if origin in (list, tuple):
        return [drawn(parts[0], rng) for _ in range(rng.randint(0, 3))]
    if kind is bool:
        return rng.random() < 0.5
    if kind is int:
        return rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
    if kind is float:
        return rng.choice([0.0, 0.1, 0.5, 0.9, 1.0, 2.0])
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return tree(kind, rng, 0.5)
    return None


def tree(config: type[BaseModel], rng: random.Random, share: float = 0.25) -> dict[str, Any]:
    """Settings of a configuration: small sizes always, of the other fields a share."""
    settings: dict[str, Any] = {}
    for key, field in config.model_fields.items():
        if key == "kind":
            settings[key] = field.default
        elif key in SMALL:
            settings[key] = rng.choice(SMALL[key])
        elif field.is_required() or rng.random() < share:
            settings[key] = drawn(field.annotation, rng)
    return settings


def hidden(model: torch.nn.Module, config: Any) -> torch.Tensor:
    """What a model makes of two sequences, of two images, or of both."""
    lengths = [1, min(2, getattr(config, "longest", None) or 2)]
    tokens = Tokens(torch.tensor([1, 8, 9][: sum(lengths)]), Layout.of(lengths))
    if config.kind in {"language-model", "encoder"}:
        return model(tokens)
    if config.kind in {"transformer", "recurrent"}:
        return model(tokens, tokens)
    pixels = torch.rand(2, config.channels, config.image_size, config.image_size)
    images = Images.of(pixels, config.n_tokens)
    return model(tokens, images) if config.kind == "captioner" else model(images)


@pytest.mark.parametrize("config", get_args(AnyConfig), ids=lambda c: c.model_fields["kind"].default)
def test_sizes_are_refused_by_key_or_learn(config, draw, amount):
    built = 0
    for _ in range(amount(40, 500)):
        settings = tree(config, draw)
        try:
            made = config.model_validate(settings)
        except ValidationError as error:
            refusals = error.errors()
        else:
            refusals = []
        named = [e for e in refusals if e["loc"] or any(key in e["msg"] for key in config.model_fields)]
        assert named == refusals, dump_yaml({"model": settings})
        if refusals:
            continue
        built += 1
        try:
            model = BUILDERS[made.kind](made, **dict.fromkeys(SIZES[made.kind], 11))
            y = hidden(model, made)
            y.square().sum().backward()
            assert y.isfinite().all()
            assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\n{dump_yaml({'model': settings})}")
    assert built


@pytest.mark.parametrize("kind", ["transformer", "captioner", "encoder", "language-model"])
def test_an_odd_width_is_refused_by_its_key(kind):
    config = next(c for c in get_args(AnyConfig) if c.model_fields["kind"].default == kind)
    with pytest.raises(ValidationError, match="d_model=9 must be even"):
        config(d_model=9, n_heads=3, positions="sinusoidal")
