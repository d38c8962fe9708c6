"""Experiments on filters: constructions against plain loops, counts by formula."""

import pytest
import torch
from sweep import Laws, hold_what_is_expected
from torch.nn import functional

from heedful.lab.experiments import filters


class TestExperiments(Laws):
    family = "filters"


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("name", ["pixels-as-tokens", "attention-as-filter"])
def test_what_is_expected_is_measured(name, control):
    hold_what_is_expected(name, control, rel=1e-6, abs=1e-4)


def test_as_many_heads_as_places_convolve_and_one_less_does_not():
    generator = torch.Generator().manual_seed(1)
    image = torch.randn(filters.CHANNELS_IN, 5, 6, generator=generator)
    shape = filters.CHANNELS_OUT, filters.CHANNELS_IN, 3, 3
    kernel = torch.randn(shape, generator=generator)
    wanted = torch.zeros(filters.CHANNELS_OUT, 5, 6)
    padded = functional.pad(image, (1, 1, 1, 1))
    for row in range(5):
        for column in range(6):
            window = padded[:, row : row + 3, column : column + 3]
            wanted[:, row, column] = torch.einsum("oikl,ikl->o", kernel, window)
    with torch.no_grad():
        nine = filters._apply_to_image(filters.convolving_attention(kernel, 128.0, 9), image)
        eight = filters._apply_to_image(filters.convolving_attention(kernel, 128.0, 8), image)
    torch.testing.assert_close(nine, wanted, rtol=0, atol=1e-4)
    assert (eight - wanted).abs().max() > 0.1
