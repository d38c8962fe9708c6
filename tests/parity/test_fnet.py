"""The Fourier mixer against FNet's of transformers."""

import pytest
import torch

from heedful.nn.layout import Layout
from heedful.nn.mixers import FourierMixer


@pytest.mark.parametrize("n", [1, 5, 12])
def test_fourier_mixing_is_fnets(n):
    """Of sequences of one length, as theirs reads pads as tokens."""
    fnet = pytest.importorskip("transformers.models.fnet.modeling_fnet")
    config = fnet.FNetConfig(hidden_size=7, use_tpu_fourier_optimizations=False)
    x = torch.randn(3, n, 7, generator=torch.Generator().manual_seed(1))
    (wanted,) = fnet.FNetBasicFourierTransform(config)(x)
    ours = FourierMixer()(x.flatten(0, 1), Layout.of([n] * 3))
    torch.testing.assert_close(ours, wanted.flatten(0, 1), rtol=1e-5, atol=1e-5)
