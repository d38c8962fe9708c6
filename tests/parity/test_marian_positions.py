"""Half-split sinusoids against those of Marian's models in transformers."""

import pytest
import torch

from heedful.nn.positions import SinusoidalPositions


def test_half_split_sinusoids_are_marians():
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    theirs = marian.MarianSinusoidalPositionalEmbedding(131, 22)
    theirs.weight.data = theirs.create_weight() if hasattr(theirs, "create_weight") else theirs.weight.data
    ours = SinusoidalPositions(22, interleaved=False)
    torch.testing.assert_close(ours(torch.arange(131)), theirs.weight.detach(), atol=1e-6, rtol=1e-5)
