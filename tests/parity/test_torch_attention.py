"""Our attention, blocks and stacks against torch's own layers with the same weights, whole tensors."""

import pytest
import torch
from torch import nn

from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import DecoderBlock, EncoderBlock
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.norms import LayerNorm
from heedful.nn.residual import PostNorm, PreNorm

D, H, FF = 21, 3, 29  # d_k = 7
LENGTHS, SOURCES = [5, 2, 11], [4, 13, 1]


def copy_self(ours: SelfAttention, theirs: nn.MultiheadAttention):
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.copy_(torch.randn(3 * D))
        ours.qkv.bias.copy_(theirs.in_proj_bias)
        theirs.out_proj.weight.copy_(ours.out.weight)
        theirs.out_proj.bias.copy_(torch.randn(D))
        ours.out.bias.copy_(theirs.out_proj.bias)


def copy_cross(ours: CrossAttention, theirs: nn.MultiheadAttention):
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.q.weight, ours.kv.weight]))
        ours.q.bias.copy_(theirs.in_proj_bias.normal_()[:D])
        ours.kv.bias.copy_(theirs.in_proj_bias[D:])
        theirs.out_proj.weight.copy_(ours.out.weight)
        ours.out.bias.copy_(theirs.out_proj.bias.normal_())


def copy_feed_forward(ours: FeedForward, theirs: nn.Module):
    for mine, its in ((ours.up, theirs.linear1), (ours.down, theirs.linear2)):
        mine.load_state_dict(its.state_dict())


def rectangle(layout: Layout):
    torch.manual_seed(7)
    x = torch.randn(layout.n_tokens, D, requires_grad=True)
    return x, layout.pad(x), ~layout.real


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_equals_multihead_attention(causal):
    torch.manual_seed(1)
    layout = Layout.of(LENGTHS)
    ours = SelfAttention(D, H, causal=causal, qkv_bias=True, out_bias=True)
    theirs = nn.MultiheadAttention(D, H, batch_first=True)
    copy_self(ours, theirs)
    x, padded, pads = rectangle(layout)
    mask = torch.ones(11, 11).triu(1).bool() if causal else None
    out = ours(x, layout)
    wanted, _ = theirs(padded, padded, padded, key_padding_mask=pads, attn_mask=mask)
    torch.testing.assert_close(out, layout.unpad(wanted))
    probe = torch.randn_like(out)
    torch.testing.assert_close(
        torch.autograd.grad((out * probe).sum(), [x, ours.qkv.weight, ours.out.weight]),
        torch.autograd.grad(
            (layout.unpad(wanted) * probe).sum(), [x, theirs.in_proj_weight, theirs.out_proj.weight]
        ),
    )


def test_cross_attention_equals_multihead_attention():
    torch.manual_seed(2)
    queries, keys = Layout.of(LENGTHS), Layout.of(SOURCES)
    ours = CrossAttention(D, H, qkv_bias=True, out_bias=True)
    theirs = nn.MultiheadAttention(D, H, batch_first=True)
    copy_cross(ours, theirs)
    x, padded, _ = rectangle(queries)
    y = torch.randn(keys.n_tokens, D)
    wanted, _ = theirs(padded, keys.pad(y), keys.pad(y), key_padding_mask=~keys.real)
    out = ours(x, queries, ours.make_memory(y, keys))
    torch.testing.assert_close(out, queries.unpad(wanted))


@pytest.mark.parametrize("place", [PostNorm, PreNorm])
def test_an_encoder_block_equals_torchs_layer(place):
    torch.manual_seed(3)
    layout = Layout.of(LENGTHS)
    mixer = SelfAttention(D, H, qkv_bias=True, out_bias=True)
    ours = EncoderBlock(place(mixer, LayerNorm(D)), place(FeedForward(D, FF), LayerNorm(D)))
    theirs = nn.TransformerEncoderLayer(D, H, FF, 0.0, batch_first=True, norm_first=place is PreNorm)
    copy_self(mixer, theirs.self_attn)
    copy_feed_forward(ours.feed_forward.part, theirs)
    x, padded, pads = rectangle(layout)
    wanted = theirs(padded, src_key_padding_mask=pads)
    torch.testing.assert_close(ours(x, layout), layout.unpad(wanted))


@pytest.mark.parametrize("place", [PostNorm, PreNorm])
def test_a_decoder_block_equals_torchs_layer(place):
    torch.manual_seed(4)
    layout, keys = Layout.of(LENGTHS), Layout.of(SOURCES)
    mixer = SelfAttention(D, H, causal=True, qkv_bias=True, out_bias=True)
    cross = CrossAttention(D, H, qkv_bias=True, out_bias=True)
    parts = (mixer, cross, FeedForward(D, FF))
    ours = DecoderBlock(*(place(part, LayerNorm(D)) for part in parts))
    theirs = nn.TransformerDecoderLayer(D, H, FF, 0.0, batch_first=True, norm_first=place is PreNorm)
    copy_self(mixer, theirs.self_attn)
    copy_cross(cross, theirs.multihead_attn)
    copy_feed_forward(parts[2], theirs)
    x, padded, _ = rectangle(layout)
    y = torch.randn(keys.n_tokens, D)
    mask = torch.ones(11, 11).triu(1).bool()
    wanted = theirs(padded, keys.pad(y), tgt_mask=mask, memory_key_padding_mask=~keys.real)
    out = ours(x, layout, ours.make_memory(y, keys))
    torch.testing.assert_close(out, layout.unpad(wanted))
