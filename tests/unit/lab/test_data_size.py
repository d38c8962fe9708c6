"""ViT against ResNet: what they are trained on, and the verdict by made-up leads."""

import pytest
import torch
from sweep import Laws, measured, value

from heedful.lab import data_size


class TestExperiments(Laws):
    family = "data_size"


def test_the_pictures_are_those_of_the_corpus():
    pixels, classes = data_size.digits(data_size.TRAIN)
    unseen, _ = data_size.digits(data_size.TEST)
    assert (len(pixels), len(unseen)) == (1497, 300)
    assert len(classes) == max(data_size.PICTURES["long"])
    assert set(classes) == set(range(10))
    assert pixels.min() == -1
    assert pixels.max() == 1


def test_scattered_pixels_are_the_same_ones_elsewhere():
    pixels = torch.arange(128.0).view(2, 1, 8, 8)
    scattered = data_size.permuted(pixels)
    assert scattered.shape == pixels.shape
    torch.testing.assert_close(scattered[1], scattered[0] + 64)
    torch.testing.assert_close(scattered.flatten(1).sort(1).values, pixels.flatten(1))
    assert not torch.equal(scattered, pixels)


def test_both_models_have_about_as_many_parameters():
    one, two = (measured("vit-against-resnet", f"parameters, {name}").value for name in data_size.CONFIGS)
    assert one == pytest.approx(two, rel=0.15)


@pytest.mark.parametrize(
    "leads, verdict",
    [
        ([0.2, 0.1, -0.1], "holds"),
        ([0.2, 0.1, 0.0], "holds with conditions"),
        ([0.2, 0.3, 0.15], "is wrong"),
        ([0.01, 0.0, -0.1], "is wrong"),
    ],
)
def test_the_verdict(leads, verdict):
    assert data_size._verdict(leads) == verdict


def test_both_learn():
    for name in data_size.CONFIGS:
        assert value("vit-against-resnet", f"right, {name}, 1497") > 80
        assert value("vit-against-resnet", f"right, {name}, 60") > 20
