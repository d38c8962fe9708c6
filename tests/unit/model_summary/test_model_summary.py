"""Model summaries against the models themselves: parameters, torch's counts of FLOPs and of allocations."""

import json
import re
import subprocess
import sys
from functools import cache, partial
from math import log2, prod
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import heedful
from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.model_summary import memory as memory_module
from heedful.model_summary import summary as summary_module
from heedful.model_summary import text
from heedful.model_summary.lines import _NOTES, formula
from heedful.model_summary.memory import update_memory
from heedful.model_summary.summary import describe, summary_of
from heedful.model_summary.text import memory
from heedful.models.captioner import CaptionerConfig
from heedful.models.encoder import EncoderConfig, class_head
from heedful.models.language_model import LanguageModel, LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.resnet import ResNetConfig
from heedful.models.transformer import TransformerConfig
from heedful.models.vision import VisionConfig
from heedful.nn.attention import kernels
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.cells import LSTMCell, ResetAfterGRUCell
from heedful.nn.layout import Layout, Tokens
from heedful.nn.mixers import (
    Convolution,
    DepthwiseSeparableConvolution,
    FourierMixer,
    ParallelConvolutions,
    PositionMLP,
)
from heedful.nn.patches import Images
from heedful.nn.recurrent import Recurrence
from heedful.objectives.cross_entropy import NextToken
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import AdamConfig, build_optimizer

ROOT = Path(__file__).parents[3]

SOURCE, TARGET, PAIRS = 5, 7, 3  # tokens of a source and of a target sentence; sentences
ADDITIVE = {"kind": "additive", "d_attention": 17}
BILINEAR = {"kind": "bilinear"}
EXPERTS = {"kind": "experts", "expert": {"d_ff": 29}}


def transformer(mixer=None, channels=None, layer=None, **changes):
    sizes = {"d_model": 24, "n_layers": 2, "dropout": 0.0}
    return TransformerConfig(**(sizes | changes), layer=layer_of(mixer, channels, layer))


def language_model(mixer=None, channels=None, layer=None, **changes):
    sizes = {"d_model": 24, "n_layers": 2, "dropout": 0.0, "context": 31}
    return LanguageModelConfig(**(sizes | changes), layer=layer_of(mixer, channels, layer))


def layer_of(mixer, channels, others):
    """The section of a layer; mixers of other kinds than attention have their own keys only."""
    channels = channels or {}
    own = mixer or {}
    heads = {"n_heads": 4} if "attention" in own.get("kind", "attention") else {}
    widths = {"d_ff": 29} if channels.get("kind", "feed-forward") in ("feed-forward", "gated") else {}
    return {"mixer": {**heads, **own}, "channels": {**widths, **channels}, **(others or {})}


def recurrent(**changes):
    return RecurrentConfig(**({"d_embedding": 11, "d_hidden": 13, "attention": ADDITIVE} | changes))


LEARNED = {"kind": "learned"}
LOCATION = {"n_heads": 3, "d_k": 7, "d_v": 5, "channels": 2, "half_width": 4}
ONE_WAY = {"direction": "right-to-left", "decoder": "luong"}
DROPS = {"dropout": 0.1}


def blocks(size, **others):
    return {"visible": {"kind": "blocks", "size": size, **others}}


def window(size):
    return {"visible": {"kind": "window", "size": size}}


