"""Blocks and stacks: the order of their parts, what each is given, and the top of the encoder."""

import pytest
import torch
from torch import nn

from heedful.errors import RequestError
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import DecoderBlock, DecoderStack, EncoderBlock, EncoderStack
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.norms import LayerNorm
from heedful.nn.residual import PostNorm, PreNorm
from heedful.nn.state import KeyValueCache
from heedful.nn.taps import intervene, recording, taps

D, D_S = 7, 11
LENGTHS, SOURCES = [5, 2, 3], [3, 1, 4]
LAYOUT, KEYS = Layout.of(LENGTHS), Layout.of(SOURCES)


def tokens(layout, d=D, seed=1):
    return torch.randn(layout.n_tokens, d, generator=torch.Generator().manual_seed(seed))


def encoder_block(place=PostNorm):
    parts = (SelfAttention(D, 1, causal=True), FeedForward(D, 13))
    return EncoderBlock(*(place(part, LayerNorm(D)) for part in parts))


def decoder_block(place=PostNorm):
    parts = (SelfAttention(D, 1, causal=True), CrossAttention(D, 1, d_memory=D_S), FeedForward(D, 13))
    return DecoderBlock(*(place(part, LayerNorm(D)) for part in parts))


def test_an_encoder_block_mixes_positions_then_channels():
    torch.manual_seed(1)
    block, x = encoder_block(), tokens(LAYOUT)
    z = block.mixer.norm(x + block.mixer.part(x, LAYOUT))
    wanted = block.feed_forward.norm(z + block.feed_forward.part(z))
    torch.testing.assert_close(block(x, LAYOUT), wanted)


def test_an_encoder_block_with_an_identity_mixes_positions_alone():
    torch.manual_seed(1)
    mixer, x = encoder_block().mixer, tokens(LAYOUT)
    assert torch.equal(EncoderBlock(mixer, nn.Identity())(x, LAYOUT), mixer(x, LAYOUT))


def test_a_decoder_block_mixes_then_attends_then_mixes_channels():
    torch.manual_seed(2)
    block, x, encoded = decoder_block(PreNorm), tokens(LAYOUT), tokens(KEYS, D_S)
    memory = block.make_memory(encoded, KEYS)
    z = x + block.mixer.part(block.mixer.norm(x), LAYOUT)
    cross = block.cross_attention
    z = z + cross.part(cross.norm(z), LAYOUT, cross.part.make_memory(encoded, KEYS))
    wanted = z + block.feed_forward.part(block.feed_forward.norm(z))
    torch.testing.assert_close(block(x, LAYOUT, memory), wanted)


def test_an_encoder_stack_is_its_blocks_in_series_then_its_norm():
    torch.manual_seed(3)
    blocks, norm = [encoder_block(PreNorm) for _ in range(3)], LayerNorm(D)
    nn.init.normal_(norm.weight)
    x = tokens(LAYOUT)
    wanted = norm(blocks[2](blocks[1](blocks[0](x, LAYOUT), LAYOUT), LAYOUT))
    torch.testing.assert_close(EncoderStack(blocks, norm)(x, LAYOUT), wanted)


def test_every_block_of_a_decoder_sees_the_top_of_the_encoder_through_its_own_memory():
    torch.manual_seed(4)
    blocks = [decoder_block() for _ in range(3)]
    stack, x, encoded = DecoderStack(blocks, nn.Identity()), tokens(LAYOUT), tokens(KEYS, D_S)
    memories = stack.make_memory(encoded, KEYS)
    wanted = x
    for block in blocks:
        wanted = block(wanted, LAYOUT, block.make_memory(encoded, KEYS))
    torch.testing.assert_close(stack(x, LAYOUT, memories), wanted)
    assert not torch.equal(memories[0].keys, memories[1].keys)


def test_each_block_writes_to_its_own_cache():
    torch.manual_seed(5)
    stack = EncoderStack([encoder_block(), encoder_block()], nn.Identity())
    x = tokens(LAYOUT)
    caches = [KeyValueCache(), KeyValueCache()]
    torch.testing.assert_close(stack(x, LAYOUT, caches), stack(x, LAYOUT))
    first = stack.blocks[0].mixer.part
    _, k, _ = first.qkv(x).split(first.sizes, dim=-1)
    held = caches[0].keys[:, 0, : LAYOUT.max_length]
    torch.testing.assert_close(LAYOUT.unpad(held), k)
    assert not torch.equal(caches[1].keys, caches[0].keys)


def test_the_output_of_every_block_can_be_read_and_replaced():
    torch.manual_seed(6)
    stack = EncoderStack([encoder_block(), encoder_block()], nn.Identity())
    x = tokens(LAYOUT)
    assert [name for name in taps(stack) if name.endswith("output")] == ["blocks.0.output", "blocks.1.output"]
    with recording(stack, ["blocks.0.output", "blocks.1.output"]) as seen:
        top = stack(x, LAYOUT)
    assert seen["blocks.1.output"][0] is top
    torch.testing.assert_close(stack.blocks[1](seen["blocks.0.output"][0], LAYOUT), top)


def test_the_residual_stream_can_be_read_and_replaced_after_every_part():
    torch.manual_seed(7)
    stack, x, encoded = (
        DecoderStack([decoder_block(PreNorm)], LayerNorm(D)),
        tokens(LAYOUT),
        tokens(KEYS, D_S),
    )
    memories, (block,) = stack.make_memory(encoded, KEYS), stack.blocks
    places = ["after_mixer", "after_cross_attention", "output"]
    parts = ["mixer", "cross_attention", "feed_forward"]
    names = [f"blocks.0.{name}" for name in [*places, *(f"{part}.added" for part in parts)]]
    with recording(stack, [*names, "top"]) as seen:
        out = stack(x, LAYOUT, memories)
    stream = [x, *(seen[f"blocks.0.{place}"][0] for place in places)]
    for part, before, after in zip(parts, stream, stream[1:]):
        torch.testing.assert_close(after, before + seen[f"blocks.0.{part}.added"][0])
    assert seen["top"][0] is out
    torch.testing.assert_close(out, stack.norm(stream[-1]))
    other = tokens(LAYOUT, seed=3)
    with intervene(stack, {"blocks.0.after_cross_attention": lambda _: other}):
        torch.testing.assert_close(stack(x, LAYOUT, memories), stack.norm(block.feed_forward(other)))


def test_a_mixer_without_a_cache_cannot_generate():
    class Mean(nn.Module):
        def forward(self, x, layout, cache=None):
            return x

    block = EncoderBlock(PreNorm(Mean(), LayerNorm(D)), nn.Identity())
    assert block(tokens(LAYOUT), LAYOUT).shape == (LAYOUT.n_tokens, D)
    with pytest.raises(RequestError, match=r"Mean has no method new_cache\(\), so the model cannot generate"):
        block.new_cache()
