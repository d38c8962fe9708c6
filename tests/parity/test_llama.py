"""Rotary positions, RMS norm, SwiGLU and whole language models against Llama's and Mistral's in transformers.

Mistral's attention is in sliding windows.
"""

import pytest
import torch

from heedful.models.language_model import LanguageModelConfig, build
from heedful.nn.attention.relative import Rotary
from heedful.nn.feedforward import GatedFeedForward
from heedful.nn.layout import Layout, Tokens
from heedful.nn.norms import RMSNorm

V, D, FF, D_K, HEADS, KV_HEADS, LAYERS, CONTEXT = 37, 30, 23, 10, 3, 1, 2, 13
WINDOW = 5
SIZES = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": FF,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": D_K,
    "max_position_embeddings": 2 * CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    "tie_word_embeddings": True,
    "attn_implementation": "eager",
}


@pytest.fixture
def llama():
    return pytest.importorskip("transformers.models.llama.modeling_llama")


@pytest.fixture
def config():
    return pytest.importorskip("transformers.models.llama").LlamaConfig(**SIZES)


def tokens(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_rms_norm_is_llamas(llama):
    ours, theirs = RMSNorm(D, eps=1e-3), llama.LlamaRMSNorm(D, eps=1e-3)
    torch.nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    x, y = (tokens(11, D).requires_grad_() for _ in range(2))
    torch.testing.assert_close(ours(x), theirs(y))
    ours(x).pow(3).sum().backward()
    theirs(y).pow(3).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_half_split_rotary_positions_are_llamas(llama, config):
    q, k = tokens(2, HEADS, 7, D_K), tokens(2, KV_HEADS, 7, D_K, seed=2)
    starts = [0, 29]
    places = torch.tensor(starts)[:, None] + torch.arange(7)
    theirs = llama.apply_rotary_pos_emb(q, k, *llama.LlamaRotaryEmbedding(config)(q, places))
    ours, layout = Rotary(D_K, base=500.0, interleaved=False), Layout.of([7, 7], starts)
    torch.testing.assert_close(ours(q, layout), theirs[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours(k, layout), theirs[1], rtol=1e-5, atol=1e-5)


def test_interleaved_rotary_positions_of_a_part_of_the_width_are_gpt_js():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    sines, cosines = gptj.create_sinusoidal_positions(41, 6).split(3, dim=-1)
    x = tokens(1, 13, HEADS, D_K)  # theirs has the heads last but one
    turned = gptj.apply_rotary_pos_emb(x[..., :6], sines[None, 5:18], cosines[None, 5:18])
    wanted = torch.cat([turned, x[..., 6:]], -1).transpose(1, 2)
    ours = Rotary(D_K, d_rotated=6)(x.transpose(1, 2), Layout.of([13], [5]))
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


def test_swiglu_is_llamas(llama, config):
    ours, theirs = GatedFeedForward(D, FF), llama.LlamaMLP(config)
    with torch.no_grad():
        _copy_feed_forward(theirs, ours)
    torch.testing.assert_close(ours(tokens(11, D)), theirs(tokens(11, D)))


def _copy_feed_forward(theirs, ours):
    ours.gate_up.weight.copy_(torch.cat([theirs.gate_proj.weight, theirs.up_proj.weight]))
    ours.down.weight.copy_(theirs.down_proj.weight)


def a_llama():
    llama = pytest.importorskip("transformers.models.llama")
    return llama.LlamaForCausalLM(llama.LlamaConfig(**SIZES))


def a_mistral():
    mistral = pytest.importorskip("transformers.models.mistral")
    return mistral.MistralForCausalLM(mistral.MistralConfig(**SIZES, sliding_window=WINDOW))


@pytest.fixture(
    params=[(a_llama, "all"), (a_mistral, {"kind": "window", "size": WINDOW})], ids=["llama", "mistral"]
)
def both(request):
    """A small model of theirs with weights far from zero, and ours with the same."""
    torch.manual_seed(1)
    make, visible = request.param
    theirs = make().eval()
    ours = build(
        LanguageModelConfig(
            d_model=D,
            n_layers=LAYERS,
            context=CONTEXT,
            positions={"kind": "rotary", "base": 500.0},
            dropout=0.0,
            layer={
                "mixer": {
                    "n_heads": HEADS,
                    "n_kv_heads": KV_HEADS,
                    "d_k": D_K,
                    "d_v": D_K,
                    "bias": False,
                    "visible": visible,
                },
                "channels": {"kind": "gated", "d_ff": FF, "activation": "silu", "bias": False},
                "norm": "rms",
            },
        ),
        V,
    ).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        _copy(theirs.model, ours)
    return theirs, ours


def _copy(theirs, ours):
    ours.embedding.weight.copy_(theirs.embed_tokens.weight)
    for layer, block in zip(theirs.layers, ours.stack.blocks, strict=True):
        attention, own = layer.self_attn, block.mixer.part
        own.qkv.weight.copy_(
            torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        )
        own.out.weight.copy_(attention.o_proj.weight)
        _copy_feed_forward(layer.mlp, block.feed_forward.part)
        block.mixer.norm.load_state_dict(layer.input_layernorm.state_dict())
        block.feed_forward.norm.load_state_dict(layer.post_attention_layernorm.state_dict())
    ours.stack.norm.load_state_dict(theirs.norm.state_dict())


def test_every_parameter_has_its_counterpart(both):
    theirs, ours = both
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_logits_are_theirs(both):
    theirs, ours = both
    ids = torch.randint(V, (3, CONTEXT), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        logits = ours.heads["token"](ours(Tokens.of(ids.tolist())))
        torch.testing.assert_close(logits, theirs(ids).logits.flatten(0, 1), rtol=1e-4, atol=1e-4)


def test_gradients_are_theirs(both):
    theirs, ours = both
    ids = torch.randint(V, (3, CONTEXT), generator=torch.Generator().manual_seed(2))
    (theirs(ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).mean()).backward()
    logits = ours.heads["token"](ours(Tokens.of(ids.tolist()))).unflatten(0, (3, CONTEXT))
    (logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).mean()).backward()
    table, norm = theirs.model.embed_tokens.weight, theirs.model.layers[0].input_layernorm.weight
    torch.testing.assert_close(ours.embedding.weight.grad, table.grad, rtol=1e-4, atol=1e-6)
    own = ours.stack.blocks[0].mixer.norm.weight
    torch.testing.assert_close(own.grad, norm.grad, rtol=1e-4, atol=1e-6)
