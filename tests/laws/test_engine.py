"""Laws 3 and 8 for the native engine: what it writes is what the model computes at once."""

import copy
import random

import pytest
import torch
from cases import (
    DECODERS,
    END,
    MODELS,
    SOURCES,
    START,
    TARGETS,
    V_TARGET,
    configuration,
    every_decoder,
    hidden_of,
    layers_of,
    model_of,
    same,
)
from hypothesis import given, settings
from torch import nn
from writing import check_decodings, cuts_of, decodings, extend, written

from heedful.decoding.config import BeamConfig, decode
from heedful.decoding.protocol import Request
from heedful.engine.compiled import CompiledModel
from heedful.engine.native import library
from heedful.engine.program import UnsupportedError, quantised
from heedful.engine.running import ROWS, compile_model
from heedful.errors import RequestError
from heedful.interop.configuration import ACTIVATIONS as IMPORTED
from heedful.models.registry import build_model
from heedful.models.transformer import build
from heedful.nn.layout import Tokens
from heedful.nn.residual import PreNorm
from heedful.nn.taps import recording
from heedful.tasks.generation.generator import Generator

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler here")

UNFIT = {
    *("bilinear", "additive", "cosine", "one key head", "patterns of visible tokens"),
    *("rms norm", "gated", "gated, no bias", "rotary", "rotary, concat", "rotary, in part", "alibi"),
    *("language model, rms norm", "language model, gated", "language model, rotary"),
    "language model, rotary in part",
    *("language model, alibi", "language model, modern", "power norm, as released"),
    *("additive with bias", "another cross-attention, additive", "another decoder", "experts"),
}
FIT = [name for name, config in MODELS.items() if config["kind"] == "transformer" and name not in UNFIT]
_PRODUCTS = ("scaled-dot", "dot")


def _is_plain(layer):
    """Whether the engine has its mixer; feed-forwards that it lacks are in `UNFIT`."""
    attends = layer.mixer.kind == "attention" and layer.mixer.visible.kind == "all"
    return attends and layer.mixer.score.kind in _PRODUCTS and layer.channels.kind != "experts"


CAUSAL = [
    name
    for name, case in MODELS.items()
    if case["kind"] == "language-model"
    and all(map(_is_plain, layers_of(configuration(name))))
    and name not in UNFIT
]
every_fit = pytest.mark.parametrize("name", FIT)
some_fit = pytest.mark.parametrize("name", ["transformer", "pre-norm", "grouped heads", "learned"])


def engine_of(model, precision="fp32"):
    return CompiledModel(compile_model(model, precision))


@pytest.mark.parametrize("name", sorted({*MODELS} - {*FIT, *CAUSAL}))
def test_other_models_are_refused(name):
    """So every model either passes what follows or goes the plain way."""
    with pytest.raises(UnsupportedError, match="unsupported"):
        compile_model(model_of(name), "fp32")


@pytest.mark.parametrize("activation", sorted({*IMPORTED.values()}))
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_every_activation_that_is_imported_is_supported(activation, precision):
    model = build(configuration("transformer").changed(layer={"channels": {"activation": activation}}), 7, 7)
    compile_model(model, precision)


@every_fit
def test_step_by_step_equals_at_once(name):
    model = model_of(name)
    cuts = [[min(t, len(target)) for t in range(1, 7)] for target in TARGETS]
    same(written(engine_of(model), SOURCES, TARGETS, cuts), hidden_of(model, SOURCES, TARGETS))


def check_continuing(model):
    """Of a language model: pieces that are written after one another equal the whole."""
    writer = engine_of(model)
    state, written = writer.start(len(TARGETS)), []
    for length in (2, 1, 3):
        begin = state.lengths[0]
        pieces = [(target * 6)[begin : begin + length] for target in TARGETS]
        hidden, state = extend(writer, state, pieces)
        written.append(torch.stack(hidden))
    whole = hidden_of(model, SOURCES, [(target * 6)[:6] for target in TARGETS])
    same(torch.cat(written, 1), torch.stack(list(whole)))


@pytest.mark.parametrize("name", CAUSAL)
def test_a_language_model_step_by_step_equals_at_once(name):
    check_continuing(model_of(name))


def without_norms(model):
    """The model with nothing before its parts but the residual stream."""
    for part in model.modules():
        if isinstance(part, PreNorm):
            part.norm = nn.Identity()
    return model


def test_parts_without_a_norm_before_them_read_the_residual_stream():
    check_continuing(without_norms(model_of("language model")))
    model = without_norms(model_of("pre-norm"))
    cuts = [[1] for _ in TARGETS]
    same(written(engine_of(model), SOURCES, TARGETS, cuts), hidden_of(model, SOURCES, TARGETS))


@some_fit
@settings(max_examples=6, deadline=None)
@given(cuts=cuts_of([4, 7, 1], 4))
def test_any_ragged_pieces_equal_at_once(name, cuts):
    model = model_of(name)
    same(written(engine_of(model), SOURCES, TARGETS, cuts), hidden_of(model, SOURCES, TARGETS))


