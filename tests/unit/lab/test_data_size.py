"""Experiments on the amount of data: the images pixel by pixel, the view by gradients."""

import pytest
import torch
from sweep import Laws, made, value
from torch import nn

from heedful.lab import data_size
from heedful.lab.data_size import LEFT, RIGHT, SIDE, SIGN, SIGNS
from heedful.nn.convolutional import GroupNorm
from heedful.nn.patches import Images


class TestExperiments(Laws):
    family = "data_size"


def test_signs_are_where_they_are_said_to_be(monkeypatch):
    monkeypatch.setattr(data_size, "NOISE", 0.0)
    found = data_size.drawn(97, seed=3)
    for pixels, left, right in zip(found.pixels[:, 0], found.left, found.right, strict=True):
        assert left != right
        halves = pixels[:, : LEFT.stop + SIGN - 1], pixels[:, RIGHT.start :]
        assert pixels.sum() == sum(half.sum() for half in halves) == 10
        for half, kind in zip(halves, (left, right), strict=True):
            rows, columns = half.nonzero().unbind(1)
            y, x = rows.min(), columns.min()
            assert torch.equal(half[y : y + SIGN, x : x + SIGN], data_size.signs()[kind])
    assert {int(kind) for kind in found.left} == set(range(SIGNS))


def test_signs_differ_wherever_they_are_laid():
    signs = data_size.signs()
    for a in range(SIGNS):
        assert signs[a].sum() == 5
        # Every row and column holds a pixel, so that a sign tells where it begins.
        assert signs[a].sum(0).all()
        assert signs[a].sum(1).all()
        for b in range(a):
            assert (signs[a] * signs[b]).sum() <= 3


def test_shuffling_moves_every_image_alike_and_loses_nothing():
    numbers = torch.arange(2.0 * SIDE * SIDE).view(2, 1, SIDE, SIDE)
    first, second = data_size.shuffled(numbers).flatten(1)
    assert torch.equal(first.sort().values, numbers[0].flatten())
    assert torch.equal(second - first, torch.full_like(first, SIDE * SIDE))
    rows, columns = first.view(SIDE, SIDE) // SIDE, first.view(SIDE, SIDE) % SIDE
    near = ((rows.diff() ** 2 + columns.diff() ** 2) <= 2).float().mean()
    assert near < 0.05  # of those that were neighbours
    assert torch.equal(data_size.shuffled(numbers), data_size.shuffled(numbers))


def test_the_networks_are_of_comparable_size():
    sizes = [
        sum(p.numel() for p in data_size.network(config, 0).parameters())
        for config in data_size.NETWORKS.values()
    ]
    assert max(sizes) < 1.34 * min(sizes)


def test_the_resnet_sees_all_of_an_image():
    model = data_size.network(data_size.NETWORKS["ResNet"], 0).double()
    for parent in list(model.modules()):
        for name, part in parent.named_children():
            if isinstance(part, GroupNorm):  # it sees the whole image too, but not what is where
                setattr(parent, name, nn.Identity())
    pixels = torch.randn(1, 1, SIDE, SIDE, dtype=torch.float64, requires_grad=True)
    hidden = model(Images.of(pixels, data_size.NETWORKS["ResNet"].n_tokens))
    (seen,) = torch.autograd.grad(hidden[len(hidden) // 2].sum(), pixels)
    assert seen[0, 0].abs().sum(0).all()
    assert seen[0, 0].abs().sum(1).all()


@pytest.mark.parametrize(
    "leads, verdict",
    [
        ([0.2, 0.0, -0.2], "holds"),
        ([0.2, -0.2, 0.0], "holds with conditions"),
        ([0.2, 0.1], "holds with conditions"),
        ([0.0, -0.2], "is wrong"),
        ([-0.2, 0.2], "is wrong"),
        ([0.01], "is wrong"),
    ],
)
def test_the_verdict(leads, verdict):
    assert data_size.judge(leads) == verdict


def test_each_image_is_learned_from_as_often():
    known = data_size.drawn(70, seed=1)
    numbers = torch.arange(70)
    seen = torch.zeros(70)
    for batch in data_size._batches("ViT", known, numbers, seed=2):
        seen += torch.bincount(batch.classes, minlength=70)
        assert torch.equal(batch.inputs.pixels, known.pixels[batch.classes])
    assert seen.sum() == data_size.UPDATES * data_size.BATCH
    assert seen.max() - seen.min() <= 1


def test_the_resnet_leads_first_and_the_vit_draws_near():
    few, many = made("images-to-learn-from").table
    assert few["ResNet"] > 1 / SIGNS + 0.1
    assert min(many["ResNet"], many["ViT"]) > 0.9
    assert few["ResNet ahead by"] == pytest.approx(few["ResNet"] - few["ViT"])
    assert few["ResNet ahead by"] > many["ResNet ahead by"]
    name = f"accuracy of ViT, {many['images']:,} images"
    assert value("images-to-learn-from", name) == many["ViT"]


def test_without_neighbours_the_lead_goes():
    (few,) = made("images-to-learn-from", control=True).table
    assert few["ResNet ahead by"] < made("images-to-learn-from").table[0]["ResNet ahead by"] - 0.1
