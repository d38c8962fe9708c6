"""Mistakes in parts of a user's own: messages name the class."""

import pytest
import torch
from torch import nn

import heedful
from heedful.errors import RequestError, WorkError
from heedful.nn.attention.scores import ScoreFunction

ROWS = [{"text": "a b", "label": "x"}, {"text": "b c", "label": "y"}] * 9
TINY = {
    "model": {"d_model": 6, "n_layers": 1},
    "model.layer.mixer.n_heads": 2,
    "tokenizer.subwords": {"kind": "word"},
    "training": {"max_updates": 1, "processes": 1, "precision": "fp32", "compile": "off"},
}


class OneNumber(ScoreFunction):
    """The score of each query alone: of the wrong shape."""

    def forward(self, queries, keys):
        """Compute ``[..., Q]``."""
        return queries.sum(-1)


class Forgetful(ScoreFunction):
    """A score without parameters that does not call the constructor of its base class."""

    def __init__(self):
        self.scale = 2.0

    def forward(self, queries, keys):
        """Compute the scaled product."""
        return self.scale * queries @ keys.mT


class ForgetfulNorm(nn.Module):
    """The same with a parameter."""

    def __init__(self, d_model):
        self.scale = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        """Scale."""
        return x * self.scale


class NeedsWidth(ScoreFunction):
    """A score that needs a setting."""

    def __init__(self, dim):
        super().__init__()

    def forward(self, queries, keys):
        """Compute the product."""
        return queries @ keys.mT


class Broken(nn.Module):
    """A norm whose values are not numbers."""

    def forward(self, x):
        """Compute 0 / 0."""
        return (x - x) / (x - x)


def train(folder, **overrides):
    data = {"train": ROWS, "valid": ROWS}
    settings = {**TINY, **{f"model.layer.{key}": part for key, part in overrides.items()}}
    settings = {key.replace("layer.score", "layer.mixer.score"): value for key, value in settings.items()}
    return heedful.train("my-own-labels", folder, data=data, overrides=settings, progress=False)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"score": OneNumber},
            r"OneNumber: expected scores \[\.\.\., Q, K\] with \(Q, K\) = \(\d+, \d+\), got the shape \(",
        ),
        ({"score": Forgetful}, r":Forgetful: __init__ must begin with super\(\).__init__\(\)"),
        ({"norm": ForgetfulNorm}, r":ForgetfulNorm: __init__ must begin with super\(\).__init__\(\)"),
        (
            {"score": NeedsWidth},
            ":NeedsWidth requires the setting 'dim'; the sizes that are passed by name are d_q, d_k, n_heads",
        ),
    ],
)
def test_mistakes_in_a_part_name_its_class(overrides, message, tmp_path):
    with pytest.raises(RequestError, match=message):
        train(tmp_path / "run", **overrides)


def test_a_part_of_ones_own_is_named_where_the_first_loss_is_not_finite(tmp_path):
    with pytest.raises(
        WorkError, match=r"update 1: the loss is nan \(the model has a part of your own: Broken;"
    ):
        train(tmp_path / "run", norm=Broken)
