"""Random model configurations are refused by key, or build a model with finite gradients."""

from typing import Any, get_args

import pytest
import torch
from configurations import Drawing
from pydantic import ValidationError

from heedful.models.registry import BUILDERS, SIZES, AnyConfig
from heedful.nn.layout import Layout, Tokens
from heedful.nn.patches import Images
from heedful.recipes.yaml import dump_yaml


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
    return model(images) if config.kind in {"vision", "resnet"} else model(tokens, images)


@pytest.mark.parametrize("config", get_args(AnyConfig), ids=lambda c: c.model_fields["kind"].default)
def test_sizes_are_refused_by_key_or_learn(config, draw, amount):
    drawing, built = Drawing(draw), 0
    for _ in range(amount(40, 500)):
        settings = drawing.settings(config)
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
    with pytest.raises(ValidationError, match="d_model must be even and at least 2"):
        config(d_model=9, layer={"mixer": {"n_heads": 3}}, positions="sinusoidal")
