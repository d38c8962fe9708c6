"""Muon against singular values by a decomposition, and against torch's own on whole matrices."""

import pytest
import torch
from torch import nn

from heedful.errors import RequestError
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.training.optimizers import (
    COEFFICIENTS,
    N_STEPS,
    Muon,
    MuonConfig,
    build_optimizer,
    hidden_matrices,
    load_state_tensors,
    orthogonalised,
    set_lr,
    state_tensors,
)

CONFIG = TransformerConfig(d_model=14, n_layers=1, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}})


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 11, 3), (1, 5, 5)])
def test_the_iteration_acts_on_each_singular_value_alone(shape):
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=torch.float64)
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    s = s / (s.square().sum(-1, keepdim=True).sqrt() + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(N_STEPS):
        s = a * s + b * s**3 + c * s**5
    torch.testing.assert_close(orthogonalised(x), u * s[:, None, :] @ vt, rtol=1e-9, atol=1e-9)
    assert orthogonalised(x).shape == x.shape


def test_all_but_tiny_singular_values_come_near_one():
    torch.manual_seed(2)
    u, v = (torch.linalg.qr(torch.randn(13, 13, dtype=torch.float64))[0] for _ in range(2))
    x = u * torch.logspace(0, -2.3, 13, dtype=torch.float64) @ v
    found = torch.linalg.svdvals(orthogonalised(x[None]))
    assert found.min() > 0.65
    assert found.max() < 1.2


def gradients(parameters, step):
    generator = torch.Generator().manual_seed(step)
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)


def test_equals_torch_on_matrices_that_are_one():
    """torch computes the iteration in bf16: directions agree to its precision."""
    torch.manual_seed(3)
    ours = [nn.Parameter(torch.randn(shape)) for shape in ((5, 7), (11, 3), (5, 7))]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    start = [p.detach().clone() for p in ours]
    mine = Muon([{"params": ours, "orthogonal": True, "weight_decay": 0.1}], slices={}, momentum=0.9, lr=0.02)
    reference = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, momentum=0.9, adjust_lr_fn="original")
    for step in range(4):
        gradients(ours, step)
        gradients(theirs, step)
        mine.step()
        reference.step()
    for a, e, begin in zip(ours, theirs, start, strict=True):
        torch.testing.assert_close(
            a - begin, e - begin, rtol=0, atol=0.02 * float((e - begin).detach().abs().max())
        )


def test_matrices_that_lie_in_one_parameter_are_taken_apart():
    torch.manual_seed(4)
    whole = nn.Parameter(torch.randn(10, 5))
    parts = [nn.Parameter(p.clone()) for p in whole.detach().split([5, 3, 2])]
    together = Muon(
        [{"params": [whole], "orthogonal": True, "weight_decay": 0.0}],
        slices={whole: [5, 3, 2]},
        momentum=0.95,
        lr=0.1,
    )
    apart = Muon(
        [{"params": parts, "orthogonal": True, "weight_decay": 0.0}], slices={}, momentum=0.95, lr=0.1
    )
    for step in range(3):
        gradients([whole], step)
        for part, g in zip(parts, whole.grad.split([5, 3, 2]), strict=True):
            part.grad = g.clone()
        together.step()
        apart.step()
    torch.testing.assert_close(whole.detach(), torch.cat([p.detach() for p in parts]))


def test_hidden_matrices_are_those_between_embeddings_and_heads():
    model = build_model(CONFIG, 31, 31)
    names = {p: name for name, p in model.named_parameters()}
    found = {names[p]: sizes for p, sizes in hidden_matrices(model)}
    block = "decoder.blocks.0"
    assert found[f"{block}.mixer.part.qkv.weight"] == [14, 14, 14]
    assert found[f"{block}.cross_attention.part.kv.weight"] == [14, 14]
    assert found[f"{block}.feed_forward.part.up.weight"] == [19]
    assert len(found) == 2 + 2 + 2 + 3 + 2  # out too; encoder: 4, decoder: 7
    assert not any("embedding" in name or "heads" in name or name.endswith("bias") for name in found)


def test_gate_and_up_are_two_matrices():
    model = build_model(CONFIG.changed(layer={"channels": {"kind": "gated", "d_ff": 19}}), 31, 31)
    names = {p: name for name, p in model.named_parameters()}
    found = {names[p]: sizes for p, sizes in hidden_matrices(model)}
    assert found["encoder.blocks.0.feed_forward.part.gate_up.weight"] == [19, 19]
    assert found["encoder.blocks.0.feed_forward.part.down.weight"] == [14]


def test_everything_else_gets_its_share_of_the_rate():
    model = build_model(CONFIG, 31, 31)
    optimizer = build_optimizer(MuonConfig(adam_share=0.25), model)
    set_lr(optimizer, 0.04)
    rates = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert set(rates) == set(model.parameters())
    hidden = {p for p, _ in hidden_matrices(model)}
    assert all(rate == pytest.approx(0.04 if p in hidden else 0.01) for p, rate in rates.items())


def test_a_resumed_optimizer_goes_on_as_the_one_that_was_not_stopped():
    def made():
        torch.manual_seed(5)
        model = build_model(CONFIG, 31, 31)
        optimizer = build_optimizer(MuonConfig(), model)
        set_lr(optimizer, 0.02)
        return model, optimizer

    def go(model, optimizer, steps):
        for step in steps:
            gradients(model.parameters(), step)
            optimizer.step()

    straight, stopped = made(), made()
    go(*straight, range(4))
    go(*stopped, range(2))
    kept = {name: t.clone() for name, t in state_tensors(stopped[1], stopped[0]).items()}
    resumed = made()
    resumed[0].load_state_dict(stopped[0].state_dict())
    load_state_tensors(resumed[1], resumed[0], kept)
    set_lr(resumed[1], 0.02)
    go(*resumed, range(2, 4))
    for a, b in zip(straight[0].parameters(), resumed[0].parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_model_without_hidden_matrices_is_refused():
    with pytest.raises(RequestError, match="muon"):
        build_optimizer(MuonConfig(), nn.Sequential(nn.Embedding(3, 5), nn.LayerNorm(5)))
