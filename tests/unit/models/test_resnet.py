"""Residual networks: published size, the grid at the end, and the whole against its formula."""

import pytest
import torch
from torch.nn import functional

from heedful.models.encoder import class_head
from heedful.models.resnet import PRESETS, ResNetConfig, build
from heedful.nn.layout import Tokens
from heedful.nn.patches import Images

SMALL = {"image_size": 13, "channels": 2, "n_blocks": [1, 2], "width": 4, "n_groups": 2}


def size(*models):
    return sum(p.numel() for model in models for p in model.parameters())


def resnet(**options):
    torch.manual_seed(1)
    config = ResNetConfig.model_validate({**SMALL, **options})
    return config, build(config).eval()


@pytest.mark.parametrize(
    "name, classes, wanted", [("bit-r50x1", 1000, 25_549_352), ("resnet-mini", 10, 219_194)]
)
def test_published_sizes(name, classes, wanted):
    config = PRESETS[name]
    with torch.device("meta"):
        model, head = build(config), class_head(config.d_model, classes, config.dropout)
    assert size(model, head) == wanted


def test_the_size_of_bit_r50x1_is_that_of_its_formula():
    """Blocks of d -> m -> m -> 4 m have d m + 9 m^2 + 4 m^2 weights, 2 (d + 2 m) in norms."""
    wanted, d = 7 * 7 * 3 * 64, 64
    for m, n in ((64, 3), (128, 4), (256, 6), (512, 3)):
        wanted += d * 4 * m
        for _ in range(n):
            wanted += d * m + 9 * m * m + m * 4 * m + 2 * (d + m + m)
            d = 4 * m
    wanted += 2 * d + 1000 * d + 1000
    assert wanted == 25_549_352


@pytest.mark.parametrize("name, grid", [("bit-r50x1", (7, 7)), ("resnet-mini", (7, 7))])
def test_the_grid_at_the_end(name, grid):
    assert PRESETS[name].grid == grid


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"image_size": 12},
        {"root_kernel": 3, "root_stride": 1, "root_pool": False},
        {"root_stride": 3, "n_blocks": [1, 1, 1], "image_size": 31},
    ],
)
def test_hidden_states_are_one_for_each_place_of_the_grid(options):
    config, model = resnet(**options)
    x = torch.randn(2, 2, config.image_size, config.image_size)
    inputs = Images.of(x, config.n_tokens)
    assert model.n_tokens == config.n_tokens
    hidden = model(inputs)
    assert hidden.shape == (2 * config.n_tokens, config.d_model)
    maps = functional.relu(model.norm(model.blocks(model.root(x))))
    for b in range(2):
        for i in range(config.grid[0]):
            for j in range(config.grid[1]):
                token = hidden[b * config.n_tokens + i * config.grid[1] + j]
                assert torch.equal(token, maps[b, :, i, j])
    pooled = model.heads["pooled"](hidden, inputs.layout)
    torch.testing.assert_close(pooled, maps.mean((2, 3)), rtol=0, atol=1e-5)


def test_the_root_of_bit_takes_the_greatest_of_neighbours_and_zeros():
    _, model = resnet()
    x = torch.randn(2, 2, 13, 13)
    maps = model.root[0](x)  # 7 x 7 places
    assert maps.shape == (2, 4, 7, 7)
    wanted = torch.zeros(2, 4, 4, 4)
    for i in range(4):
        for j in range(4):
            near = [
                maps[:, :, p, q] if p in range(7) and q in range(7) else torch.zeros(2, 4)
                for p in range(2 * i - 1, 2 * i + 2)
                for q in range(2 * j - 1, 2 * j + 2)
            ]
            wanted[:, :, i, j] = torch.stack(near).amax(0)
    assert torch.equal(model.root(x), wanted)


def test_strides_stand_at_the_begin_of_every_stage_but_the_first():
    _, model = resnet(n_blocks=[2, 3, 1])
    strides = [block.convolutions[1].stride for block in model.blocks]
    assert strides == [1, 1, 2, 1, 1, 2]
    assert [block.shortcut is not None for block in model.blocks] == [True, False, True, False, False, True]


@pytest.mark.parametrize(
    "options, message",
    [({"n_groups": 3}, "n_groups must divide width"), ({"root_kernel": 4}, "root_kernel must be odd, got 4")],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ResNetConfig.model_validate({**SMALL, **options})


def test_a_layout_of_other_tokens_and_a_source_are_refused():
    config, model = resnet()
    x = torch.randn(2, 2, 13, 13)
    with pytest.raises(ValueError, match="layout must have 4 tokens"):
        model(Images.of(x, 5))
    with pytest.raises(ValueError, match="has no source"):
        model(Images.of(x, config.n_tokens), Tokens.of([[4]]))
