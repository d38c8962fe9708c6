"""The load of experts against the rows that each of them is called with."""

from collections import Counter

import pytest
import torch

from heedful.data.batch import Batch
from heedful.models.language_model import LanguageModelConfig, build
from heedful.nn.experts import MixtureOfExperts
from heedful.tasks.metrics.loads import count_expert_loads

V = 17
SMALL = {
    "d_model": 6,
    "n_layers": 3,
    "dropout": 0.0,
    "context": 9,
    "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 7}},
}
BATCHES = [
    Batch.teacher_forced(None, rows, start=1, end=2).inputs
    for rows in ([[3, 4, 5], [6], [7, 8, 9, 10]], [[11, 3]], [[]])
]


def model_of(layers=(2,), **experts):
    torch.manual_seed(1)
    expert = {"d_ff": 7, "activation": "gelu"}
    channels = {"kind": "experts", "n": 5, "k": 2, "expert": expert, **experts}
    pattern = [{"channels": channels} if layer in layers else {} for layer in (1, 2, 3)]
    return build(LanguageModelConfig.model_validate({**SMALL, "pattern": pattern}), V).eval()


@pytest.mark.parametrize("experts", [{"layers": [2]}, {"layers": [1, 3], "gate": "top-k"}, {"n": 7, "k": 3}])
@torch.no_grad()
def test_loads_are_the_rows_that_experts_are_called_with(experts):
    model, called = model_of(**experts), Counter()
    for i, block in enumerate(model.stack.blocks):
        for mixture in (part for part in block.modules() if isinstance(part, MixtureOfExperts)):
            for j, expert in enumerate(mixture.experts):
                expert.register_forward_hook(
                    lambda part, given, out, at=(i + 1, j): called.update({at: len(out)})
                )
    with count_expert_loads(model) as loads:
        assert loads() == []
        plain = [model(inputs) for inputs in BATCHES]
        found = loads()
    n, k = experts.get("n", 5), experts.get("k", 2)
    n_tokens = sum(inputs.layout.n_tokens for inputs in BATCHES)
    layers = experts.get("layers", [2])
    assert [score.name for score in found] == [f"expert load, layer {layer}" for layer in layers]
    for score, layer in zip(found, layers, strict=True):
        wanted = [called[layer, j] for j in range(n)]
        assert sum(wanted) == k * n_tokens
        assert score.details["shares"] == pytest.approx([rows / (k * n_tokens) for rows in wanted])
        assert score.value == pytest.approx(max(wanted) / (k * n_tokens / n))
        assert score.counts == {"tokens": n_tokens}
        assert score.signature == f"experts:{n}|k:{k}"
    after = [model(inputs) for inputs in BATCHES]
    assert loads() == found, "nobody counts any more"
    assert all(torch.equal(one, other) for one, other in zip(plain, after, strict=True))


@torch.no_grad()
def test_a_model_without_experts_has_no_loads():
    model = build(LanguageModelConfig.model_validate(SMALL), V)
    with count_expert_loads(model) as loads:
        model(BATCHES[0])
    assert loads() == []
