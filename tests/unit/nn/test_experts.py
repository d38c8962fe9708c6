"""A mixture of experts against loops over tokens and experts; its gates against the equations."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from heedful.nn.declarations import DECLARATIONS, declared
from heedful.nn.experts import MixtureOfExperts, NoisyTopKGate, TopKGate
from heedful.nn.feedforward import FeedForward
from heedful.nn.taps import intervene, recording

D, D_FF, N, K, T = 5, 7, 6, 3, 11


def moved(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.7 * torch.randn_like(parameter)
    return module


def gate_of(kind, n=N, k=K, **options):
    torch.manual_seed(1)
    return moved(kind(D, n, k, **options))


def mixture(kind=TopKGate, n=N, k=K):
    gate = gate_of(kind, n, k)
    return MixtureOfExperts(gate, [moved(FeedForward(D, D_FF)) for _ in range(n)])


def tokens(n=T, seed=2):
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed))


def best(scores, k):
    """The k greatest, the greatest first."""
    return sorted(range(len(scores)), key=lambda i: -scores[i])[:k]


def recorded(module, names, x):
    with recording(module, names) as seen:
        out = module(x)
    return out, *(seen[name][0] for name in names)


@pytest.mark.parametrize("kind", [TopKGate, NoisyTopKGate])
@torch.no_grad()
def test_equals_a_loop_over_tokens_and_their_experts(kind):
    part, x = mixture(kind).eval(), tokens()
    gate = part.gate.weight[:N]
    wanted = []
    for own in x:
        h = [float(row @ own) for row in gate]
        chosen = best(h, K)
        e = [math.exp(h[i]) for i in chosen]
        wanted.append(sum(w / sum(e) * part.experts[i](own[None])[0] for i, w in zip(chosen, e)))
    torch.testing.assert_close(part(x), torch.stack(wanted))


@torch.no_grad()
def test_a_token_does_not_depend_on_the_others():
    part, x = mixture().eval(), tokens()
    together = part(x)
    for i in range(T):
        torch.testing.assert_close(part(x[i : i + 1]), together[i : i + 1])
    order = torch.randperm(T)
    torch.testing.assert_close(part(x[order]), together[order])
    changed = x.clone()
    changed[3] = torch.nan
    rest = [i for i in range(T) if i != 3]
    torch.testing.assert_close(part(changed)[rest], together[rest])
    assert part(x[:0]).shape == (0, D)


def test_gradients_are_those_of_all_experts_weighted_by_their_gates():
    """The same sum with every expert on every token, and zero weight where it was not chosen."""
    part, x = mixture().double(), tokens().double().requires_grad_()
    probe = torch.randn(T, D, dtype=torch.float64)
    h = x @ part.gate.weight.T
    kept = torch.full_like(h, -math.inf).scatter(1, h.topk(K).indices, 0.0) + h
    dense = sum(g[:, None] * expert(x) for g, expert in zip(kept.softmax(-1).T, part.experts))
    parameters = [x, *part.parameters()]
    wanted = torch.autograd.grad((dense * probe).sum(), parameters)
    ours = torch.autograd.grad((part(x) * probe).sum(), parameters)
    torch.testing.assert_close(ours, wanted)


def test_an_expert_that_no_token_reached_has_a_gradient_of_zero_and_says_so():
    part = mixture()
    with torch.no_grad():
        part.gate.weight.zero_()
        part.gate.weight[:K] = 1.0
    part(torch.ones(T, D)).square().sum().backward()
    for i, expert in enumerate(part.experts):
        grads = [p.grad for p in expert.parameters()]
        assert all(grad is not None for grad in grads)
        assert any(bool(grad.any()) for grad in grads) == (i < K)
    assert "may_idle" in declared(part)


def test_what_is_declared():
    assert declared(mixture()) == {"balances_batch", "may_idle"}
    assert declared(mixture(NoisyTopKGate)) == {"balances_batch", "may_idle", "draws_noise"}
    assert declared(mixture(NoisyTopKGate)) <= DECLARATIONS.keys()


# Gates ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_noise_is_added_in_training_only_and_scaled_by_the_token(monkeypatch):
    """Equations 3 to 5, number by number."""
    gate, x = gate_of(NoisyTopKGate), tokens()
    z = torch.randn(T, N)
    monkeypatch.setattr(gate, "draw", lambda like: z)
    _, gates = recorded(gate.train(), ["gates"], x)
    for t, own in enumerate(x):
        h = []
        for i in range(N):
            spread = math.log(1 + math.exp(float(gate.weight[N + i] @ own)))
            h.append(float(gate.weight[i] @ own) + float(z[t, i]) * spread)
        chosen = best(h, K)
        total = sum(math.exp(h[i]) for i in chosen)
        wanted = [math.exp(h[i]) / total if i in chosen else 0.0 for i in range(N)]
        torch.testing.assert_close(gates[t], torch.tensor(wanted))
    _, evaluated = recorded(gate.eval(), ["gates"], x)
    plain = TopKGate(D, N, K)
    plain.weight.copy_(gate.weight[:N])
    torch.testing.assert_close(evaluated, recorded(plain, ["gates"], x)[1])


def test_noise_is_standard_normal_and_follows_the_seed():
    gate = gate_of(NoisyTopKGate)
    torch.manual_seed(5)
    z = gate.draw(torch.empty(200, 50))
    assert abs(z.mean()) < 0.03
    assert abs(z.std() - 1) < 0.03
    torch.manual_seed(5)
    assert torch.equal(z, gate.draw(torch.empty(200, 50)))


@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_chances_are_those_of_equation_9(training, monkeypatch):
    gate, x = gate_of(NoisyTopKGate).train(training), tokens()
    z = torch.randn(T, N)
    monkeypatch.setattr(gate, "draw", lambda like: z)
    _, chances = recorded(gate, ["chances"], x)
    for t, own in enumerate(x):
        clean = [float(gate.weight[i] @ own) for i in range(N)]
        spread = [math.log(1 + math.exp(float(gate.weight[N + i] @ own))) for i in range(N)]
        noisy = [c + float(z[t, i]) * s * training for i, (c, s) in enumerate(zip(clean, spread))]
        for i in range(N):
            others = sorted((h for j, h in enumerate(noisy) if j != i), reverse=True)
            argument = (clean[i] - others[K - 1]) / spread[i]
            wanted = 0.5 * (1 + math.erf(argument / math.sqrt(2)))
            assert float(chances[t, i]) == pytest.approx(wanted, abs=1e-5)


@torch.no_grad()
def test_chances_are_how_often_new_noise_of_one_expert_chooses_it(monkeypatch):
    """With all other noise as it was."""
    gate, x = gate_of(NoisyTopKGate).train(), tokens(1)
    z = torch.randn(1, N)
    monkeypatch.setattr(gate, "draw", lambda like: z)
    _, chances = recorded(gate, ["chances"], x)
    n = 20_000
    for i in range(N):
        many = z.repeat(n, 1)
        many[:, i] = torch.randn(n, generator=torch.Generator().manual_seed(i))
        monkeypatch.setattr(gate, "draw", lambda like, many=many: many)
        _, gates = recorded(gate, ["gates"], x.repeat(n, 1))
        assert float((gates[:, i] > 0).float().mean()) == pytest.approx(float(chances[0, i]), abs=0.015)


def test_chances_pass_gradients_to_both_matrices():
    gate, x = gate_of(NoisyTopKGate).double(), tokens().double()
    _, chances = recorded(gate.train(), ["chances"], x)
    (grad,) = torch.autograd.grad(chances.square().sum(), gate.weight)
    assert grad[:N].any(1).all()
    assert grad[N:].any(1).all()


@torch.no_grad()
def test_a_replaced_gate_is_used():
    part, x = mixture().eval(), tokens()
    with intervene(part, {"gate.gates": torch.zeros_like}):
        assert not part(x).any()


@torch.no_grad()
def test_bf16_tokens_are_sorted_in_fp32():
    gate = gate_of(TopKGate)
    x = tokens().bfloat16()
    assert gate(x).weights.dtype == torch.float32
    wanted = functional.linear(x.float(), gate.weight).topk(K).indices
    assert torch.equal(gate(x).experts, wanted)
    part = MixtureOfExperts(gate, [FeedForward(D, D_FF) for _ in range(N)]).bfloat16()
    assert part(x).dtype == torch.bfloat16


def test_first_weights():
    torch.manual_seed(3)
    gate = NoisyTopKGate(400, 90, 2)
    assert not gate.weight[90:].any()
    assert float(gate.weight[:90].detach().std()) == pytest.approx(0.1 / 20, rel=0.03)


@pytest.mark.parametrize("n, k", [(4, 1), (4, 4), (2, 3)])
def test_gates_without_a_choice_are_refused(n, k):
    with pytest.raises(ValueError, match=f"smaller than n_experts={n}, got {k}"):
        TopKGate(D, n, k)


def test_every_expert_must_be_there():
    with pytest.raises(ValueError, match="number of experts must be 6 as in the gate, got 2"):
        MixtureOfExperts(TopKGate(D, N, K), [nn.Identity()] * 2)
