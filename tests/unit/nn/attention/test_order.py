"""What attention knows of the order of its tokens: nothing, until positions or a mask tell it."""

import pytest
import torch

from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout
from heedful.nn.positions import Added, SinusoidalPositions

D, N, M = 12, 7, 5
LAYOUT, KEYS = Layout.of([N]), Layout.of([M])
SHUFFLED, MEMORY_SHUFFLED = torch.tensor([3, 0, 6, 1, 5, 2, 4]), torch.tensor([4, 2, 0, 1, 3])


def tokens(n=N, seed=1):
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed))


def self_attention(**options):
    torch.manual_seed(0)
    return SelfAttention(D, 3, **options)


def test_self_attention_is_equivariant():
    """Shuffled tokens give shuffled outputs: not the same ones, which is what invariant would mean."""
    part, x = self_attention(), tokens()
    plain, shuffled = part(x, LAYOUT), part(x[SHUFFLED], LAYOUT)
    torch.testing.assert_close(shuffled, plain[SHUFFLED])
    assert not torch.allclose(shuffled, plain, atol=1e-2)


def test_cross_attention_is_invariant_to_the_order_of_its_memory():
    torch.manual_seed(0)
    part, x, y = CrossAttention(D, 3), tokens(), tokens(M, seed=2)
    plain = part(x, LAYOUT, part.make_memory(y, KEYS))
    torch.testing.assert_close(part(x, LAYOUT, part.make_memory(y[MEMORY_SHUFFLED], KEYS)), plain)
    torch.testing.assert_close(part(x[SHUFFLED], LAYOUT, part.make_memory(y, KEYS)), plain[SHUFFLED])


@pytest.mark.parametrize("told", ["positions", "mask"])
def test_positions_and_masks_end_it(told):
    part, x = self_attention(causal=told == "mask"), tokens()
    places = Added(SinusoidalPositions(D))

    def mixed(x):
        return part(places(x, torch.arange(N)) if told == "positions" else x, LAYOUT)

    assert not torch.allclose(mixed(x[SHUFFLED]), mixed(x)[SHUFFLED], atol=1e-2)
