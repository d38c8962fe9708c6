"""Attention can be a convolution: K² heads, each of which looks at one neighbour (Cordonnier et al. 2020).

Theorem 1, by the construction of the paper's section 3: head h scores the key at place k, for the query at q,

    A_h[q, k] = -α |k - q - Δ_h|²,    Δ_h one of the K² offsets of the kernel

up to a number that all keys of a query share. For large α, the softmax is one at k = q + Δ_h and zero
elsewhere. The square comes apart into a product of queries and keys: tokens that carry their place p as
(p_1, p_2, |p|², 1) need no other part than the scores that are there:

    -α |k - q - Δ|² = α (2 (q + Δ)_1, 2 (q + Δ)_2, -1) · (k_1, k_2, |k|²) + what k does not change

With head h's value the token's own features, and its slice of W_O the kernel's matrix at Δ_h, the sum over
the heads is the convolution. Zeros around the image are a ring of tokens without features.
"""

import pytest
import torch
from torch.nn import functional

from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout
from heedful.nn.taps import recording

B, C_IN, C_OUT = 2, 3, 5
HEIGHT, WIDTH = 5, 7


def attention_for(kernel, alpha):
    """Self-attention with the weights of the construction; ``kernel`` is ``[C_out, C_in, K, K]``."""
    c_out, c_in, k, _ = kernel.shape
    d = c_in + 4
    part = SelfAttention(d, k * k, d_k=3, d_v=c_in, score=DotScore())
    w_q, w_k, w_v = (torch.zeros(k * k, rows, d) for rows in (3, 3, c_in))
    w_o = torch.zeros(d, k * k, c_in)
    first, second, square, one = range(c_in, d)
    for h in range(k * k):
        i, j = h // k - k // 2, h % k - k // 2
        w_q[h, 0, first], w_q[h, 0, one] = 2 * alpha, 2 * alpha * i
        w_q[h, 1, second], w_q[h, 1, one] = 2 * alpha, 2 * alpha * j
        w_q[h, 2, one] = -alpha
        w_k[h, 0, first] = w_k[h, 1, second] = w_k[h, 2, square] = 1
        w_v[h, :, :c_in] = torch.eye(c_in)
        w_o[:c_out, h] = kernel[:, :, h // k, h % k]
    with torch.no_grad():
        part.qkv.weight.copy_(torch.cat([w.flatten(0, 1) for w in (w_q, w_k, w_v)]))
        part.out.weight.copy_(w_o.flatten(1))
    return part


def tokens_of(images, ring):
    """[B, C, H, W] -> tokens with their places; ``ring`` places without features on every side."""
    images = functional.pad(images, (ring,) * 4)
    b, _, height, width = images.shape
    rows = torch.arange(height).repeat_interleave(width).float()
    columns = torch.arange(width).repeat(height).float()
    places = torch.stack((rows, columns, rows**2 + columns**2, torch.ones_like(rows)), 1)
    x = torch.cat((images.flatten(2).mT, places.expand(b, -1, -1)), 2)
    return x.flatten(0, 1), Layout.of([height * width] * b)


def convolved(images, kernel):
    """Place by place and offset by offset, with zeros around the image."""
    k = kernel.shape[-1]
    out = torch.zeros(len(images), len(kernel), HEIGHT, WIDTH, dtype=torch.float64)
    for row in range(HEIGHT):
        for column in range(WIDTH):
            for i in range(k):
                for j in range(k):
                    y, x = row + i - k // 2, column + j - k // 2
                    if y in range(HEIGHT) and x in range(WIDTH):
                        out[:, :, row, column] += images[:, :, y, x].double() @ kernel[:, :, i, j].double().T
    return out.float()


def drawn(k):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(B, C_IN, HEIGHT, WIDTH, generator=generator)
    return images, torch.randn(C_OUT, C_IN, k, k, generator=generator)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_k_squared_heads_are_a_convolution(k):
    images, kernel = drawn(k)
    x, layout = tokens_of(images, k // 2)
    # A power of two: all scores are whole numbers that fp32 holds, and e^-128 is zero in it.
    with torch.no_grad():
        y = attention_for(kernel, alpha=128.0)(x, layout)
    ring = k // 2
    maps = y.view(B, HEIGHT + 2 * ring, WIDTH + 2 * ring, -1)
    inside = maps[:, ring : ring + HEIGHT, ring : ring + WIDTH, :C_OUT].permute(0, 3, 1, 2)
    torch.testing.assert_close(inside, convolved(images, kernel), rtol=0, atol=1e-5)


def test_every_head_looks_at_its_neighbour_alone():
    images, kernel = drawn(3)
    part = attention_for(kernel, alpha=128.0)
    x, layout = tokens_of(images, 1)
    height, width = HEIGHT + 2, WIDTH + 2
    with torch.no_grad(), recording(part, ["weights"]) as seen:
        part(x, layout)
    (weights,) = seen["weights"]
    for row in range(1, HEIGHT + 1):
        for column in range(1, WIDTH + 1):
            for h in range(9):
                neighbour = (row + h // 3 - 1) * width + column + h % 3 - 1
                wanted = torch.zeros(height * width)
                wanted[neighbour] = 1.0
                assert torch.equal(weights[0, h, row * width + column], wanted)


def test_a_softer_head_looks_around_its_neighbour():
    """With a small α the head is a Gaussian around q + Δ: near a convolution, and not one."""
    images, kernel = drawn(3)
    x, layout = tokens_of(images, 1)
    wanted = convolved(images, kernel)
    errors = []
    for alpha in (0.5, 2.0, 8.0):
        with torch.no_grad():
            y = attention_for(kernel, alpha)(x, layout)
        inside = y.view(B, HEIGHT + 2, WIDTH + 2, -1)[:, 1:-1, 1:-1, :C_OUT].permute(0, 3, 1, 2)
        errors.append((inside - wanted).abs().max().item())
    assert errors[0] > errors[1] > errors[2] > 1e-4
