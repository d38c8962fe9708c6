"""A recipe whose score, visible tokens, norm, mixer, cell, objective, metric and task are a user's own."""

import json

import pytest

MODULE = '''
"""Parts of a user's own."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from heedful.nn.attention.scores import ScoreFunction
from heedful.nn.cells import Cell
from heedful.nn.visibility import AttentionPattern
from heedful.objectives.classification import class_logits
from heedful.objectives.terms import Term
from heedful.tasks.classification import Classification, ClassificationConfig, ClassificationRecipe


class Distance(ScoreFunction):
    """Minus the squared distance of query and key, divided by a temperature."""

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, queries, keys):
        return -(queries.unsqueeze(-2) - keys.unsqueeze(-3)).square().sum(-1) / self.temperature


@dataclass(frozen=True)
class NotItself(AttentionPattern):
    """Tokens that are at least so far away, and the first one."""

    distance: int = 1

    def sees(self, query, key):
        return ((query - key).abs() >= self.distance) | (key == 0)


class ScaleNorm(nn.Module):
    """g x / |x| (Nguyen and Salazar 2019)."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.tensor(d_model**0.5)), eps

    def forward(self, x):
        return self.gain * x / x.norm(dim=-1, keepdim=True).clamp(min=self.eps)


class Shift(nn.Module):
    """The previous token of the same sequence, in a linear map."""

    def __init__(self, d_model: int, bias: bool) -> None:
        super().__init__()
        self.map = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x, layout, cache=None):
        rows = layout.pad(self.map(x))
        return layout.unpad(torch.cat([torch.zeros_like(rows[:, :1]), rows[:, :-1]], dim=1))


class LeakyCell(Cell):
    """h_t = (1 - rate) h_{t-1} + rate tanh(W x_t + b)."""

    def __init__(self, d_in: int, d_hidden: int, rate: float) -> None:
        super().__init__(d_in, d_hidden, 1)
        self.rate = rate

    def forward(self, projected, state):
        return ((1 - self.rate) * state[0] + self.rate * projected.tanh(),)


class Focal:
    """- (1 - p)^gamma log p (Lin et al. 2017)."""

    def __init__(self, gamma: float, label_smoothing: float) -> None:
        self.gamma = gamma
        assert label_smoothing == 0.0

    def counts(self, batch):
        return dict.fromkeys(("class", "correct"), batch.inputs.layout.n_sequences)

    def __call__(self, hidden, heads, batch):
        log_probs = class_logits(hidden, heads, batch.inputs.layout).log_softmax(-1)
        right = log_probs.gather(1, batch.classes[:, None])
        correct = (log_probs.argmax(-1) == batch.classes).sum().float()
        loss = -((1 - right.exp()) ** self.gamma * right).sum()
        return [Term("class", loss, len(log_probs)), Term("correct", correct, len(log_probs), weight=0.0)]


class ShareOf:
    """Share of predictions that are a label."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __call__(self, rows, predictions):
        assert {"text", "label"} <= set(rows[0])
        return sum(each.text == self.label for each in predictions) / len(rows)


class OwnConfig(ClassificationConfig):
    """Settings of the task."""

    kind: str
    shout: bool = False


class OwnRecipe(ClassificationRecipe):
    """Its recipe."""

    task: OwnConfig


class Shouting(Classification):
    """Classification whose predictions may be in capitals."""

    Recipe: ClassVar = OwnRecipe
'''

RECIPE = """
task: {kind: "own_parts:Shouting", shout: true}
data:
  train: {kind: jsonl, paths: train.jsonl, columns: {text: text, label: label}}
  valid: {kind: jsonl, paths: train.jsonl, columns: {text: text, label: label}}
  test: {all: {kind: jsonl, paths: train.jsonl, columns: {text: text, label: label}}}
tokenizer: {subwords: {kind: word}}
model:
  kind: encoder
  d_model: 12
  n_layers: 3
  layer:
    mixer:
      kind: attention
      n_heads: 2
      score: {kind: "own_parts:Distance", temperature: 3.0}
      visible: {kind: "own_parts:NotItself", distance: 1}
    channels: {d_ff: 16}
    norm: {kind: "own_parts:ScaleNorm"}
  pattern:
    - {}
    - mixer: {kind: "own_parts:Shift", bias: false}
    - mixer: {kind: recurrent, cell: {kind: "own_parts:LeakyCell", rate: 0.5}}
  pooling: mean
  max_length: 16
objective: {loss: {kind: "own_parts:Focal", gamma: 2.0}}
evaluation: {metrics: [{kind: "own_parts:ShareOf", label: good}]}
schedule: {kind: constant, peak: 0.02}
training: {tokens_per_update: 64, max_updates: 40, validate_every: 20, seed: 3}
"""