@some_fit
@settings(max_examples=20, deadline=None)
@given(plan=decodings())
def test_hypotheses_that_are_widened_reordered_and_dropped_equal_sequences_of_their_own(name, plan):
    model = model_of(name)
    check_decodings(engine_of(model), model, plan)


@every_fit
@torch.no_grad()
def test_single_steps_give_the_logits_of_the_head(name):
    model = model_of(name)
    engine = engine_of(model)
    state = engine.start(Tokens.of(SOURCES))
    _, state = extend(engine, state, [[START]] * 3)
    targets = [[5, 7, 9, 11], [6, 8, 10, 12], [7, 7, 7, 7]]
    for t in range(4):
        logits, state = engine.step(torch.tensor([own[t] for own in targets]), state)
        whole = hidden_of(model, SOURCES, [[START, *own[: t + 1]] for own in targets])
        same(logits, model.heads["token"](torch.stack([own[-1] for own in whole])))


@torch.no_grad()
def test_room_grows_and_many_rows_are_cut():
    """Longer than the first room, and more rows than go through the programs together, in both stacks."""
    model = model_of("transformer")
    numbers = torch.Generator().manual_seed(3)
    draw = lambda n: torch.randint(3, 31, (n,), generator=numbers).tolist()  # noqa: E731
    sources = [draw(ROWS + 37), draw(5), draw(89), draw(1)]
    targets = [[START, *draw(n)] for n in (ROWS + 11, 71, 3, 150)]
    cuts = [[len(t) - 3, len(t) - 2, len(t) - 1] for t in targets]
    same(written(engine_of(model), sources, targets, cuts), hidden_of(model, sources, targets))


@torch.no_grad()
def test_more_hypotheses_than_go_through_together():
    model, n = model_of("pre-norm"), ROWS + 41
    engine = engine_of(model)
    sources = [[3 + i % 19, 4 + i % 23] for i in range(n)]
    state = engine.start(Tokens.of(sources))
    _, state = extend(engine, state, [[START]] * n)
    ids = torch.arange(n) % 29 + 3
    logits, state = engine.step(ids, state)
    whole = hidden_of(model, sources, [[START, int(i)] for i in ids])
    same(logits, model.heads["token"](torch.stack([own[-1] for own in whole])))


@some_fit
def test_a_row_is_the_same_to_the_last_bit_whatever_the_others(name):
    engine = engine_of(model_of(name))
    every = [SOURCES[i % 3] for i in range(31)]
    together, _ = extend(engine, engine.start(Tokens.of(every)), [TARGETS[1]] * 31)
    for i in range(3):
        alone, _ = extend(engine, engine.start(Tokens.of(SOURCES[i : i + 1])), [TARGETS[1]])
        assert torch.equal(together[i], alone[0])
        assert torch.equal(together[i + 27], alone[0])


def _numbers_of_steps(engine, sources, prompts, n_steps):
    """Of each sequence: hidden states of its prompt, then logits of steps, as one tensor."""
    state = engine.start(Tokens.of(sources) if sources else len(prompts))
    hidden, state = extend(engine, state, prompts)
    found = [[each.flatten()] for each in hidden]
    for step in range(n_steps):
        ids = torch.tensor([3 + (7 * len(prompt) + prompt[-1] + step) % 90 for prompt in prompts])
        logits, state = engine.step(ids, state)
        for own, row in zip(found, logits, strict=True):
            own.append(row)
    return [torch.cat(each) for each in found]


