"""Mistakes in parts of a user's own: messages name the class."""

import doctest

import pytest
import torch
from torch import nn
from torch.nn import functional

import heedful
from heedful.errors import RequestError, WorkError
from heedful.nn.attention.scores import ScoreFunction
from heedful.objectives.terms import Term
from heedful.parts import allow_part

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


class Distance(ScoreFunction):
    """A score with an operation that does not support bf16."""

    def forward(self, queries, keys):
        """Compute the negative distance."""
        return -torch.cdist(queries, keys)


class NoScores(ScoreFunction):
    """A score that returns nothing."""

    def forward(self, queries, keys):
        """Return None."""


class WholeScores(ScoreFunction):
    """A score that returns whole numbers."""

    def forward(self, queries, keys):
        """Round the product."""
        return (queries @ keys.mT).long()


class Unfinished(ScoreFunction):
    """A score without `forward`."""


class UnfinishedModule(nn.Module):
    """A module without `forward`."""


class Column(nn.Module):
    """A part whose output would broadcast."""

    def forward(self, x):
        """Compute ``[T, 1]``."""
        return x.sum(-1, keepdim=True)


class Nothing(nn.Module):
    """A part that returns nothing."""

    def forward(self, x, *context):
        """Return None."""


class Loss:
    """A loss with a wrong result, or wrong counts."""

    result, known = 3.0, {"mine": 1}

    def counts(self, batch):
        """Return the counts."""
        return self.known

    def __call__(self, hidden, heads, batch):
        """Return the result."""
        return self.result


class EmptyLoss(Loss):
    """A loss without terms."""

    result = ()


class CountlessLoss(Loss):
    """A loss whose counts are a list."""

    known = ("mine",)


class OtherCountsLoss(Loss):
    """A loss whose counts lack its term."""

    result = (Term("yours", torch.ones((), requires_grad=True), 1),)


class NoCounts:
    """A loss without `counts`."""

    def __call__(self, hidden, heads, batch):
        """Return no terms."""
        return []


class Metric:
    """A metric that returns nothing."""

    def __call__(self, rows, predictions):
        """Return None."""


class Table(Metric):
    """A metric that returns a mapping."""

    def __call__(self, rows, predictions):
        """Return a dict."""
        return {"mine": 1.0}


class NotCallable:
    """A metric that cannot be called."""


def train(folder, **overrides):
    data = {"train": ROWS, "valid": ROWS}
    settings = {**TINY, **{f"model.layer.{key}": part for key, part in overrides.items()}}
    if "mixer" in overrides:
        del settings["model.layer.mixer.n_heads"]
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
        ({"score": NoScores}, r"NoScores: expected scores as a tensor \[\.\.\., Q, K\], got None"),
        ({"score": WholeScores}, r"WholeScores: expected scores of the type of .*float32, got torch.int64"),
        ({"score": Unfinished}, ":Unfinished: the class must define forward"),
        (
            {"score": train},
            ":train requires the setting 'folder'.*, give a class",
        ),
        ({"norm": UnfinishedModule}, ":UnfinishedModule: the class must define forward"),
        ({"norm": Column}, r"Column: expected an output of the shape of .*, 6\), got shape \(\d+, 1\)"),
        ({"channels": Column}, r"Column: expected an output of the shape of .* got shape \(\d+, 1\)"),
        ({"channels": Nothing}, r"Nothing: expected an output of the shape of the input, .*, got None"),
        ({"mixer": Nothing}, r"Nothing: expected an output of the shape of the input, .*, got None"),
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


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"objective.loss": Loss}, r"Loss: expected a list of heedful\.objectives\.terms\.Term, got a float"),
        (
            {"objective.loss": EmptyLoss},
            "EmptyLoss: expected at least one term .*, got a tuple of 0",
        ),
        ({"objective.loss": CountlessLoss}, "CountlessLoss: expected a dict of counts, .*, got a tuple of 1"),
        (
            {"objective.loss": OtherCountsLoss},
            "OtherCountsLoss: counts must .* 'yours' is missing, .* mine",
        ),
        ({"objective.loss": NoCounts}, ":NoCounts: the class must define counts"),
        (
            {"objective.loss": functional.cross_entropy},
            ":cross_entropy requires the setting 'input'.*, give a class",
        ),
        ({"evaluation.metrics": [NotCallable]}, ":NotCallable: the class must define __call__"),
        ({"evaluation.metrics": [train]}, ":train requires the setting 'folder'.*, give a class"),
    ],
)
def test_mistakes_in_losses_and_metrics_name_their_class(setting, message, tmp_path):
    data = {"train": ROWS, "valid": ROWS}
    with pytest.raises(RequestError, match=message):
        heedful.train(
            "my-own-labels", tmp_path / "run", data=data, overrides={**TINY, **setting}, progress=False
        )


@pytest.mark.parametrize(("metric", "got"), [(Metric, "None"), (Table, "a dict")])
def test_a_metric_that_returns_no_number_is_named(metric, got, make_run, tmp_path):
    recipe = {
        "task": {"kind": "classification"},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {"kind": "encoder", "d_model": 6, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}}},
        "evaluation": {"metrics": [allow_part(metric)]},
    }
    run = heedful.load(make_run(tmp_path / "run", recipe, ROWS))
    message = f":{metric.__name__}: expected a number or a .*Score as its result, got {got}"
    with pytest.raises(RequestError, match=message):
        run.evaluate(data=ROWS)


IN_BF16 = {"training": {**TINY["training"], "precision": "bf16"}}


def test_the_example_of_a_part_trains_in_bf16(tmp_path):
    *definitions, _ = doctest.DocTestParser().get_examples(heedful.part.__doc__)
    names = {"heedful": heedful, "__name__": "example"}
    exec("".join(example.source for example in definitions), names)
    q, k = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    torch.testing.assert_close(names["NegativeDistance"]()(q, k), -torch.cdist(q, k).square())
    overrides = {**TINY, **IN_BF16, **names["changes"]}
    data = {"train": ROWS, "valid": ROWS}
    heedful.train("my-own-labels", tmp_path / "run", data=data, overrides=overrides, progress=False)


def test_a_part_that_does_not_support_bf16_is_named(tmp_path):
    overrides = {**TINY, **IN_BF16, "model.layer.mixer.score": Distance}
    data = {"train": ROWS, "valid": ROWS}
    with pytest.raises(WorkError, match=r"part of your own \(Distance\).* bf16: .*cdist.*precision=fp32"):
        heedful.train("my-own-labels", tmp_path / "run", data=data, overrides=overrides, progress=False)
