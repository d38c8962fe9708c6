"""Marian of transformers: what it saves is read, what is exported it loads, and both compute the same."""

import json

import pytest
import torch
from explained import explained, same_attention

from heedful.api.run import load
from heedful.config import merged
from heedful.decoding.config import GreedyConfig, MaxLength
from heedful.decoding.greedy import greedy
from heedful.decoding.protocol import Request
from heedful.interop.conversion import export_run, import_run
from heedful.interop.marian import load_weights
from heedful.nn.layout import Tokens
from heedful.tasks.generation.generator import Generator
from heedful.text.specials import SPECIALS

transformers = pytest.importorskip("transformers")

V, V_TARGET, D = 43, 41, 22
PAD, END, UNKNOWN = V - 1, 0, 1

CASES = {
    "as published": {},
    "relu": {"activation_function": "relu"},
    "apart": {
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": V_TARGET,
        "pad_token_id": V_TARGET - 1,
        "decoder_start_token_id": V_TARGET - 1,
    },
    "apart, own head": {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "decoder_vocab_size": V,
    },
}


@pytest.fixture(params=CASES)
def theirs(request, tmp_path):
    """A folder that transformers saved, and the model."""
    options = {
        "activation_function": "swish",
        "pad_token_id": PAD,
        "decoder_start_token_id": PAD,
        **CASES[request.param],
    }
    config = transformers.MarianConfig(
        vocab_size=V,
        d_model=D,
        encoder_layers=3,
        decoder_layers=2,
        encoder_ffn_dim=31,
        decoder_ffn_dim=31,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        max_position_embeddings=37,
        scale_embedding=True,
        eos_token_id=END,
        forced_eos_token_id=END,
        **options,
    )
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter += 0.2 * torch.randn_like(parameter)
        model.final_logits_bias += torch.randn_like(model.final_logits_bias)
    model.save_pretrained(tmp_path / "their")
    (tmp_path / "their" / "vocab.json").write_text(json.dumps({"</s>": END, "<unk>": UNKNOWN}), "utf-8")
    return tmp_path / "their", model


def close(ours, theirs):
    """Whole tensors, in fp32, relative to the largest number."""
    scale = max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-5 * scale)


def their_logits(model, sources, targets):
    """Of each pair by itself, so that there is no padding."""
    with torch.no_grad():
        return [
            model(input_ids=torch.tensor([s]), decoder_input_ids=torch.tensor([t])).logits[0]
            for s, t in zip(sources, targets, strict=True)
        ]


def our_logits(model, sources, targets):
    with torch.no_grad():
        logits = model.heads["token"](model.eval()(Tokens.of(targets), Tokens.of(sources)))
    return logits.split([len(t) for t in targets])


def test_weights_that_are_read_compute_what_marian_does(theirs):
    folder, model = theirs
    ours, numberings = load_weights(folder)
    start = model.config.decoder_start_token_id
    sources = [[5, 9, 2, 31, END], [7, UNKNOWN, END], [11, END]]
    targets = [[start, 4, 8, 3], [start, UNKNOWN], [start, 17, 17, 6, 39]]
    source, target = numberings.source.ours, numberings.target.ours
    assert source[END] == SPECIALS.end
    assert target[start] == SPECIALS.start
    assert target[UNKNOWN] == SPECIALS.unknown
    found = our_logits(
        ours, [[source[i] for i in s] for s in sources], [[target[i] for i in t] for t in targets]
    )
    for mine, wanted in zip(found, their_logits(model, sources, targets), strict=True):
        close(mine[:, target], wanted)


def test_greedily_it_writes_what_marian_writes(theirs):
    folder, model = theirs
    ours, numberings = load_weights(folder)
    source, target = numberings.source.ours, numberings.target.ours
    start = model.config.decoder_start_token_id
    for ids in ([5, 9, 2, 31, END], [7, END], [11, 3, 3, 22, END]):
        with torch.no_grad():
            out = model.generate(
                torch.tensor([ids]),
                num_beams=1,
                do_sample=False,
                max_new_tokens=13,
                forced_eos_token_id=None,
                bad_words_ids=[[start], [UNKNOWN]],
            )
        wanted = out[0, 1:].tolist()
        generator = Generator(ours.eval())
        with torch.inference_mode():
            first = generator.prefill(Tokens.of([[source[i] for i in ids]]), Tokens.of([[SPECIALS.start]]))
            never = SPECIALS.never_generated
            request = Request(first, generator.step, end=SPECIALS.end, max_lengths=[13], forbidden=never)
            (hypothesis,) = greedy(request)
        theirs_of = numberings.target.theirs
        found = [theirs_of[i] for i in hypothesis.ids]
        assert found == [i for i in wanted if i != END]
        assert target[END] == SPECIALS.end


