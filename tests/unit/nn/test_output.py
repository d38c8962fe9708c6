"""Heads that find hidden tokens: sizes, formulas, ties."""

import torch
from torch import nn
from torch.nn import functional

from heedful.nn.output import BoundaryHead, MaskedHead

V, D = 23, 7


def table(n=V, d=D):
    torch.manual_seed(1)
    return nn.Parameter(torch.randn(n, d))


def test_the_head_of_bert_has_622650_parameters_beside_the_table():
    weight = nn.Parameter(torch.empty(30_522, 768, device="meta"))
    with torch.device("meta"):
        head = MaskedHead(weight)
    assert sum(p.numel() for p in head.parameters()) - weight.numel() == 622_650


def test_hidden_states_are_transformed_and_compared_with_the_table():
    weight = table()
    head, x = MaskedHead(weight), torch.randn(5, D)
    first, _, norm = head.transform
    z = functional.gelu(x @ first.weight.T + first.bias)
    z = (z - z.mean(-1, keepdim=True)) / (z.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    expected = (z * norm.weight + norm.bias) @ weight.T + head.out.bias
    torch.testing.assert_close(head(x), expected)
    assert head.out.weight is weight


def test_a_boundary_head_reads_both_sides_and_the_place():
    head = BoundaryHead(table(), longest=3)
    before, after = torch.randn(4, D), torch.randn(4, D)
    within = torch.tensor([0, 2, 1, 9])
    out = head.transform(before, after, within)
    for i, place in enumerate((0, 2, 1, 2)):  # what lies further in takes the last position
        alone = head.second(head.first(torch.cat([before[i], after[i], head.positions[place]])))
        torch.testing.assert_close(out[i], alone)


def test_a_place_that_many_spans_have_gets_the_whole_of_its_gradient():
    """Adding 1 in bf16 ends at 256."""
    head = BoundaryHead(table(), longest=2)
    head.first, head.second = nn.Linear(3 * D, D, bias=False), nn.Identity()
    nn.init.constant_(head.first.weight, 0.0)
    head.first.weight.data[:, 2 * D :] = torch.eye(D)
    beside = torch.zeros(2048, D, dtype=torch.bfloat16)
    head.bfloat16().transform(beside, beside, torch.ones(2048, dtype=torch.int64)).sum().backward()
    assert head.positions.grad.tolist() == [[0.0] * D, [2048.0] * D]


def test_first_weights_are_those_of_bert():
    """As of the encoder's own matrices (`heedful.models.encoder.initialise`)."""
    weight = table(d=64)
    heads = nn.ModuleDict({"masked": MaskedHead(weight), "boundary": BoundaryHead(weight, 50)})
    matrices = 0
    for name, parameter in heads.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif parameter.ndim == 2 and parameter is not weight:
            assert abs(parameter.std().item() / 0.02 - 1) < 0.1, name
            assert abs(parameter.mean().item()) < 0.002, name
            matrices += 1
    assert matrices == 4


def test_the_epsilon_of_the_norms_is_what_is_asked_for():
    heads = (MaskedHead(table(), eps=1e-12), BoundaryHead(table(), 3, eps=1e-12))
    norms = [part for head in heads for part in head.modules() if isinstance(part, nn.LayerNorm)]
    assert [norm.eps for norm in norms] == [1e-12] * 3
