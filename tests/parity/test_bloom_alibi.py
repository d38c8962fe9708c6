"""ALiBi against what Bloom of transformers adds to its scores."""

import pytest
import torch

from heedful.nn.attention.relative import Alibi, slopes_of
from heedful.nn.attention.weights import attention_weights
from heedful.nn.layout import Layout
from heedful.nn.visibility import Visibility

LENGTHS = [5, 7, 1]


@pytest.fixture
def bloom():
    return pytest.importorskip("transformers.models.bloom.modeling_bloom")


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6, 8, 12, 16, 25, 112])
def test_slopes_are_blooms(bloom, n_heads):
    theirs = bloom._get_alibi_slopes(n_heads, torch.device("cpu"))
    torch.testing.assert_close(torch.tensor(slopes_of(n_heads)), theirs)


@pytest.mark.parametrize("n_heads", [3, 8])
def test_causal_weights_are_blooms(bloom, n_heads):
    """Theirs grows along the keys, the same for all queries: it differs by one number for each query."""
    layout = Layout.of(LENGTHS)
    scores = torch.randn(3, n_heads, 7, 7, generator=torch.Generator().manual_seed(1))
    added = bloom.build_alibi_tensor(layout.real.long(), n_heads, torch.float32).unflatten(0, (3, n_heads))
    seen = Visibility.of(layout, layout, causal=True)
    ours = attention_weights(scores + Alibi(n_heads)(layout, layout), seen)
    wanted = (scores + added).masked_fill(~seen.visible[:, None], float("-inf")).softmax(-1)
    real = layout.real[:, None, :, None]
    torch.testing.assert_close(ours * real, wanted * real)