CONFIGS = {
    "plain": transformer(),
    "no bias in attention": transformer({"bias": False}),
    "head widths": transformer({"d_k": 7, "d_v": 5, "n_kv_heads": 2}),
    "pre-norm": transformer(layer={"norm_placement": "pre"}, n_decoder_layers=3),
    "bilinear": transformer({"score": "bilinear", "n_kv_heads": 2}, tie="none"),
    "additive": transformer({"score": "additive", "n_kv_heads": 2}, tie="target"),
    "cosine": transformer({"score": "cosine"}),
    "learned positions": transformer(positions="learned", max_length=31),
    "rotary": transformer(positions="rotary"),
    "rotary, grouped": transformer({"n_kv_heads": 2}, positions="rotary"),
    "rotary, cosine": transformer({"n_kv_heads": 2, "score": "cosine"}, positions="rotary"),
    "rotary, in part": transformer(positions={"kind": "rotary", "d_rotated": 2}),
    "alibi": transformer(positions="alibi"),
    "concatenated": transformer(positions="learned", max_length=31, combine="concat", tie="none"),
    "rms norm": transformer(layer={"norm": "rms"}),
    "batch norm": transformer(layer={"norm": "batch"}),
    "gated": transformer(channels={"kind": "gated", "activation": "silu"}),
    "gated, dropout": transformer(channels={"kind": "gated", "bias": False, **DROPS}, dropout=0.3),
    "feed-forward without bias": transformer(channels={"bias": False}),
    "power norm": transformer(
        channels={"activation": "gelu"}, layer={"norm": "power", "norm_placement": "pre"}
    ),
    "dropout": transformer(DROPS, DROPS, dropout=0.3),
    "rnn": recurrent(cell="rnn"),
    "deep lstm": recurrent(cell="lstm", n_layers=2, attention=BILINEAR, input_feeding=True, d_readout=7),
    "fixed context": recurrent(attention=None, direction="left-to-right"),
    "residual": recurrent(
        attention=None, direction="left-to-right", decoder="plain", cell="lstm", n_layers=3, residual=True
    ),
    "luong dot": recurrent(
        **ONE_WAY, n_layers=2, attention={"kind": "dot"}, bridge="copy", d_readout=11, tie="target"
    ),
    "luong cosine": recurrent(**ONE_WAY, attention={"kind": "cosine", "key_strength": 2.0}, bridge="zero"),
    "luong additive": recurrent(decoder="luong", n_layers=2, cell="lstm"),
    "multi-head additive": recurrent(
        attention={"kind": "multi-head-additive", "n_heads": 3, "d_k": 7, "d_v": 5}
    ),
    "location-aware": recurrent(decoder="luong", attention={"kind": "multi-head-location", **LOCATION}),
    "multi-resolution": recurrent(
        attention={"kind": "multi-head-multi-resolution", **LOCATION}, input_feeding=True
    ),
    "language model": language_model(),
    "language model, modern": language_model(
        {"bias": False, "n_kv_heads": 2},
        {"kind": "gated", "bias": False, "activation": "silu"},
        {"norm": "rms"},
        positions="rotary",
    ),
    "local": language_model({**blocks(3), "n_kv_heads": 2}),
    "local, dropout": language_model({**blocks(11), **DROPS}),
    "windows in blocks": language_model({**window(3), "n_kv_heads": 2}, positions="rotary"),
    "windows as a mask": language_model({**window(5), **DROPS}, pattern=[{}, {"mixer": {"visible": "all"}}]),
    "windows that hold all": language_model(window(7)),
    "earlier block": language_model(blocks(3, earlier=1)),
    "compressed": language_model({"kind": "compressed-attention"}),
    "alternating": language_model(
        n_layers=3,
        pattern=[
            {"mixer": {"n_heads": 4, "score": "bilinear", "bias": False, **blocks(2)}},
            {"mixer": {"kind": "compressed-attention", "n_heads": 4, "score": "bilinear", "bias": False}},
        ],
    ),
    "experts": language_model(
        n_layers=3, pattern=[{}, {"channels": {**EXPERTS, "n": 5, "k": 2, "gate": "top-k"}}, {}]
    ),
    "noisy experts": language_model(
        channels={**EXPERTS, "n": 4, "k": 3, "expert": {"d_ff": 29, "activation": "relu", "dropout": 0.2}}
    ),
    "language model, lstm": language_model({"kind": "recurrent"}, {"kind": "none"}, tie=False),
    "language model, gru": language_model({"kind": "recurrent", "cell": "gru"}, dropout=0.1),
    "language model, separable": language_model({"kind": "separable", "kernel": 4}),
    "language model, convolution": language_model({"kind": "convolution"}),
    "language model, parallel convolutions": language_model(
        {"kind": "parallel-convolutions", "widths": [2, 5]}
    ),
    "language model, attention alone": language_model(channels={"kind": "none"}),
    "language model, dropout": language_model({**DROPS, "n_kv_heads": 2}, dropout=0.3, tie=False),
}


def vocabularies(config):
    if config.kind == "language-model":
        return (41,)
    return (37, 37) if config.tie == "three-way" else (37, 41)


@cache
def model_of(case):
    return build_model(CONFIGS[case], *vocabularies(CONFIGS[case]))


@cache
def described(case):
    return describe(model_of(case), length=TARGET, source_length=SOURCE)


def on_meta(config, *sizes):
    with torch.device("meta"):
        return build_model(config, *sizes)