# Runs that were trained here

SOURCES = ["red dog runs", "the blue cat sleeps", "a bird", "green bird eats"]
TARGETS = ["RUNS DOG RED", "SLEEPS CAT BLUE", "BIRD", "EATS BIRD GREEN"]

MODELS = {
    "halves": {
        "positions": {"kind": "sinusoidal", "interleaved": False},
        "layer": {"channels": {"activation": "silu"}},
        "head_bias": True,
    },
    "the paper's": {},
    "target": {"tie": "target", "layer": {"channels": {"activation": "gelu-tanh"}}},
    "untied": {"tie": "none", "n_decoder_layers": 1, "layer": {"channels": {"activation": "gelu"}}},
}


SIZES = {
    "kind": "transformer",
    "d_model": D,
    "n_layers": 2,
    "max_length": 37,
    "layer": {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 31}},
}


@pytest.fixture(params=MODELS)
def own(request, make_run, tmp_path):
    """A run as training leaves it, with random weights."""
    model = MODELS[request.param]
    shared = model.get("tie", "three-way") == "three-way"
    recipe = {
        "task": {"kind": "translation"},
        "tokenizer": {"subwords": {"kind": "bpe", "merges": 20, "min_frequency": 1}, "shared": shared},
        "model": merged(SIZES, model),
        "decoding": {"kind": "greedy"},
    }
    rows = [{"source": s, "target": t} for s, t in zip(SOURCES, TARGETS, strict=True)]
    return make_run(tmp_path / "run", recipe, rows)


def test_an_exported_run_is_loaded_whole_and_computes_the_same(own):
    run = load(own)
    out = export_run(own, "marian")
    model, told = transformers.MarianMTModel.from_pretrained(out, output_loading_info=True)
    assert not any(told.values()), told
    end, start = SPECIALS.end, SPECIALS.start
    sources = [[*ids, end] for ids in run.processor.source.encode_batch(SOURCES)]
    targets = [[start, *ids] for ids in run.processor.target.encode_batch(TARGETS)]
    found, wanted = our_logits(run.model, sources, targets), their_logits(model.eval(), sources, targets)
    for mine, other in zip(found, wanted, strict=True):
        close(mine, other)
    predictions = run.predict(SOURCES, decoding=GreedyConfig(max_length=MaxLength(ratio=0, extra=13)))
    for ids, prediction in zip(sources, predictions, strict=True):
        with torch.no_grad():
            written = model.generate(
                torch.tensor([ids]), max_new_tokens=13, forced_eos_token_id=None, do_sample=False
            )
        text = run.processor.target.decode(written[0, 1:].tolist())
        assert text == prediction.text


def test_what_was_exported_is_imported_and_writes_the_same(own, tmp_path):
    before = load(own)
    after = load(import_run(export_run(own, "marian"), tmp_path / "again").path)
    assert after.processor.fingerprint == before.processor.fingerprint
    first, second = ([p.text for p in run.predict(SOURCES, beam=3)] for run in (before, after))
    assert first == second
    if not before.recipe.model.positions.interleaved:
        state = before.model.state_dict()
        assert all(torch.equal(tensor, state[name]) for name, tensor in after.model.state_dict().items())


def test_an_imported_run_explains_with_the_attention_of_marian(own, tmp_path):
    run, out = load(own), export_run(own, "marian")
    again = import_run(out, tmp_path / "again").path
    source, target = SOURCES[0], TARGETS[1]
    found = explained(again, source, "--target", target)
    model = transformers.MarianMTModel.from_pretrained(out, attn_implementation="eager").eval()
    read = model(
        input_ids=torch.tensor([[*run.processor.source.encode(source), SPECIALS.end]]),
        decoder_input_ids=torch.tensor([[SPECIALS.start, *run.processor.target.encode(target)]]),
        output_attentions=True,
    )
    same_attention(found, "self", read.encoder_attentions)
    same_attention(found, "causal", read.decoder_attentions)
    same_attention(found, "cross", read.cross_attentions)
