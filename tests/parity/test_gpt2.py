"""A language model against GPT-2 of transformers, with the same weights."""

import pytest
import torch

from heedful.decoding.beam import BeamConfig, beam_search
from heedful.decoding.protocol import Request
from heedful.decoding.scoring import AverageLength
from heedful.models.language_model import LanguageModelConfig, build
from heedful.nn.layout import Tokens
from heedful.tasks.generation.generator import Generator

V, D, CONTEXT = 37, 22, 13


@pytest.fixture
def both():
    """A small GPT-2 of theirs with weights far from zero, and ours with the same."""
    gpt2 = pytest.importorskip("transformers.models.gpt2")
    torch.manual_seed(1)
    theirs = gpt2.GPT2LMHeadModel(
        gpt2.GPT2Config(vocab_size=V, n_positions=CONTEXT, n_embd=D, n_layer=3, n_head=2, n_inner=31)
    ).eval()
    ours = build(
        LanguageModelConfig(
            d_model=D,
            n_layers=3,
            context=CONTEXT,
            dropout=0.0,
            layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 31, "activation": "gelu-tanh"}},
        ),
        V,
    ).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        _copy(theirs.transformer, ours)
    return theirs, ours


def _copy(theirs, ours):
    ours.embedding.weight.copy_(theirs.wte.weight)
    ours.embedding.positions.positions.weight.copy_(theirs.wpe.weight)
    for layer, block in zip(theirs.h, ours.stack.blocks, strict=True):
        attention, feed_forward = block.mixer.part, block.feed_forward.part
        pairs = [
            (layer.attn.c_attn, attention.qkv),
            (layer.attn.c_proj, attention.out),
            (layer.mlp.c_fc, feed_forward.up),
            (layer.mlp.c_proj, feed_forward.down),
        ]
        for one, other in pairs:  # theirs multiply from the left
            other.weight.copy_(one.weight.T)
            other.bias.copy_(one.bias)
        block.mixer.norm.load_state_dict(layer.ln_1.state_dict())
        block.feed_forward.norm.load_state_dict(layer.ln_2.state_dict())
    ours.stack.norm.load_state_dict(theirs.ln_f.state_dict())


def test_logits_are_gpt2s(both):
    theirs, ours = both
    ids = torch.randint(V, (3, CONTEXT), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        logits = ours.heads["token"](ours(Tokens.of(ids.tolist())))
        torch.testing.assert_close(logits, theirs(ids).logits.flatten(0, 1), rtol=1e-4, atol=1e-4)


def test_gradients_are_gpt2s(both):
    theirs, ours = both
    ids = torch.randint(V, (3, CONTEXT), generator=torch.Generator().manual_seed(2))
    (theirs(ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).mean()).backward()
    logits = ours.heads["token"](ours(Tokens.of(ids.tolist()))).unflatten(0, (3, CONTEXT))
    (logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).mean()).backward()
    wte, wpe = theirs.transformer.wte.weight, theirs.transformer.wpe.weight
    torch.testing.assert_close(ours.embedding.weight.grad, wte.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours.embedding.positions.positions.weight.grad, wpe.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("beam, most", [(2, 3), (4, 6), (5, 2)])
def test_a_beam_search_that_keeps_unfinished_hypotheses_is_that_of_transformers(both, beam, most):
    """At the length limit their hypotheses compete by score, whether they have an end token or not."""
    theirs, ours = both
    end, prompts = 5, [[i, 2 * i] for i in range(6, 14)]
    with torch.no_grad():  # the end token is probable, so that some hypotheses finish
        bias = torch.zeros(V)
        bias[end] = 3.0
    theirs.lm_head.register_forward_hook(lambda module, args, logits: logits + bias)
    ours.heads["token"].register_forward_hook(lambda module, args, logits: logits + bias)
    expected = theirs.generate(
        torch.tensor(prompts), attention_mask=torch.ones(len(prompts), 2), max_new_tokens=most,
        num_beams=beam, num_return_sequences=beam, do_sample=False, early_stopping="never",
        length_penalty=1.0, eos_token_id=end, pad_token_id=1, output_scores=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    generator = Generator(ours)
    first = generator.prefill(None, Tokens.of(prompts))
    request = Request(first, generator.step, end=end, max_lengths=[most] * len(prompts))
    found = beam_search(
        request, BeamConfig(beam=beam, n_best=beam, length_penalty=AverageLength(), unfinished="keep")
    )
    hypotheses = [h for each in found for h in each]
    assert {h.finished for h in hypotheses} == {False, True}
    written = [[*h.ids, *([end] if h.finished else [])] for h in hypotheses]
    padded = [ids + [1] * (most - len(ids)) for ids in written]
    assert [ids[: max(map(len, written))] for ids in padded] == expected.sequences[:, 2:].tolist()
    scores = torch.tensor([h.score for h in hypotheses])
    torch.testing.assert_close(scores, expected.sequences_scores, rtol=1e-4, atol=1e-5)
