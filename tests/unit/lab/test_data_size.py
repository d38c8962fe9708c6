"""Experiments on the amount of data: the pictures pixel by pixel, the windows by gradients."""

import torch
from sweep import Laws, made, value
from torch import nn

from heedful.lab import data_size
from heedful.lab.data_size import LEFT, RIGHT, SIDE, SIGN, SIGNS, WINDOW
from heedful.nn.convolutional import GroupNorm
from heedful.nn.patches import Pictures


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


def test_a_window_sees_one_sign_and_no_rim():
    assert RIGHT.start - (LEFT.stop - 1 + SIGN - 1) + 1 > WINDOW
    assert LEFT.start >= WINDOW - SIGN
    assert SIDE - (RIGHT.stop - 1 + SIGN) >= WINDOW - SIGN


def test_the_convolutions_windows_are_so_wide():
    model = data_size.network(data_size.NETWORKS["ResNet"], 0).double()
    for parent in list(model.modules()):
        for name, part in parent.named_children():
            if isinstance(part, GroupNorm):  # it sees the whole picture, but not what is where
                setattr(parent, name, nn.Identity())
    pixels = torch.randn(1, 1, SIDE, SIDE, dtype=torch.float64, requires_grad=True)
    hidden = model(Pictures.of(pixels, data_size.NETWORKS["ResNet"].n_tokens))
    middle = len(hidden) // 2 + 6  # a place off the rim
    (seen,) = torch.autograd.grad(hidden[middle].sum(), pixels)
    columns = seen[0, 0].abs().sum(0).nonzero()
    assert columns.max() - columns.min() + 1 <= WINDOW


def test_each_picture_is_learned_from_as_often():
    known = data_size.drawn(70, seed=1)
    numbers = torch.arange(70)
    seen = torch.zeros(70)
    for batch in data_size._batches("ViT", known, numbers, seed=2):
        seen += torch.bincount(batch.classes, minlength=70)
        assert torch.equal(batch.inputs.pixels, known.pixels[batch.classes])
    assert seen.sum() == data_size.UPDATES * data_size.BATCH
    assert seen.max() - seen.min() <= 1


def test_the_resnet_leads_first_and_the_vit_at_last():
    few, many = (row["pictures"] for row in made("pictures-to-learn-from").table)
    for control in (False, True):
        ahead = [row["ResNet ahead by"] for row in made("pictures-to-learn-from", control).table]
        assert ahead[0] > ahead[1]  # the lead shrinks in both
        for n in (few, many):
            assert value("pictures-to-learn-from", f"accuracy of ResNet, {n:,}", control) > 1 / SIGNS