def count(model):
    """Numbers in the parameters; torch lists tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def run(model):
    """Logits of a few sentences of one length on each side."""
    source = Tokens.of([[3 + (i + j) % 29 for i in range(SOURCE)] for j in range(PAIRS)])
    target = Tokens.of([[3 + (2 * i + j) % 29 for i in range(TARGET)] for j in range(PAIRS)])
    return model.heads["token"](model(target, None if isinstance(model, LanguageModel) else source))


def line(summary, *names):
    """The line found by walking down ``names``."""
    here = summary.total
    for name in names:
        (here,) = [part for part in here.parts if part.name == name]
    return here


# Parameters


def test_a_model_of_images_says_how_many_tokens_an_image_is():
    summary = describe("vit-b-16", n_classes=0)
    assert summary.parameters == 85_798_656
    patches = 196 * 16 * 16 * 3 * 768
    layer = 197 * (4 * 768 * 768 + 2 * 768 * 3072) + 2 * 197 * 197 * 768
    assert summary.total.flops == 2 * (patches + 12 * layer)
    assert summary.notes == ("an image becomes 197 tokens",)


@pytest.mark.parametrize("name, width, by_default", [("vit-b-16", 768, 1000), ("bert-base", 768, 0)])
def test_a_head_for_classes_reads_one_vector_of_a_sequence(name, width, by_default):
    bare, seven = describe(name, n_classes=0), describe(name, overrides=["n_classes=7"])
    assert seven.parameters - bare.parameters == 7 * (width + 1)
    assert seven.total.flops - bare.total.flops == 2 * 7 * width
    assert "a head for 7 classes" in seven.notes
    assert describe(name).parameters - bare.parameters == by_default * (width + 1)


def test_what_writes_tokens_has_no_classes():
    with pytest.raises(RequestError, match="n_classes: not supported by a language-model model"):
        describe("gpt2", n_classes=3)


def test_a_model_of_images_has_no_vocabulary():
    with pytest.raises(RequestError, match="for a vision model, which reads no text"):
        describe("vit-b-16", vocab_size=7)


@pytest.mark.parametrize("case", CONFIGS)
def test_configurations_add_up_to_their_parameters(case):
    assert described(case).parameters == count(model_of(case))


heads = st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2), (6, 6)])
widths = st.one_of(st.none(), st.integers(1, 11))


@st.composite
def transformers(draw):
    n_heads, n_kv_heads = draw(heads)
    combine = draw(st.sampled_from(["add", "concat"]))
    options = {
        "d_model": 6 * draw(st.sampled_from([2, 4, 6])),
        "n_layers": draw(st.integers(1, 3)),
        "n_decoder_layers": draw(st.sampled_from([None, 1, 2])),
        "combine": combine,
        "positions": draw(st.sampled_from(["learned", "constant", "none"])),
        "d_positions": draw(st.sampled_from([None, 3])),
        "tie": "none" if combine == "concat" else draw(st.sampled_from(["three-way", "target", "none"])),
        "layer": {
            "mixer": {
                "kind": "attention",
                "n_heads": n_heads,
                "n_kv_heads": n_kv_heads,
                "d_k": draw(widths),
                "d_v": draw(widths),
                "score": draw(st.sampled_from(["scaled-dot", "dot", "bilinear", "additive", "cosine"])),
                "bias": draw(st.booleans()),
            },
            "channels": {
                "kind": draw(st.sampled_from(["feed-forward", "gated"])),
                "d_ff": draw(st.integers(1, 31)),
                "bias": draw(st.booleans()),
            },
            "norm": draw(st.sampled_from(["layer", "rms", "batch", "power"])),
            "norm_placement": draw(st.sampled_from(["pre", "post"])),
        },
    }
    return {"max_length": 19, **options}


@pytest.mark.slow
@given(transformers())
@settings(max_examples=40, deadline=None)
def test_any_transformer_adds_up(options):
    config = TransformerConfig(**options)
    model = on_meta(config, *vocabularies(config))
    summary = describe(model)
    assert summary.parameters == count(model)
    assert all(row.line.parameters == row.line.times * row.line.each for row in summary.lines())


def test_a_model_of_unknown_parts_adds_up_too():
    class Unknown(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(3, 5))
            self.same = self.table
            self.inner = nn.Transformer(
                d_model=6,
                nhead=2,
                num_encoder_layers=2,
                num_decoder_layers=1,
                dim_feedforward=7,
                batch_first=True,
            )
            self.convolution = nn.Conv1d(3, 5, 7)

    model = Unknown()
    summary = describe(model)
    assert summary.name == "Unknown"
    assert summary.parameters == count(model)
    assert line(summary, "table").formula == "3 * 5"


def test_what_a_known_part_was_given_besides_is_counted():
    class Biased(SelfAttention):
        def __init__(self):
            super().__init__(6, 2)
            self.table = nn.Parameter(torch.zeros(3, 5))

    summary = describe(nn.Sequential(Biased()))
    assert summary.parameters == 4 * 6 * 6 + 3 * 5
    assert line(summary, "self-attention", "table").parameters == 3 * 5


def test_cells_that_share_one_matrix_are_counted_once_there():
    first, second = LSTMCell(5, 7), LSTMCell(5, 7)
    second.recurrent = first.recurrent
    both = nn.Sequential(first, second)
    assert describe(both).parameters == count(both) == 4 * (7 * 7 + 7 * 5 + 7) + 4 * (7 * 5 + 7)


def test_a_part_that_stands_in_two_places_is_counted_once_and_computes_twice():
    shared = SelfAttention(6, 2)
    x, layout = torch.empty(7, 6, device="meta"), Layout.of([7], device="meta")

    def both(model):
        return model[1](model[0](x, layout), layout)

    twice = summary_of(nn.Sequential(shared, shared), both, 7)
    once = summary_of(nn.Sequential(shared), lambda model: model[0](x, layout), 7)
    assert twice.parameters == count(shared)
    assert twice.total.flops == 2 * once.total.flops == 2 * 2 * 7 * (4 * 6 * 6 + 2 * 7 * 6)


def test_a_cell_with_its_own_vector_adds_up():
    layer = nn.Sequential(Recurrence(ResetAfterGRUCell(5, 7)))
    assert describe(layer).parameters == count(layer) == 3 * (7 * 7 + 7 * 5 + 7) + 7


def test_a_model_without_parameters_has_an_empty_summary():
    summary = describe(nn.Identity())
    assert (summary.parameters, summary.total.flops, len(summary.lines())) == (0, 0, 1)


def test_frozen_parameters_are_not_trained():
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 7))
    model[0].requires_grad_(False)
    summary = describe(model)
    assert (summary.parameters, summary.trainable) == (3 * 5 + 5 + 5 * 7 + 7, 5 * 7 + 7)
    needs = {memory.name: memory.bytes for memory in summary.memory}
    assert needs["gradients"] == 4 * (5 * 7 + 7)


def test_a_formula_has_symbols_and_values_and_equal_terms_once():
    d_h, d_x = ("d_h", 7), ("d_x", 5)
    assert formula([(d_h, d_x), (d_h, d_h), (d_h,)]) == "d_h * d_x + d_h * d_h + d_h = 7 * 5 + 7 * 7 + 7"
    assert formula([(d_h,), (d_h,)]) == "2 * d_h = 2 * 7"


@pytest.mark.parametrize("case", CONFIGS)
def test_the_printed_formula_of_a_line_gives_its_parameters(case):
    """The text is read back: what a person would compute from it."""
    checked = 0
    for row in described(case).lines():
        found = re.search(r"= ([\d *+]+)$", row.line.formula)
        if found and row.line.each and not row.line.parts:
            terms = [term.split("*") for term in found[1].split("+")]
            assert sum(prod(map(int, term)) for term in terms) == row.line.each, row.line
            checked += 1
    assert checked > 5


# As the lectures count


def test_the_base_model_as_lecture_s0_counts_it():
    summary = describe("transformer-base", vocab_size=37000)
    attention = ("encoder", "encoder layer", "self-attention")
    for symbol in ("W_Q", "W_K", "W_V"):
        head = line(summary, *attention, symbol)
        assert (head.each, head.times, head.parameters) == (64 * 512, 8, 262144)
        assert "32,178" in head.note
    assert line(summary, *attention, "W_O").parameters == 262144
    assert line(summary, *attention).parameters == 4 * 512**2 == 1048576
    assert line(summary, "encoder", "encoder layer", "feed-forward").parameters == 2099712
    norm = line(summary, "encoder", "encoder layer", "norm")
    assert (norm.each, norm.times) == (1024, 2)
    layer = line(summary, "encoder", "encoder layer")
    assert (layer.each, layer.times, layer.parameters) == (3150336, 6, 18902016)
    layer = line(summary, "decoder", "decoder layer")
    assert (layer.each, layer.times) == (4199936, 6)
    assert line(summary, "source embedding").parameters == 18944000
    assert line(summary, "target embedding").parameters == line(summary, "output layer").parameters == 0
    assert (summary.parameters, summary.layers) == (63045632, 42)


def test_the_lectures_slip_is_marked_as_often_as_it_is_printed():
    notes = [row.line.note for row in describe("transformer-base").lines()]
    assert sum("32,178" in note for note in notes) == 3


def test_biases_in_attention_are_what_they_add():
    summary = describe("transformer-base", overrides=["layer.mixer.bias=true"])
    assert line(summary, "encoder", "encoder layer").each == 3152384
    assert line(summary, "decoder", "decoder layer").each == 4204032


def test_big_is_the_papers():
    summary = describe("transformer-big")
    assert summary.parameters == 214171648
    assert "213 million" in summary.total.note


def test_a_note_stands_only_where_the_numbers_are_the_lectures():
    notes = {row.line.note for row in describe("transformer-base", vocab_size=37000).lines()}
    lectures = set(_NOTES.values())
    assert len(notes & lectures) > 5
    for name in ("transformer-tiny", "transformer-big", "rnnsearch", "seq2seq"):
        own = {row.line.note for row in describe(name, vocab_size=32768).lines()} & lectures
        assert not own, (name, own)


def test_every_note_is_shown_by_some_model():
    shown = set()
    for overrides in ([], ["layer.mixer.bias=true"], ["tie=none"]):
        shown |= {row.line.note for row in describe("transformer-base", overrides=overrides).lines()}
    shown |= {row.line.note for row in describe("transformer-big").lines()}
    assert set(_NOTES.values()) <= shown


@pytest.mark.parametrize("n_heads", [1, 16])
def test_split_heads_are_free(n_heads):
    one, many = (
        describe("transformer-base"),
        describe("transformer-base", overrides=[f"layer.mixer.n_heads={n_heads}"]),
    )
    assert (one.parameters, one.flops_per_token) == (many.parameters, many.flops_per_token)


def test_full_width_heads_cost_as_many_times_as_there_are():
    full = describe("transformer-base", overrides=["layer.mixer.d_k=512", "layer.mixer.d_v=512"])
    attention = line(full, "encoder", "encoder layer", "self-attention")
    assert attention.parameters == 4 * 8 * 512**2 == 8 * 1048576


def test_cells_gate_by_gate():
    summary = describe(model_of("deep lstm"))
    cells = line(summary, "encoder").parts
    # Two directions; the second layer reads both of the first.
    assert [(cell.name, cell.each, cell.times) for cell in cells] == [
        ("LSTM cell", 4 * (13 * 13 + 13 * 11 + 13), 2),
        ("LSTM cell", 4 * (13 * 13 + 13 * 26 + 13), 2),
    ]
    (gate,) = cells[0].parts
    assert (gate.name, gate.times) == ("gate", 4)


def test_the_long_summariser_as_the_lecture_draws_it():
    """L-M-L-M-L, with experts in the middle; a third of the keys in M, a block of them in L."""
    summary = describe("t-dmca-moe", vocab_size=32_000, length=11_000)
    names = [(part.name, part.times) for part in line(summary, "stack").parts if part.name.endswith("layer")]
    assert sorted(names) == [("local layer", 1), ("local layer", 2), ("memory-compressed layer", 2)]
    memory = line(summary, "stack", "memory-compressed layer", "memory-compressed attention")
    scores = next(part for part in memory.parts if part.name == "scores")
    assert scores.formula == "2 FLOPs * keys * n_heads * d_k = 3667 * 8 * 64"
    assert scores.note == "3667 slots stand for 11000 tokens"
    (middle,) = [
        part for part in line(summary, "stack").parts if (part.name, part.times) == ("local layer", 1)
    ]
    mixture = next(part for part in middle.parts if part.name == "mixture of experts")
    expert, work = (
        next(part for part in mixture.parts if part.name.startswith(name)) for name in ("expert", "work")
    )
    assert (expert.each, expert.times, expert.flops) == (2_099_712, 128, 0)
    assert (work.parameters, work.flops) == (0, 2 * 2 * 11_000 * 2 * 512 * 2048)
    whole, parts = describe("t-d", length=11_000), describe("t-dmca", length=11_000)
    assert parts.flops_per_token < whole.flops_per_token / 2


def test_layers_with_windows_are_told_from_full_ones():
    """Of 256 tokens, those of 2 windows are computed; in sequences of up to 2 windows, all."""
    options = ["layer.mixer.visible={kind: window, size: 16}", "pattern=[{}, {}, {mixer: {visible: all}}]"]
    summary = describe("char-mini", length=256, overrides=options)
    windows, full = line(summary, "stack", "layer with windows"), line(summary, "stack", "causal layer")
    assert (windows.times, full.times) == (4, 2)
    (part,), (whole,) = ([p for p in each.parts if "attention" in p.name] for each in (windows, full))
    assert part.name == "causal self-attention in windows of 16"
    scores, others = (next(p for p in each.parts if p.name == "scores") for each in (part, whole))
    assert (scores.flops, others.flops) == (2 * 256 * 32 * 384, 2 * 256 * 256 * 384)
    assert scores.note == "each token with 2 blocks of 16 alone; all computed; a window leaves 16"
    short = line(describe("char-mini", length=32, overrides=options), "stack", "layer with windows")
    (part,) = [p for p in short.parts if "attention" in p.name]
    scores = next(p for p in part.parts if p.name == "scores")
    assert (scores.flops, scores.note) == (2 * 32 * 32 * 384, "all computed; a window leaves 16")


# FLOPs


@pytest.mark.slow
@pytest.mark.parametrize("case", CONFIGS)
def test_flops_are_those_that_torch_counts(case):
    model, summary = model_of(case), described(case)
    with FlopCounterMode(display=False) as counter:
        run(model)
    assert PAIRS * summary.total.flops == counter.get_total_flops()
    assert summary.flops_per_token * TARGET * PAIRS == pytest.approx(counter.get_total_flops(), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CONFIGS if isinstance(CONFIGS[case], TransformerConfig)])
def test_backward_takes_twice_the_flops_of_forward(case):
    model, summary = model_of(case), described(case)
    with FlopCounterMode(display=False) as counter:
        run(model).sum().backward()
    expected = summary.training_flops_per_token * TARGET * PAIRS
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-12)


# Position mixers alone


MIXERS = {
    "position mlp": lambda: PositionMLP(13, 31, 5),
    "separable": lambda: DepthwiseSeparableConvolution(13, 5),
    "separable, causal": lambda: DepthwiseSeparableConvolution(13, 4, causal=True, bias=False),
    "convolution": lambda: Convolution(13, 5, activation=nn.GELU()),
    "parallel convolutions": lambda: ParallelConvolutions(13, [3, 4, 5]),
    "convolution, causal": lambda: Convolution(13, 2, causal=True, bias=False),
}


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_adds_up(name):
    mixer, lengths = MIXERS[name](), [29] * PAIRS
    x, layout = torch.empty(29 * PAIRS, 13, device="meta"), Layout.of(lengths, device="meta")
    summary = summary_of(nn.Sequential(mixer), lambda model: model[0](x, layout), 29)
    assert summary.parameters == count(mixer)
    with FlopCounterMode(display=False) as counter:
        mixer(torch.randn(29 * PAIRS, 13), Layout.of(lengths))
    assert summary.total.flops == counter.get_total_flops()


def test_a_transform_takes_5_n_log_n_for_each_sequence():
    x, layout = torch.empty(29 * PAIRS, 13, device="meta"), Layout.of([29] * PAIRS, device="meta")
    summary = summary_of(nn.Sequential(FourierMixer()), lambda model: model[0](x, layout), 29)
    assert summary.total.flops == PAIRS * round(5 * 29 * 13 * log2(29 * 13))


# Encoders of texts and of images: all that torch counts, and what it does not


SMALL = {"d_model": 24, "n_layers": 2, "dropout": 0.0}
SMALL_IMAGES = {**SMALL, "image_size": 12, "channels": 2, "patch_size": 4}


def torch_counts(model, inputs):
    """Operations with the heads, as torch counts them: products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        hidden = model(inputs)
        model.heads["class"](model.heads["pooled"](hidden, inputs.layout))
    return counter.get_total_flops()


