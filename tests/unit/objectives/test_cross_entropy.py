"""The fused, chunked loss against torch's cross_entropy on whole logits: values and gradients."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from heedful.data.batch import Batch
from heedful.objectives.cross_entropy import NextToken, _aligned, _LinearCrossEntropy, linear_cross_entropy
from heedful.objectives.terms import Term, total

T, V, D = 11, 7, 5


def case(dtype=torch.float64, bias=True):
    torch.manual_seed(3)
    hidden = torch.randn(T, D, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    b = torch.randn(V, dtype=dtype, requires_grad=True) if bias else None
    return hidden, weight, b, torch.randint(V, (T,))


@pytest.mark.parametrize("chunk", [1, 3, 11, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_torch_in_value_and_gradient(chunk, smoothing, bias):
    hidden, weight, b, y = case(torch.float32, bias)
    loss, nll = linear_cross_entropy(hidden, weight, b, y, smoothing, chunk)
    logits = functional.linear(hidden, weight, b)
    wanted = functional.cross_entropy(logits, y, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(nll, functional.cross_entropy(logits, y, reduction="sum"))
    inputs = [x for x in (hidden, weight, b) if x is not None]
    ours = torch.autograd.grad(loss * 0.37, inputs)
    theirs = torch.autograd.grad(wanted * 0.37, inputs)
    for a, e in zip(ours, theirs):
        torch.testing.assert_close(a, e)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_weights_padded_for_a_gpu_give_the_same(bias, dtype):
    def results(multiple):
        hidden, weight, b, y = case(torch.float32, bias)
        aligned, b_aligned = _aligned(weight, b, multiple)
        assert len(aligned) % multiple == 0
        losses = _LinearCrossEntropy.apply(hidden, aligned, b_aligned, y, V, 0.3, 5, 3, dtype, True)
        inputs = [x for x in (hidden, weight, b) if x is not None]
        return [*losses, *torch.autograd.grad(losses[0], inputs)]

    for padded, plain in zip(results(4), results(1), strict=True):
        assert padded.shape == plain.shape
        torch.testing.assert_close(padded, plain, rtol=1e-5, atol=1e-5)


def test_smoothing_equals_its_formula_by_hand():
    hidden, weight, b, y = case(torch.float32)
    loss, _ = linear_cross_entropy(hidden, weight, b, y, 0.3)
    hidden, weight, b = (x.detach() for x in (hidden, weight, b))
    by_hand = 0.0
    for t in range(T):
        z = [float(weight[v] @ hidden[t] + b[v]) for v in range(V)]
        log_sum = torch.tensor(z).exp().sum().log().item()
        for v in range(V):
            q = 0.7 * (v == int(y[t])) + 0.3 / V
            by_hand -= q * (z[v] - log_sum)
    assert float(loss.detach()) == pytest.approx(by_hand, rel=1e-5)


def test_no_tensor_of_tokens_by_vocabulary_is_kept():
    torch.manual_seed(1)
    hidden, weight = torch.randn(500, 8, requires_grad=True), torch.randn(400, 8, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        loss, _ = linear_cross_entropy(hidden, weight, None, torch.randint(400, (500,)), chunk=50)
    loss.backward()
    assert max(saved) <= max(hidden.numel(), weight.numel())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_only_the_logits_are_computed(context):
    hidden, weight, b, y = case(torch.float32)
    with context(), FlopCounterMode(display=False) as measured:
        linear_cross_entropy(hidden, weight, b, y, 0.1, 3)
    assert measured.get_total_flops() == 2 * T * D * V


def test_the_objective_returns_terms_with_their_counts():
    batch = Batch.teacher_forced([[3, 4]], [[5, 6, 3]], start=1, end=2)
    assert batch.inputs.split() == [[1, 5, 6, 3]]
    assert batch.targets.tolist() == [5, 6, 3, 2]
    assert batch.source.split() == [[3, 4, 2]]
    head = nn.Linear(D, V)
    objective = NextToken(0.1)
    terms = objective(torch.randn(4, D), nn.ModuleDict({"token": head}), batch)
    assert {t.name: t.count for t in terms} == objective.counts(batch) == {"token": 4, "nll": 4}
    assert [t.weight for t in terms] == [1.0, 0.0]


def test_total_divides_each_term_by_its_own_global_count():
    terms = [
        Term("a", torch.tensor(6.0), 2),
        Term("b", torch.tensor(5.0), 1, weight=0.5),
        Term("c", torch.tensor(9.0), 3, weight=0.0),
    ]
    assert float(total(terms, {"a": 4, "b": 10, "c": 3})) == pytest.approx(6 / 4 + 0.5 * 5 / 10)


def test_smoothing_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        NextToken(1.0)
