"""Rotary positions of a given base and width: self-attention of whole models against complex numbers."""

import pytest
import torch

from heedful.models.encoder import EncoderConfig
from heedful.models.encoder import build as build_encoder
from heedful.models.language_model import LanguageModelConfig, build
from heedful.nn.layout import Layout

V, D, HEADS, D_K, D_V, N = 31, 13, 5, 11, 7, 17
SIZES = {
    "d_model": D,
    "n_layers": 1,
    "dropout": 0.0,
    "layer": {"mixer": {"n_heads": HEADS, "d_k": D_K, "d_v": D_V}, "channels": {"d_ff": 19}},
}


def by_complex_numbers(part, x, width, base, *, causal):
    """``Re sum_i q_i conj(k_i) e^(j (p - r) ω_i)`` of the pairs that turn, q . k of the rest; in fp64."""
    fused = torch.nn.functional.linear(x, part.qkv.weight.double(), part.qkv.bias.double())
    q, k, v = (
        slices.unflatten(-1, (HEADS, -1))
        for slices in fused.split([HEADS * D_K, HEADS * D_K, HEADS * D_V], -1)
    )
    half = width // 2
    q_pairs, k_pairs = (torch.complex(y[..., :half], y[..., half:width]) for y in (q, k))
    places = torch.arange(N, dtype=torch.float64)
    omega = torch.tensor([1 / base ** (i / half) for i in range(half)], dtype=torch.float64)
    turn = torch.exp(1j * (places[:, None, None] - places[:, None]) * omega)
    scores = torch.einsum("phi, rhi, pri -> hpr", q_pairs, k_pairs.conj(), turn).real
    scores = scores + torch.einsum("phd, rhd -> hpr", q[..., width:], k[..., width:])
    if causal:
        scores = scores.masked_fill(places[:, None] < places, float("-inf"))
    mixed = torch.einsum("hpr, rhd -> phd", (scores / D_K**0.5).softmax(-1), v).flatten(1)
    return torch.nn.functional.linear(mixed, part.out.weight.double(), part.out.bias.double())


@pytest.mark.parametrize("width, base", [(2, 10000.0), (6, 37.0), (10, 5e5)])
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "language model"])
@torch.no_grad()
def test_attention_is_that_of_complex_numbers(causal, width, base):
    torch.manual_seed(1)
    given = {**SIZES, "positions": {"kind": "rotary", "base": base, "d_rotated": width}}
    model = build(LanguageModelConfig(**given), V) if causal else build_encoder(EncoderConfig(**given), V)
    part = model.eval().stack.blocks[0].mixer.part
    for parameter in part.parameters():
        parameter += torch.randn_like(parameter)
    x = torch.randn(N, D)
    wanted = by_complex_numbers(part, x.double(), width, base, causal=causal)
    torch.testing.assert_close(part(x, Layout.of([N])), wanted.float(), rtol=1e-4, atol=1e-4)