@pytest.mark.parametrize(
    "mixer",
    ["attention", "recurrent", "fourier", "mlp", "separable", "convolution", "parallel-convolutions"],
)
def test_every_mixer_of_an_encoder_has_the_operations_that_torch_counts(mixer):
    """Of transforms torch counts nothing: 5 N log2 N are the numbers n = 7 times d = 24 of a sequence."""
    positions = "none" if mixer == "mlp" else "learned"
    config = EncoderConfig(max_length=31, positions=positions, layer={"mixer": {"kind": mixer}}, **SMALL)
    model = build_model(config, 41)
    model.heads["class"] = class_head(24, 5, 0.0)
    inputs = Tokens.of([[3 + (i + j) % 29 for i in range(TARGET)] for j in range(PAIRS)])
    transforms = 2 * round(5 * 7 * 24 * log2(7 * 24)) if mixer == "fourier" else 0
    summary = describe(model, length=TARGET)
    assert PAIRS * (summary.total.flops - transforms) == torch_counts(model, inputs)
    assert summary.parameters == count(model)
    assert ("Fourier" in str(summary)) == (mixer == "fourier")


def of_images(model, d_model, n_tokens, channels, size):
    model.heads["class"] = class_head(d_model, 5, 0.0)
    return model, Images.of(torch.randn(PAIRS, channels, size, size), n_tokens)


