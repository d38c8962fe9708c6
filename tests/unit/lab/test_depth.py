"""Experiments on depth: figures by formula, and sums of Jacobians by trying."""

import torch
from sweep import Laws, curve, hold_what_is_expected, made

from heedful.lab import depth


class TestExperiments(Laws):
    family = "depth"


def test_what_is_expected_is_measured():
    hold_what_is_expected("residual-paths", rel=1e-6, abs=1e-4)
    for control in (False, True):
        hold_what_is_expected("attention-is-linear", control, rel=1e-6, abs=1e-4)


def test_the_fewest_terms_are_found():
    one, two, three = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), torch.tensor([7.0, 1.0])
    assert depth._fewest(one + three, [one, two, three]) == (0, 2)
    assert depth._fewest(two, [one, two, three]) == (1,)
    assert depth._fewest(one - two, [one, two, three]) == ()


def test_without_residuals_the_way_through_both_parts_is_left():
    parts = {row["path"]: row["part of the sum"] for row in made("residual-paths", True).table}
    assert parts == dict(zip(depth.PATHS, ("no", "no", "no", "yes"), strict=True))


def test_distances_fall_with_every_layer():
    _, distances = curve("re-averaging", 0, "")
    assert list(distances) == sorted(distances, reverse=True)