@pytest.fixture
def folder(tmp_path):
    rows = [{"text": f"{word} film {n % 3}", "label": word} for n in range(12) for word in ("good", "bad")]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    (tmp_path / "own_parts.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_every_part_may_come_from_a_module_of_the_user(folder, heedful):
    trained = heedful("train", "recipe.yaml", "--plugin", "./own_parts.py", "--out", "run", cwd=folder)
    assert trained.status == 0, trained.err
    scored = heedful("evaluate", "run", "--json", "--plugin=own_parts.py", cwd=folder).json()
    scores = {score["name"]: score for score in scored["splits"][0]["scores"]}
    assert scores["accuracy"]["value"] > 0.9
    assert scores["ShareOf"]["value"] == 0.5
    assert scores["ShareOf"]["signature"] == "own_parts:ShareOf|label:good"
    predicted = heedful(
        "--plugin", "./own_parts.py", "predict", "run", cwd=folder, stdin="good film 1\nbad film 2\n"
    )
    assert predicted.out == "good\nbad\n"
    described = heedful("describe", "run", "--plugin", "./own_parts.py", cwd=folder)
    assert "attention" in described.out


@pytest.mark.slow
def test_processes_that_training_starts_find_the_file(folder, heedful):
    limits = ["training.max_updates=2", "training.validate_every=2", "training.processes=2"]
    trained = heedful(
        "train", "recipe.yaml", "--plugin", "./own_parts.py", "--out", "run", *limits, cwd=folder
    )
    assert trained.status == 0, trained.err


@pytest.mark.slow
def test_nothing_is_imported_that_was_not_named(folder, heedful):
    (folder / "own_parts.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    refused = heedful("train", "recipe.yaml", "--out", "run", cwd=folder)
    assert refused.status == 2
    assert refused.err.strip() == (
        "heedful: recipe.yaml:2: task.kind: own_parts:Shouting would import the module 'own_parts', which "
        "was not named as a plugin; if you trust it, add --plugin ./own_parts.py, or "
        "plugins=['./own_parts.py'] in Python"
    )
    bare = heedful("train", "recipe.yaml", "--plugin", "own_parts", "--out", "run", cwd=folder)
    assert bare.status == 2
    assert bare.err.strip() == (
        "heedful: recipe.yaml:2: task.kind: own_parts:Shouting: cannot import own_parts: no package of that "
        "name is installed; a file is named by its path: --plugin ./own_parts.py, or "
        "plugins=['./own_parts.py'] in Python"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "model.layer.norm=own_parts:ScaleNor",
            "the module own_parts has no 'ScaleNor' (did you mean 'ScaleNorm'?)",
        ),
        (
            "model.layer.norm={kind: own_parts:ScaleNorm, epsilon: 1}",
            "own_parts:ScaleNorm has no setting 'epsilon'",
        ),
        (
            "model.layer.norm=nothing_there:Norm",
            "nothing_there:Norm would import the module 'nothing_there'",
        ),
        ("evaluation.metrics=['own_parts:ShareOf']", "own_parts:ShareOf requires the setting 'label'"),
        ("evaluation.metrics=[accuracy]", "expected an import path such as my_package.my_module:Name"),
        ("task.kind=own_parts:Focal", "own_parts:Focal: expected a subclass of heedful.tasks.base.Task"),
        (
            "model.layer.norm=own_parts:Focal",
            "own_parts:Focal: expected a subclass of torch.nn.modules.module.Module",
        ),
        (
            "objective.loss=own_parts:class_logits",
            "own_parts:class_logits: expected a class, or a function with the decorator @heedful.part, got",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_key(override, message, folder, heedful):
    refused = heedful("train", "recipe.yaml", override, "--plugin", "./own_parts.py", cwd=folder)
    assert refused.status == 2
    assert message in refused.err
    assert override.partition("=")[0] in refused.err