@pytest.mark.parametrize("patches", ["linear", "convolution"])
@pytest.mark.parametrize(
    "mixer, pooling",
    [
        ("attention", "first"),
        ("mlp", "mean"),
        ("separable", "mean"),
        ("convolution", "mean"),
        ("parallel-convolutions", "mean"),
    ],
)
def test_models_of_patches_have_the_operations_that_torch_counts(mixer, pooling, patches):
    positions = "none" if mixer == "mlp" else "learned"
    config = VisionConfig(
        pooling=pooling,
        positions=positions,
        patches=patches,
        layer={"mixer": {"kind": mixer}},
        **SMALL_IMAGES,
    )
    model = build_model(config)
    model, inputs = of_images(model, 24, config.n_tokens, 2, 12)
    summary = describe(model, length=config.n_tokens)
    assert PAIRS * summary.total.flops == torch_counts(model, inputs)
    assert summary.parameters == count(model)


def test_a_captioner_has_the_operations_that_torch_counts():
    model = build_model(CaptionerConfig(**SMALL_IMAGES), 41)
    source = Images.of(torch.randn(PAIRS, 2, 12, 12), 9)
    target = Tokens.of([[3 + (i + j) % 29 for i in range(TARGET)] for j in range(PAIRS)])
    with FlopCounterMode(display=False) as counter:
        model.heads["token"](model(target, source))
    summary = describe(model, length=TARGET, source_length=9)
    assert PAIRS * summary.total.flops == counter.get_total_flops()


