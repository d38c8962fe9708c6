"""Declarations are collected from parts, at any depth, with rows of parameters by dotted names."""

import pytest
import torch
from torch import nn

from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.scores import AdditiveScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import DecoderBlock, DecoderStack, EncoderBlock, EncoderStack
from heedful.nn.cells import GRUCell
from heedful.nn.declarations import DECLARATIONS, declared, ignores_constants, without_gradient
from heedful.nn.experts import MixtureOfExperts, NoisyTopKGate
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.layout import Layout
from heedful.nn.mixers import DepthwiseSeparableConvolution, FourierMixer, PositionMLP
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm, RMSNorm
from heedful.nn.recurrent import Bidirectional, Recurrence
from heedful.nn.residual import PostNorm, PreNorm

D, FF = 6, 5


def attention(**options):
    return SelfAttention(D, 2, **{"qkv_bias": True, "out_bias": True, **options})


def encoder(place, norm, last=None, **options):
    blocks = [
        EncoderBlock(place(attention(**options), norm(D)), place(FeedForward(D, FF), norm(D)))
        for _ in range(2)
    ]
    return EncoderStack(blocks, last or nn.Identity())


def test_a_model_claims_what_any_of_its_parts_claims():
    assert declared(nn.Sequential(LayerNorm(3), nn.Linear(3, 3))) == set()
    assert declared(nn.Sequential(nn.Sequential(BatchNorm(3)))) == {"couples_batch"}
    experts = MixtureOfExperts(NoisyTopKGate(3, 3, 2), [FeedForward(3, 5) for _ in range(3)])
    all_of_them = nn.ModuleList([PowerNorm(3, 0), Recurrence(GRUCell(3, 3), reverse=True), experts])
    assert declared(all_of_them) == DECLARATIONS.keys()


def test_recurrences_read_ahead_where_they_read_backwards():
    onward, back = Recurrence(GRUCell(3, 3)), Recurrence(GRUCell(3, 3), reverse=True)
    assert declared(onward) == set()
    assert declared(back) == declared(Bidirectional(onward, back)) == {"non_causal"}


def test_rows_carry_the_dotted_name_of_their_parameter():
    stack = encoder(PostNorm, LayerNorm)
    keys = {f"blocks.{i}.mixer.part.qkv.bias": {6, 7, 8, 9, 10, 11} for i in range(2)}
    assert without_gradient(stack) == keys
    assert without_gradient(nn.ModuleDict({"a": stack})) == {f"a.{name}": rows for name, rows in keys.items()}


@pytest.mark.parametrize("place", [PostNorm, PreNorm])
@pytest.mark.parametrize(
    "norm, dropout, lost", [(LayerNorm, 0.0, True), (LayerNorm, 0.1, False), (RMSNorm, 0.0, False)]
)
def test_what_shifts_all_features_of_a_token_is_lost_where_norms_subtract_their_mean(
    place, norm, dropout, lost
):
    torch.manual_seed(1)
    mixer = place(PositionMLP(D, 7, 3), norm(D), dropout)
    last = nn.Identity() if place is PostNorm else norm(D)
    stack = EncoderStack([EncoderBlock(mixer, place(FeedForward(D, FF), norm(D)))], last).double()
    declared_lost = without_gradient(stack).get("blocks.0.mixer.part.down.bias", set())
    assert declared_lost == (set(range(7)) if lost else set())
    x = torch.randn(7, D, dtype=torch.float64)
    (stack(x, Layout.of([7])) * torch.randn(7, D, dtype=torch.float64)).sum().backward()
    gradient = stack.blocks[0].mixer.part.down.bias.grad
    assert (gradient.abs() < 1e-12).all() == lost


