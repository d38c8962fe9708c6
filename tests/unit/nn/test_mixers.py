"""Mixers against matrices and plain loops; what padding does to each, and what each refuses."""

import cmath

import pytest
import torch
from torch import nn

from heedful.errors import RequestError
from heedful.nn.blocks import EncoderBlock
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.mixers import (
    Convolution,
    ConvolutionCache,
    DepthwiseSeparableConvolution,
    FourierMixer,
    ParallelConvolutions,
    PositionMLP,
)
from heedful.nn.norms import LayerNorm
from heedful.nn.residual import PostNorm, PreNorm
from heedful.nn.state import Cache

D = 7
LENGTHS = [3, 0, 5, 1, 3, 11]


def tokens(n=23, d=D, seed=1, dtype=torch.float32):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def size(part):
    return sum(p.numel() for p in part.parameters())


def each(mixer, x, lengths=LENGTHS):
    """Inputs and outputs of all sequences that have tokens."""
    pairs = zip(x.split(lengths), mixer(x, Layout.of(lengths)).split(lengths), strict=True)
    return [(own, mixed) for own, mixed in pairs if len(own)]


# Fourier --------------------------------------------------------------------------------------------------


def fourier_matrix(n):
    """F[j, k] = e^(-2πi jk/n), entry by entry."""
    entries = [[cmath.exp(-2j * cmath.pi * j * k / n) for k in range(n)] for j in range(n)]
    return torch.tensor(entries, dtype=torch.complex128)


def test_fourier_mixing_equals_the_product_with_matrices():
    x = tokens(dtype=torch.float64)
    for own, mixed in each(FourierMixer(), x):
        wanted = fourier_matrix(len(own)) @ own.to(torch.complex128) @ fourier_matrix(D)
        torch.testing.assert_close(mixed, wanted.real)


def test_fourier_mixing_by_hand():
    """Two tokens of two features: sums and differences, both ways."""
    mixed = FourierMixer()(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), Layout.of([2]))
    torch.testing.assert_close(mixed, torch.tensor([[11.0, -3.0], [-5.0, 1.0]]))


def test_a_sequence_is_transformed_at_its_own_length():
    """Zeros after it would change it: the same numbers with two zero tokens become others."""
    x, mixer = tokens(3), FourierMixer()
    longer = torch.cat([x, torch.zeros(2, D)])
    assert (mixer(longer, Layout.of([5]))[:3] - mixer(x, Layout.of([3]))).abs().max() > 0.1