RESNETS = {
    "as BiT": {},
    "odd": {"image_size": 31},
    "without a pool": {"root_kernel": 3, "root_stride": 1, "root_pool": False},
    "far apart": {"root_kernel": 5, "root_stride": 3, "image_size": 37},
}


@pytest.mark.parametrize("case", RESNETS)
def test_residual_networks_have_the_operations_that_torch_counts(case):
    sizes = {"image_size": 32, "channels": 2, "n_blocks": [1, 3, 1], "width": 4, "n_groups": 2}
    config = ResNetConfig.model_validate({**sizes, **RESNETS[case]})
    model, inputs = of_images(build_model(config), config.d_model, config.n_tokens, 2, config.image_size)
    summary = describe(model, length=config.n_tokens)
    assert PAIRS * summary.total.flops == torch_counts(model, inputs)
    assert summary.parameters == count(model)


def test_resnet_50_takes_about_four_billion_multiplications():
    """He et al. 2016a, table 1: 3.8 billion, there with the stride in the first convolution of a block."""
    assert describe("bit-r50x1").total.flops / 2 == pytest.approx(4.1e9, rel=0.01)


# Memory


adam = partial(build_optimizer, AdamConfig())


def a_step(model):
    """A training step of any model: the next tokens, or all that its heads compute."""
    return ModelWithLoss(model, NextToken(chunk=64))