@pytest.fixture
def threads():
    """Set the number of threads of torch, which is that of the engine; set it back after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("reads", [True, False], ids=["translation", "continuation"])
@torch.no_grad()
def test_bits_depend_neither_on_other_rows_nor_on_the_number_of_threads(reads, precision, threads):
    """With products so large that threads share them, and more rows than a block of them."""
    sizes = {"d_model": 96, "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 331}}}
    config = configuration("transformer" if reads else "language model").changed(**sizes)
    torch.manual_seed(1)
    model = build_model(config, *([101] * (2 if reads else 1))).eval()
    draw = random.Random(2)
    sequences = [[draw.randint(3, 100) for _ in range(draw.randint(1, 23))] for _ in range(41)]
    sources = sequences if reads else []
    prompts = [[START, *sequence[:5]] for sequence in reversed(sequences)]
    found = {}
    for n in (1, 2, 3):
        threads(n)
        engine = engine_of(model, precision)
        found[n] = _numbers_of_steps(engine, sources, prompts, 4)
        for chosen in ([0], [7, 40, 3], [*range(20, 37)]):
            some = [sources[i] for i in chosen] if reads else []
            alone = _numbers_of_steps(engine, some, [prompts[i] for i in chosen], 4)
            assert all(torch.equal(own, found[n][i]) for own, i in zip(alone, chosen, strict=True)), n
    for n in (2, 3):
        assert all(map(torch.equal, found[n], found[1])), n


def test_positions_end_where_the_plain_path_ends():
    model = model_of("learned")
    longest = MODELS["learned"]["max_length"]
    for writer in (model, engine_of(model)):
        _, state = extend(writer, writer.start(Tokens.of(SOURCES[:1])), [[START] * longest])
        with pytest.raises(
            RequestError, match=f"position {longest} is out of range: the model has {longest} positions"
        ):
            extend(writer, state, [[START]])


@pytest.mark.parametrize("path", ["", "decoder", "decoder.blocks.0", "encoder", "encoder.blocks.0"])
def test_kinds_made_from_those_that_are_known_are_refused(path):
    """They may have a forward of their own."""
    model = model_of("transformer")
    part = model.get_submodule(path)
    part.__class__ = type("Other", (type(part),), {})
    with pytest.raises(UnsupportedError, match=r"unsupported .*: Other"):
        compile_model(model, "fp32")


def test_where_somebody_listens_the_engine_does_not_run():
    model = model_of("transformer")
    with (
        recording(model, model.alignment_taps[:1]),
        pytest.raises(UnsupportedError, match="a tap is attached"),
    ):
        compile_model(model, "fp32")


def decoded(model, config):
    source = Tokens.of([[*s, END] for s in SOURCES])
    generator = Generator(model)
    first = generator.prefill(source, Tokens.of([[START], [START, 5, 6], [START]]))
    request = Request(
        first,
        generator.step,
        end=END,
        max_lengths=[config.max_length.of(len(s)) for s in SOURCES],
        forbidden=[0, START, *range(11, V_TARGET)],
    )
    return decode(config, request)


@every_decoder
@every_fit
@torch.no_grad()
def test_every_decoder_finds_what_it_finds_on_the_plain_path(name, decoder):
    config, model = DECODERS[decoder], model_of(name)
    if isinstance(config, BeamConfig):
        config = config.model_copy(update={"coverage": 0.0})
    plain, fast = decoded(model, config), decoded(engine_of(model), config)
    for ours, theirs in zip(fast, plain, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in theirs]
        same([torch.tensor(h.log_probs) for h in ours], [torch.tensor(h.log_probs) for h in theirs])


@torch.no_grad()
def test_a_beam_search_of_more_hypotheses_than_go_through_together():
    model, width = model_of("transformer"), 5
    n = ROWS // width + 11
    sources = Tokens.of([[3 + i % 19, 4 + i % 23, 5 + i % 7][: 1 + i % 3] for i in range(n)])
    found = []
    for each in (model, engine_of(model)):
        generator = Generator(each)
        first = generator.prefill(sources, Tokens.of([[START]] * n))
        most = [5 + i % 4 for i in range(n)]
        request = Request(first, generator.step, end=END, max_lengths=most, forbidden=[0, START])
        found.append(decode(BeamConfig(beam=width), request))
    assert [h.ids for hs in found[0] for h in hs] == [h.ids for hs in found[1] for h in hs]


# Other precisions --------------------------------------------------------------------------------------

_BITS = {"bf16": lambda x: x.bfloat16().float()}


def _int8_rows(x):
    """The nearest of 255 steps from -max to max, for each row."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale.masked_fill(scale == 0, 1)).round() * scale


def reference_of(model, precision, inputs=True):
    """The model with weights, and perhaps inputs of every product, of that precision; the rest in 32 bits."""
    model = copy.deepcopy(model)
    for part in model.modules():
        if isinstance(part, nn.Linear):
            if precision == "bf16":
                part.weight = nn.Parameter(part.weight.detach().bfloat16().float())
            else:
                steps, scales = quantised(part.weight.detach())
                part.weight = nn.Parameter(steps * scales[:, None])
            if not inputs:
                continue
            rounded = _BITS.get(precision, _int8_rows)
            part.register_forward_pre_hook(lambda _, args, f=rounded: (f(args[0]),))
    return model


# An input that lies between two steps may be rounded either way after sums in another order. One step of
# a row is 1/127 of its greatest in int8, and 1/256 of itself in bf16.
STEP = {"bf16": 1 / 256, "int8": 1 / 127}


@pytest.mark.parametrize("precision", STEP)
@every_fit
@torch.no_grad()
def test_low_precision_is_that_of_weights_and_inputs(name, precision):
    """Against a model of which nothing else is rounded: nearly all numbers agree, and none is a step away.

    A processor without products of that type multiplies by inputs as they are, and then agrees far closer.
    """
    model = model_of(name)
    cuts = [[min(t, len(target)) for t in range(1, 7)] for target in TARGETS]
    got = torch.cat(written(engine_of(model, precision), SOURCES, TARGETS, cuts))
    exact = torch.cat(hidden_of(reference_of(model, precision, inputs=False), SOURCES, TARGETS))
    if torch.allclose(got, exact, rtol=0, atol=1e-5 * float(exact.abs().max().clamp(min=1))):
        return
    expected = torch.cat(hidden_of(reference_of(model, precision), SOURCES, TARGETS))
    away = (got - expected).abs() / expected.abs().max().clamp(min=1)
    assert away.max() < 4 * STEP[precision]
    assert away.median() < STEP[precision] / 4
    plain = torch.cat(hidden_of(model, SOURCES, TARGETS))
    assert (got - expected).norm() < (plain - expected).norm()