@pytest.mark.parametrize(
    "place, norm, lost",
    [(PreNorm, LayerNorm, True), (PreNorm, RMSNorm, False), (PostNorm, LayerNorm, False)],
)
def test_a_norm_before_a_fourier_transform_moves_its_first_feature_in_vain(place, norm, lost):
    """That feature is one number in all features of a token, which later norms subtract."""
    torch.manual_seed(1)
    last = nn.Identity() if place is PostNorm else norm(D)
    block = EncoderBlock(place(FourierMixer(), norm(D)), place(FeedForward(D, FF), norm(D)))
    stack = EncoderStack([block], last).double()
    wanted = {f"blocks.0.mixer.norm.{name}": {0} for name in ("weight", "bias")}
    assert without_gradient(stack) == (wanted if lost else {})
    x = torch.randn(7, D, dtype=torch.float64)
    (stack(x, Layout.of([7])) * torch.randn(7, D, dtype=torch.float64)).sum().backward()
    for parameter in block.mixer.norm.parameters():
        assert (parameter.grad.abs() < 1e-12).tolist() == [lost] + [False] * (D - 1)


@pytest.mark.parametrize("place", [PostNorm, PreNorm])
def test_constants_are_lost_where_every_norm_subtracts_the_batchs_mean(place):
    stack = encoder(place, BatchNorm, BatchNorm(D))
    assert ignores_constants(stack)
    all_rows = set(range(D))
    wanted = {}
    for i in range(2):
        wanted[f"blocks.{i}.mixer.part.qkv.bias"] = set(range(6, 18))
        wanted[f"blocks.{i}.mixer.part.out.bias"] = all_rows
        wanted[f"blocks.{i}.feed_forward.part.down.bias"] = all_rows
    assert without_gradient(stack) == wanted
    layout = Layout.of([5, 3])
    x = torch.randn(8, D, dtype=torch.float64)
    before = stack.double()(x, layout)
    with torch.no_grad():
        for name, rows in wanted.items():
            stack.get_parameter(name)[list(rows)] += torch.arange(len(rows))
    torch.testing.assert_close(stack(x, layout), before)


def test_one_norm_that_does_not_is_enough_to_hear_them():
    for other in (LayerNorm(D), PowerNorm(D, 3)):
        stack = encoder(PreNorm, BatchNorm, other)
        assert not ignores_constants(stack)
        assert all(rows == set(range(6, 12)) for rows in without_gradient(stack).values())
    assert not ignores_constants(EncoderStack([], nn.Identity()))


def test_dropped_weights_do_not_sum_to_one_so_the_values_bias_is_heard():
    stack = encoder(PostNorm, BatchNorm, dropout=0.1)
    assert without_gradient(stack)["blocks.0.mixer.part.qkv.bias"] == set(range(6, 12))


def test_cross_attention_counts_its_rows_in_its_own_fused_matrix():
    cross = CrossAttention(D, 2, d_k=5, d_v=7, qkv_bias=True, score=AdditiveScore(5, 5, 3))
    parts = (attention(causal=True), cross, FeedForward(D, FF))
    stack = DecoderStack([DecoderBlock(*(PostNorm(p, BatchNorm(D)) for p in parts))], nn.Identity())
    rows = without_gradient(stack)
    assert rows["blocks.0.cross_attention.part.kv.bias"] == set(range(10, 24))
    assert "blocks.0.cross_attention.part.out.bias" not in rows


def test_constants_of_convolutions_and_gated_feed_forwards_are_lost_there_too():
    """Against gradients, row by row."""
    torch.manual_seed(1)
    mixer, feed_forward = DepthwiseSeparableConvolution(D, 3), GatedFeedForward(D, FF, bias=True)
    block = EncoderBlock(PreNorm(mixer, BatchNorm(D)), PreNorm(feed_forward, BatchNorm(D)))
    stack = EncoderStack([block], BatchNorm(D)).double()
    x, probe = torch.randn(2, 23, D, dtype=torch.float64)
    (stack(x, Layout.of([11, 0, 5, 7])) * probe).sum().backward()
    zeros = {}
    for name, parameter in stack.named_parameters():
        rows = parameter.grad.reshape(len(parameter), -1).abs().amax(1)
        if found := set((rows < 1e-12).nonzero().flatten().tolist()):
            zeros[name] = found
    whole = set(range(D))
    assert zeros == {
        "blocks.0.mixer.part.pointwise.bias": whole,
        "blocks.0.feed_forward.part.down.bias": whole,
    }
    assert zeros == without_gradient(stack)