def a_batch(model, n):
    source = Tokens.of([[3 + (i + j) % 29 for i in range(SOURCE)] for j in range(n)])
    target = Tokens.of([[3 + (2 * i + j) % 29 for i in range(TARGET)] for j in range(n)])
    return Batch(target, target.ids, None if isinstance(model, LanguageModel) else source)


def allocated(step, make_batch):
    """Bytes that torch's allocator really hands out in the second update at its peak, by torch's profiler."""
    optimizer = adam(step.model)

    def update():
        batch = make_batch()
        loss, _ = step(batch, step.counts(batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step.train()
    update()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        update()
    found = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(found, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    kept = sum(x.nbytes for x in (*step.parameters(), *step.buffers()))
    moments = (x for state in optimizer.state.values() for x in state.values())
    return peak + kept + sum(x.nbytes for x in moments)


MEASURED = (
    *("plain", "head widths", "learned positions", "cosine", "gated, dropout", "dropout", "rms norm"),
    *("deep lstm", "location-aware", "language model, modern", "windows in blocks", "compressed"),
    *("noisy experts", "language model, separable", "language model, dropout"),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", MEASURED)
def test_the_memory_of_an_update_is_what_the_allocator_hands_out(case):
    model = build_model(CONFIGS[case], *vocabularies(CONFIGS[case]))
    with mock.patch.object(kernels, "CPU_SDPA_FROM", 4):  # as for long sequences
        found, _ = update_memory(a_step(model), adam, a_batch(model, 40))
        measured = allocated(a_step(model), lambda: a_batch(model, 40))
    assert found.total() == pytest.approx(measured, rel=0.05)


def test_weights_gradients_and_moments_are_what_training_holds():
    """All gradients exist in the forward pass if there are earlier micro-batches."""
    model = build_model(CONFIGS["plain"], 37, 37)
    optimizer = adam(model)
    run(model).sum().backward()
    optimizer.step()
    batch = a_batch(model, 200)
    needs, _ = update_memory(a_step(model), adam, batch, accumulates=True)
    tables = sum(buffer.nbytes for buffer in model.buffers())
    assert needs["weights"] == sum(p.nbytes for p in model.parameters()) + tables
    assert needs["gradients"] == sum(p.grad.nbytes for p in model.parameters())
    moments = (value for state in optimizer.state.values() for value in state.values())
    assert needs["optimizer"] == sum(moment.nbytes for moment in moments)
    alone, _ = update_memory(a_step(model), adam, batch)
    assert alone["gradients"] < needs["gradients"]
    assert alone.total() < needs.total()


def test_logits_exist_for_one_chunk():
    losses = [
        update_memory(ModelWithLoss(model_of("plain"), NextToken(chunk=chunk)), adam, a_batch(None, 999))[0]
        for chunk in (500, 1500)
    ]
    more = losses[1].total() - losses[0].total()
    assert 4 * 1000 * 37 <= more <= 4 * 1000 * (37 + 2 * 24)  # logits, and hidden states of the same rows


def test_activations_grow_with_the_batch():
    small, large = (
        {part.name: part.bytes for part in describe(model_of("plain"), tokens=tokens).memory}
        for tokens in (3200, 32000)
    )
    assert large["activations"] == pytest.approx(10 * small["activations"], rel=0.01)
    assert large["weights"] == small["weights"]


def test_memory_of_huge_batches_is_extrapolated(monkeypatch):
    whole = describe(model_of("plain"), tokens=40_000).memory
    monkeypatch.setattr(memory_module, "MOST_TOKENS", 10_000)
    for part, measured in zip(describe(model_of("plain"), tokens=40_000).memory, whole, strict=True):
        assert part.bytes == pytest.approx(measured.bytes, rel=0.01, abs=1000)


# Lengths


def test_a_language_model_is_counted_at_its_context():
    summary = describe("char-mini")
    assert (summary.target_length, summary.source_length) == (256, 256)
    assert describe("char-mini", length=32).target_length == 32


@pytest.mark.parametrize(
    "recipe, overrides, length",
    [
        ("shakespeare-char", ["model.context=512"], 512),
        ("wikitext2-masked", [], 128),
        ("digits", [], 17),
        ("sst2", [], 32),
        ("agnews-headlines-lm", [], 64),  # a text and its summary in one sequence
    ],
)
def test_a_recipe_is_counted_at_the_lengths_of_its_training(recipe, overrides, length):
    assert describe(recipe, overrides=overrides).target_length == length


def test_a_length_that_the_model_cannot_read_is_refused():
    with pytest.raises(RequestError, match="1024"):
        describe("gpt2", length=1025)
    with pytest.raises(RequestError, match="length: must be at most"):
        describe("transformer-tiny", length=10**9)
    for length in (0, "5"):
        with pytest.raises(RequestError, match="length: expected a whole number of at least 1, got"):
            describe("transformer-tiny", length=length)


def test_an_error_of_a_model_is_no_request(monkeypatch):
    def fail(*_):
        raise ValueError("a bug")

    monkeypatch.setattr(summary_module, "apply_heads", fail)
    with pytest.raises(ValueError, match="a bug"):
        describe("transformer-tiny")


# What is asked for


def test_text_has_every_line_and_its_note():
    summary = describe("transformer-base")
    text = str(summary)
    for row in summary.lines():
        assert f"{row.line.parameters:,}" in text
        assert row.line.note in text
    assert "42 layers" in text
    assert "V = 37,000" in text


def test_vocabularies_of_each_side():
    summary = describe("reverse-rnn", vocab_size=101, target_vocab=103)
    assert line(summary, "source embedding").formula == "V * d_model = 101 * 16"
    assert line(summary, "target embedding").formula == "V * d_model = 103 * 16"
    assert summary.notes == ("V = 101 (source) and 103 (target)",)


def test_a_configuration_and_a_module_give_the_same_lines():
    config = CONFIGS["head widths"]
    assert describe(config, vocab_size=37).total == describe(model_of("head widths")).total


def test_a_module_takes_no_overrides():
    with pytest.raises(ValueError, match="not supported for a module"):
        describe(model_of("plain"), vocab_size=37)


@pytest.mark.parametrize(
    "what, overrides, message",
    [
        ("transformer-bas", [], "transformer-base"),
        ("transformer-base", ["layer.mixer.n_haeds=4"], "n_heads"),
        ("transformer-base", ["layer.mixer.n_heads=7"], "divisible"),
        ("transformer-base", ["target_vocab=5", "source_vocab=7"], "three-way"),
        ("transformer-base", ["vocab_size=many"], "vocab_size=many"),
        ("transformer-base", ["vocab_size=0"], "at least 1"),
        ("no/such.yaml", [], "no such file"),
    ],
)
def test_wrong_requests_name_the_right_ones(what, overrides, message):
    with pytest.raises(RequestError, match=re.escape(message)):
        describe(what, overrides=overrides)


# Of the package


def test_build_gives_a_plain_module():
    model = heedful.build("transformer-tiny", vocab_size=101, n_layers=1, layer={"channels": {"d_ff": 31}})
    assert isinstance(model, nn.Module)
    assert count(model) == heedful.describe(model).parameters
    assert len(model.encoder.blocks) == 1
    assert model.encoder.blocks[0].feed_forward.part.up.out_features == 31


def test_build_is_a_function_of_the_seed():
    torch.manual_seed(7)
    first = heedful.build("reverse-rnn", source_vocab=11, target_vocab=13).state_dict()
    torch.manual_seed(7)
    second = heedful.build("reverse-rnn", source_vocab=11, target_vocab=13).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    "model, options, message",
    [
        ("transformer-tiny", {}, "vocab_size"),
        ("transformer-tiny", {"source_vocab": 5}, "target_vocab"),
        ("transformer-tiny", {"vocab_size": 5, "n_layer": 2}, "n_layers"),
        ("transformer-tin", {"vocab_size": 5}, "transformer-tiny"),
        ("transformer-tiny", {"source_vocab": 5, "target_vocab": 7}, "three-way"),
    ],
)
def test_build_refuses_what_it_cannot_build(model, options, message):
    with pytest.raises(RequestError, match=message):
        heedful.build(model, **options)


def test_the_package_has_its_functions_and_no_others():
    assert set(heedful.__all__) <= set(dir(heedful))
    assert all(getattr(heedful, name) is not None for name in heedful.__all__)
    assert heedful.load.__module__ == "heedful.api.run"
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        _ = heedful.biuld


def test_importing_the_package_does_not_import_torch():
    code = "import sys, heedful; heedful.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_updates_that_need_more_than_the_machine_has_say_so(monkeypatch):
    summary = describe("gpt2")
    whole = summary.resident
    for there, warning in (
        (whole, ""),
        (None, ""),
        (whole - 1, f"; more than this machine's {whole / 2**30:,.1f} GiB"),
    ):
        monkeypatch.setattr(text, "machine_memory", lambda there=there: there)
        assert memory(summary)[-1][2] == f"on a CPU: also freed blocks that no other tensor fits{warning}"
        assert ("more than this machine" in str(summary)) == bool(warning)


@pytest.mark.full
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from Linux")
def test_resident_memory_is_within_a_fifth_of_that_of_real_updates():
    overrides = [
        *("training.precision=fp32", "training.compile=off", "training.tokens_per_update=4096"),
        *("vocab_size=8000", "model.context=128", "model.n_layers=8", "model.d_model=128"),
        *("model.dropout=0.0", "model.layer.mixer.dropout=0.0"),
    ]
    cell = [sys.executable, ROOT / "bench" / "predicted.py", "cell", *overrides]
    done = subprocess.run(cell, check=True, stdout=subprocess.PIPE, text=True)
    measured = json.loads(done.stdout.splitlines()[-1])["resident"] * 2**20
    estimated = describe("shakespeare-char-cpu", overrides=overrides).resident
    assert abs(estimated / measured - 1) <= 0.2
