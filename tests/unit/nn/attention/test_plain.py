"""softmax(X Xᵀ) X, sequence by sequence."""

import math

import torch

from heedful.nn.attention.plain import parameter_free_self_attention
from heedful.nn.layout import Layout


def _loop(x, lengths):
    out, start = [], 0
    for n in lengths:
        rows = x[start : start + n].double()
        for i in range(n):
            exponentials = [math.exp(torch.dot(rows[i], rows[j]).item()) for j in range(n)]
            out.append(sum(e * row for e, row in zip(exponentials, rows, strict=True)) / sum(exponentials))
        start += n
    return torch.stack(out).float()


def test_equals_a_plain_loop_over_each_sequence():
    lengths = [3, 1, 5, 2]
    x = torch.randn(11, 7, generator=torch.Generator().manual_seed(0))
    out = parameter_free_self_attention(x, Layout.of(lengths))
    torch.testing.assert_close(out, _loop(x, lengths))


def test_a_lone_token_stays_what_it_is():
    x = torch.randn(1, 7)
    torch.testing.assert_close(parameter_free_self_attention(x, Layout.of([1])), x)


def test_equivariant_to_a_permutation_of_the_tokens():
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([3, 0, 4, 1, 2])
    layout = Layout.of([5])
    torch.testing.assert_close(
        parameter_free_self_attention(x[order], layout), parameter_free_self_attention(x, layout)[order]
    )