def test_equally_long_sequences_are_transformed_together(monkeypatch):
    shapes = []
    transform = torch.fft.fft2
    monkeypatch.setattr(torch.fft, "fft2", lambda x: (shapes.append(tuple(x.shape)), transform(x))[1])
    FourierMixer()(tokens(), Layout.of(LENGTHS))
    assert shapes == [(1, 1, D), (2, 3, D), (1, 5, D), (1, 11, D)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fourier_mixing_of_half_precision_is_computed_in_fp32(dtype):
    x, layout, mixer = tokens().to(dtype), Layout.of(LENGTHS), FourierMixer()
    assert torch.equal(mixer(x, layout), mixer(x.float(), layout).to(dtype))


def test_fourier_mixing_passes_the_check_of_gradients():
    x, layout = tokens(5, dtype=torch.float64).requires_grad_(), Layout.of([2, 3])
    assert torch.autograd.gradcheck(lambda tokens: FourierMixer()(tokens, layout), [x])


# Networks along positions ---------------------------------------------------------------------------------


def position_mlp(n=11, **options):
    torch.manual_seed(2)
    part = PositionMLP(D, n, 13, **options)
    nn.init.normal_(part.up.bias)
    nn.init.normal_(part.down.bias)
    return part


@torch.no_grad()
def test_a_network_along_positions_equals_loops_over_zero_filled_columns():
    part = position_mlp(activation=nn.ReLU())
    w_1, w_2 = part.up.weight.T, part.down.weight.T
    for own, mixed in each(part, tokens()):
        for feature in range(D):
            column = [float(own[i, feature]) if i < len(own) else 0.0 for i in range(11)]
            hidden = [
                max(0.0, sum(column[i] * float(w_1[i, j]) for i in range(11)) + float(part.up.bias[j]))
                for j in range(13)
            ]
            wanted = [
                sum(hidden[j] * float(w_2[j, i]) for j in range(13)) + float(part.down.bias[i])
                for i in range(len(own))
            ]
            torch.testing.assert_close(mixed[:, feature], torch.tensor(wanted), rtol=1e-4, atol=1e-5)


def test_gelu_lies_between_the_two_layers_unless_another_is_given():
    part, x = position_mlp(5), tokens(5)
    wanted = part.down(nn.functional.gelu(part.up(x.T))).T
    torch.testing.assert_close(part(x, Layout.of([5])), wanted)


def test_a_sequence_longer_than_the_network_is_refused():
    with pytest.raises(RequestError, match=r"at most 5 tokens .*, got 11; .* at least 11"):
        position_mlp(5)(tokens(), Layout.of(LENGTHS))


def test_a_network_along_positions_begins_at_the_first():
    with pytest.raises(ValueError, match="whole sequences that start at position 0"):
        position_mlp()(tokens(3), Layout.of([3], [2]))


def test_mixer_b16_has_its_published_parameters():
    """59,880,472 for images of 224 x 224 in 1000 classes (Tolstikhin et al. 2021, table 1: 59 million)."""
    with torch.device("meta"):
        positions, channels = PositionMLP(768, 196, 384), FeedForward(768, 3072, activation=nn.GELU())
    assert size(positions) == 2 * 196 * 384 + 384 + 196 == 151_108
    layer = size(positions) + size(channels) + 2 * 2 * 768
    patches, last, classes = 16 * 16 * 3 * 768 + 768, 2 * 768, 768 * 1000 + 1000
    assert 12 * layer + patches + last + classes == 59_880_472


def test_the_width_of_tokens_does_not_matter_to_the_parameters():
    assert size(PositionMLP(3, 11, 5)) == size(PositionMLP(101, 11, 5))


# Convolutions ---------------------------------------------------------------------------------------------


def window(own, i, kernel, causal):
    """x_{i+t} for every t of the kernel, zeros beyond the ends."""
    first = i - (kernel - 1) if causal else i - (kernel - 1) // 2
    zero = torch.zeros(own.shape[1])
    return [own[j] if 0 <= j < len(own) else zero for j in range(first, first + kernel)]


SHAPES = [(1, False), (3, False), (5, False), (13, False), (1, True), (2, True), (4, True), (13, True)]
every_shape = pytest.mark.parametrize("kernel, causal", SHAPES)


@every_shape
@torch.no_grad()
def test_a_separable_convolution_equals_a_loop(kernel, causal):
    torch.manual_seed(3)
    part = DepthwiseSeparableConvolution(D, kernel, causal=causal)
    nn.init.normal_(part.pointwise.bias)
    for own, mixed in each(part, tokens()):
        for i, row in enumerate(mixed):
            filtered = torch.zeros(D)
            for t, x in enumerate(window(own, i, kernel, causal)):
                filtered += part.depthwise.weight[:, 0, t] * x
            torch.testing.assert_close(row, part.pointwise.weight @ filtered + part.pointwise.bias)


@every_shape
@torch.no_grad()
def test_a_convolution_equals_a_loop(kernel, causal):
    torch.manual_seed(4)
    part = Convolution(D, kernel, causal=causal)
    nn.init.normal_(part.convolution.bias)
    for own, mixed in each(part, tokens()):
        for i, row in enumerate(mixed):
            wanted = part.convolution.bias.clone()
            for t, x in enumerate(window(own, i, kernel, causal)):
                wanted += part.convolution.weight[:, :, t] @ x
            torch.testing.assert_close(row, wanted.relu())


@pytest.mark.parametrize("widths", [[3, 4, 5], [2], [1, 6, 2], [13, 3, 3, 1, 8]])
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_parallel_convolutions_equal_a_loop(widths, causal):
    torch.manual_seed(4)
    part = ParallelConvolutions(D, widths, causal=causal)
    for own, mixed in each(part, tokens()):
        for i, row in enumerate(mixed):
            wanted = []
            for width, filters in zip(widths, part.convolutions, strict=True):
                seen = torch.stack(window(own, i, width, causal), dim=1)
                wanted.append((filters.weight * seen).sum((1, 2)) + filters.bias)
            torch.testing.assert_close(row, torch.cat(wanted).relu())


def test_widths_share_the_features():
    """Kim 2014, section 3.1: 100 features of each of 3, 4 and 5 tokens of 300 numbers."""
    part = ParallelConvolutions(300, [3, 4, 5])
    assert [filters.out_channels for filters in part.convolutions] == [100] * 3
    assert size(part) == (3 + 4 + 5) * 300 * 100 + 300
    assert [filters.out_channels for filters in ParallelConvolutions(D, [1, 2, 4]).convolutions] == [3, 2, 2]
    with pytest.raises(ValueError, match="d_model must be at least the number of widths 8, got 7"):
        ParallelConvolutions(D, range(1, 9))


def test_a_separable_convolution_is_a_full_one_of_low_rank():
    """W_t = W diag(w_t): the same result with k d² numbers instead of k d + d²."""
    torch.manual_seed(5)
    part = DepthwiseSeparableConvolution(D, 3, bias=False)
    full = Convolution(D, 3, activation=nn.Identity(), bias=False)
    with torch.no_grad():
        full.convolution.weight.copy_(part.pointwise.weight[:, :, None] * part.depthwise.weight[:, 0])
    x, layout = tokens(), Layout.of(LENGTHS)
    torch.testing.assert_close(part(x, layout), full(x, layout))
    assert size(part) == 3 * D + D * D
    assert size(full) == 3 * D * D


def test_parameters_of_convolutions():
    d, k = 512, 5
    with torch.device("meta"):
        separable, full = DepthwiseSeparableConvolution(d, k), Convolution(d, k)
    assert size(separable) == k * d + d * d + d
    assert size(full) == k * d * d + d


def test_filters_start_at_a_size_that_keeps_that_of_tokens():
    torch.manual_seed(6)
    part = DepthwiseSeparableConvolution(512, 5)
    filtered = part.depthwise(torch.randn(3, 512, 101))
    assert float(filtered.detach().std()) == pytest.approx(1.0, rel=0.05)


def test_the_activation_is_relu_unless_another_is_given():
    torch.manual_seed(7)
    part, x, layout = Convolution(D, 3), tokens(), Layout.of(LENGTHS)
    linear = part.convolution(nn.functional.pad(layout.pad(x).mT, (1, 1))).mT
    torch.testing.assert_close(part(x, layout), layout.unpad(linear).relu())
    part.activation = nn.Tanh()
    torch.testing.assert_close(part(x, layout), layout.unpad(linear).tanh())


CAUSAL = {
    "separable": lambda: DepthwiseSeparableConvolution(D, 4, causal=True),
    "full": lambda: Convolution(D, 4, causal=True),
    "parallel": lambda: ParallelConvolutions(D, [2, 4], causal=True),
}


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_hypotheses_that_are_reordered_continue_their_own_sequences(name):
    part, x = CAUSAL[name](), tokens(9)
    first, second, more = x[:5], x[5:7], x[7:]
    cache = ConvolutionCache()
    assert isinstance(cache, Cache)
    part(torch.cat([first, second]), Layout.of([5, 2]), cache)
    cache = cache.select(torch.tensor([1, 0, 0]))
    out = part(more[[0, 0, 1]], Layout.of([1, 1, 1], [2, 5, 5]), cache)
    for got, own in zip(out, ([second, more[:1]], [first, more[:1]], [first, more[1:]]), strict=True):
        whole = torch.cat(own)
        torch.testing.assert_close(got, part(whole, Layout.of([len(whole)]))[-1])


def test_an_empty_cache_has_nothing_to_reorder():
    assert ConvolutionCache().select(torch.tensor([0, 0])).inputs is None


# All ------------------------------------------------------------------------------------------------------

MIXERS = {
    "fourier": FourierMixer,
    "position mlp": lambda: PositionMLP(D, 11, 5),
    "separable": lambda: DepthwiseSeparableConvolution(D, 3),
    "full": lambda: Convolution(D, 3),
    "parallel": lambda: ParallelConvolutions(D, [1, 4]),
}
every_mixer = pytest.mark.parametrize("name", MIXERS)


@every_mixer
@pytest.mark.parametrize("place", [PreNorm, PostNorm])
def test_every_mixer_stands_in_a_block(name, place):
    torch.manual_seed(8)
    mixer, norms = MIXERS[name](), (LayerNorm(D), LayerNorm(D))
    feed_forward = FeedForward(D, 13)
    block = EncoderBlock(place(mixer, norms[0]), place(feed_forward, norms[1]))
    x, layout = tokens(), Layout.of(LENGTHS)
    if place is PreNorm:
        between = x + mixer(norms[0](x), layout)
        wanted = between + feed_forward(norms[1](between))
    else:
        between = norms[0](x + mixer(x, layout))
        wanted = norms[1](between + feed_forward(between))
    torch.testing.assert_close(block(x, layout), wanted)


@every_mixer
def test_what_reads_ahead_refuses_a_cache(name):
    part = MIXERS[name]()
    assert part.non_causal
    with pytest.raises(ValueError, match=f"{type(part).__name__} is not causal and does not support a cache"):
        part(tokens(), Layout.of(LENGTHS), ConvolutionCache())


@pytest.mark.parametrize("name", [*MIXERS, *(f"causal {name}" for name in CAUSAL)])
def test_no_tokens_become_no_tokens(name):
    part = MIXERS[name]() if name in MIXERS else CAUSAL[name.removeprefix("causal ")]()
    for layout in (Layout.of([]), Layout.of([0, 0])):
        assert part(torch.zeros(0, D), layout).shape == (0, D)


@pytest.mark.parametrize("make", [DepthwiseSeparableConvolution, Convolution])
def test_kernels_without_a_middle_are_refused(make):
    with pytest.raises(ValueError, match="kernel must be odd unless causal=True, got 4"):
        make(D, 4)
    with pytest.raises(ValueError, match="kernel must be at least 1, got 0"):
        make(D, 0, causal=True)
    assert not make(D, 4, causal=True).non_causal


def test_only_the_last_bias_of_a_separable_convolution_is_added_to_all_tokens_alike():
    assert DepthwiseSeparableConvolution(D, 3).adds_constant == {"pointwise.bias": range(D)}
    assert DepthwiseSeparableConvolution(D, 3, bias=False).adds_constant == {}
