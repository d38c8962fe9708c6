"""Taps: who watches sees what the explicit path computes, and changes nothing; who listens may change it."""

import gc
import weakref
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from cases import (
    CROSS,
    D_MEMORY,
    DECODED,
    KEY_LENGTHS,
    LABELLED,
    LENGTHS,
    MIXERS,
    MODELS,
    SOURCES,
    TARGETS,
    configuration,
    cross_of,
    every_decoded_and_kernel,
    every_model_and_kernel,
    has_products,
    hidden_of,
    labelled_batch,
    labelled_configuration,
    labelled_model,
    layers_of,
    mixer_of,
    model_of,
    same,
    tokens_of,
    with_kernels,
)
from writing import written

from heedful.models.mixers import HeadsConfig
from heedful.models.recurrent import RecurrentDecoderConfig
from heedful.nn.attention import kernels
from heedful.nn.attention.heads import MultiHead
from heedful.nn.layout import Layout
from heedful.nn.taps import capture, intervene, recording, taps

# What a watcher is told beside a kernel that forms no weights, against weights that were formed, in fp32.
EXACT = 1e-6

ATTENTIONS = [name for name in MIXERS if isinstance(mixer_of(name), MultiHead)]
PARTS = ["queries", "keys", "values", "scores", "weights", "mixed"]


def _has_products(name):
    part = cross_of(name) if name in CROSS else mixer_of(name)
    return part.score.product_scale(part.d_k) is not None


every_attention_and_kernel = with_kernels([*ATTENTIONS, *CROSS], _has_products)


@contextmanager
def counting():
    """How often the kernels that show no weights were called."""
    calls = {}
    with (
        mock.patch.object(kernels, "_sdpa", wraps=kernels._sdpa) as fused,
        mock.patch.object(kernels, "_matmul", wraps=kernels._matmul) as products,
    ):
        yield calls
    calls.update(fused=fused.call_count, products=products.call_count)


def attention_of(name):
    """An attention, the layout of its queries, what calls it; in cross-attention, two share a sentence."""
    if name not in CROSS:
        mixer, x, layout = mixer_of(name), tokens_of(LENGTHS), Layout.of(LENGTHS)
        return mixer, layout, lambda: mixer(x, layout)
    cross, layout = cross_of(name), Layout.of([2, 3, 0, 1, 5, 4, 1, 2, 7, 3])
    memory = cross.make_memory(tokens_of(KEY_LENGTHS, D_MEMORY), Layout.of(KEY_LENGTHS))
    x = tokens_of(layout.lengths)
    return cross, layout.merge(2), lambda: cross(x, layout, memory)


def exactly(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=EXACT)


# Attention by itself --------------------------------------------------------------------------------------


@every_attention_and_kernel
@torch.no_grad()
def test_watchers_of_an_attention_see_what_the_explicit_path_shows(name, kernel):
    part, layout, run = attention_of(name)
    with recording(part, PARTS) as explicit:
        run()
    with counting() as unwatched:
        out = run()
    with counting() as calls, capture(part, dict.fromkeys(PARTS)) as seen:
        assert torch.equal(run(), out)
    assert calls == unwatched
    fast = {"fused": "fused", "explicit": "products"}[kernel]
    assert {kind for kind, n in calls.items() if n} == ({fast} if _has_products(name) else set())
    for tap in PARTS[:-1]:
        exactly(seen[tap], explicit[tap])
    # What the fast kernel made of the values, it made with the weights that the watcher was told.
    values = seen["values"][0].repeat_interleave(part.n_heads // part.n_kv_heads, 1)
    made, wanted = (x.transpose(1, 2) for x in (seen["mixed"][0], seen["weights"][0] @ values))
    same(layout.unpad(made), layout.unpad(wanted))


@every_attention_and_kernel
@torch.no_grad()
def test_asking_for_some_heads_gives_exactly_these(name, kernel):
    part, _, run = attention_of(name)
    with capture(part, dict.fromkeys(PARTS)) as every:
        run()
    of_keys = [2, 0] if part.n_kv_heads > 2 else [0]
    wanted = {tap: of_keys if tap in ("keys", "values") else [2, 0] for tap in PARTS}
    with capture(part, wanted) as some:
        run()
    for tap, heads in wanted.items():
        (value,), (whole,) = some[tap], every[tap]
        exactly(value, whole[:, heads])
        assert value.untyped_storage().nbytes() == value.numel() * value.element_size()


@pytest.mark.parametrize("kernel", ["explicit", "fused"], indirect=True)
def test_only_the_heads_asked_for_are_computed(kernel):
    part, _, run = attention_of("causal")
    with mock.patch.object(kernels, "attention_weights", wraps=kernels.attention_weights) as weigh:
        with capture(part, {"weights": [1]}):
            run()
        (call,) = weigh.call_args_list
        assert call.args[0].shape[1] == 1
        weigh.reset_mock()
        with capture(part, {"values": None}):
            run()
        assert not weigh.called


# Models ---------------------------------------------------------------------------------------------------


def runs_of(name):
    """A model, and what makes its hidden states."""
    if name in LABELLED:
        model, batch = labelled_model(name), labelled_batch(name)
        return model, lambda: model(batch.inputs)
    model = model_of(name)
    return model, lambda: torch.cat(hidden_of(model, SOURCES, TARGETS))


def without_attention(name):
    """Whether it weighs nothing: positions mixed otherwise, or a decoder that is given one vector."""
    config = configuration(name) if name in MODELS else labelled_configuration(name)
    if isinstance(config, RecurrentDecoderConfig):
        return config.attention is None
    return not any(isinstance(layer.mixer, HeadsConfig) for layer in layers_of(config))


def silent(name, model):
    """Taps that nothing passes: a decoder with one fixed context weighs nothing."""
    return {"decoder.weights"} & taps(model).keys() if without_attention(name) else set()


def check_watched(name):
    model, run = runs_of(name)
    parameters = [*model.parameters()]
    with counting() as unwatched:
        out = run()
    gradients = torch.autograd.grad(out.square().mean(), parameters, allow_unused=True)
    with counting() as calls, capture(model, dict.fromkeys(taps(model))) as seen:
        observed = run()
    assert calls == unwatched
    assert torch.equal(observed, out)
    again = torch.autograd.grad(observed.square().mean(), parameters, allow_unused=True)
    for before, after in zip(gradients, again, strict=True):
        assert (before is None) == (after is None)
        assert before is None or torch.equal(before, after)
    assert {tap for tap, values in seen.items() if len(values) != 1} == silent(name, model)
    assert not any(value.requires_grad for values in seen.values() for value in values)
    with torch.no_grad():
        for part in [part for part, own in model.named_modules() if isinstance(own, MultiHead)]:
            # One layer at a time, so that all below it computes what it did when it was watched.
            with recording(model, [f"{part}.scores", f"{part}.weights"]) as explicit:
                run()
            for tap, values in explicit.items():
                exactly(seen[tap], values)


@every_model_and_kernel
def test_a_watched_model_computes_what_it_does_and_shows_the_weights_of_the_explicit_path(name, kernel):
    check_watched(name)


@with_kernels(list(LABELLED), lambda name: has_products(labelled_configuration(name)))
def test_so_does_a_watched_model_that_labels(name, kernel):
    check_watched(name)


@pytest.mark.parametrize("name", [*MODELS, *LABELLED])
def test_every_model_has_taps_and_they_hold_no_state(name):
    model, _ = runs_of(name)
    assert taps(model)
    assert not any(tap.state_dict() for tap in taps(model).values())


def test_what_was_watched_lives_as_long_as_its_record_does():
    model, run = runs_of("transformer")
    with capture(model, dict.fromkeys(taps(model))) as seen:
        run()
    held = [weakref.ref(value) for values in seen.values() for value in values]
    assert held
    assert all(value() is not None for value in held)
    seen.clear()
    gc.collect()
    assert all(value() is None for value in held)


# Steps of decoding ----------------------------------------------------------------------------------------


def equal_by_steps(whole, pieces, row, ends):
    """The weights of a row's queries up to each of the ``ends``, piece by piece, are those of the whole."""
    for begin, end, piece in zip([0, *ends[:-1]], ends, pieces, strict=True):
        n, columns = end - begin, min(piece.shape[-1], whole.shape[-1])
        same(piece[row, :, :n, :columns], whole[row, :, begin:end, :columns])
        assert not piece[row, :, :n, columns:].any()
        assert not whole[row, :, begin:end, columns:].any()


@every_decoded_and_kernel
@torch.no_grad()
def test_weights_watched_step_by_step_equal_those_of_all_positions_at_once(name, kernel):
    model = model_of(name)
    asked = [tap for tap in taps(model) if tap.endswith("weights") and tap not in silent(name, model)]
    with capture(model, dict.fromkeys(asked)) as at_once:
        hidden_of(model, SOURCES, TARGETS)
    cuts = [[min(t, len(target)) for t in range(1, 7)] for target in TARGETS]
    with counting() as unwatched:
        hidden = written(model, SOURCES, TARGETS, cuts)
    with counting() as calls, capture(model, dict.fromkeys(asked)) as seen:
        assert all(map(torch.equal, written(model, SOURCES, TARGETS, cuts), hidden))
    assert calls == unwatched
    assert without_attention(name) == (not asked)
    for tap, pieces in seen.items():
        (whole,) = at_once[tap]
        if tap.startswith("encoder."):  # which reads once
            (piece,) = pieces
            same(piece, whole)
            continue
        assert len(pieces) == 7
        for row, (cut, target) in enumerate(zip(cuts, TARGETS, strict=True)):
            equal_by_steps(whole, pieces, row, [*cut, len(target)])


# Listeners that replace -----------------------------------------------------------------------------------

_OTHERS = ["encoder", "encoder, fourier", "encoder, recurrent", "vit", "mlp-mixer", "resnet"]
EDITED = [*DECODED, "language model, noisy experts", "captioner, resnet", *_OTHERS]


def unread(name, model):
    """States that no part reads: the encoder's last, where the decoder is given its final state alone."""
    reads_last_state = without_attention(name) and hasattr(model, "encoder")
    last = f"encoder.layers.{len(model.encoder.layers) - 1}." if reads_last_state else None
    return {tap for tap in taps(model) if last and tap.startswith(last)}


@pytest.mark.parametrize("name", EDITED)
@torch.no_grad()
def test_what_a_listener_returns_takes_the_place_of_the_value(name):
    model, run = runs_of(name)
    plain, not_read = run(), unread(name, model)
    for tap in taps(model).keys() - silent(name, model):
        with recording(model, [tap]) as seen:
            same(run(), plain)
        if taps(model)[tap].read_only:
            with intervene(model, {tap: lambda x: x}), pytest.raises(ValueError, match="cannot be replaced"):
                run()
            continue
        noise = torch.randn(seen[tap][0].shape, generator=torch.Generator().manual_seed(7))
        with intervene(model, {tap: lambda x, noise=noise: x + noise}):
            changed = run()
        moved = not torch.allclose(changed, plain, rtol=0, atol=1e-4)
        assert moved == (noise.numel() > 0 and tap not in not_read), tap


_ABLATED = ["all", "causal, earlier block", "causal, alibi additive", "compressed", "cross"]


@pytest.mark.parametrize("tap", ["mixed", "weights", "values"])
@pytest.mark.parametrize("name", _ABLATED)
@torch.no_grad()
def test_an_attention_with_a_head_ablated_is_one_without_its_rows_of_the_output_matrix(name, tap):
    part, _, run = attention_of(name)

    def without_head(x, head=1):
        x = x.clone()
        x[:, head] = 0
        return x

    with intervene(part, {tap: without_head}):
        ablated = run()
    assert not torch.allclose(ablated, run(), atol=1e-3)
    part.out.weight[:, part.d_v : 2 * part.d_v] = 0  # rows of W_O are columns of its transpose
    same(ablated, run())


@pytest.mark.parametrize("name", ["transformer", "language model", "encoder", "vit", "captioner"])
@torch.no_grad()
def test_a_residual_stream_that_is_replaced_is_all_that_the_rest_of_the_model_knows(name):
    model, run = runs_of(name)
    place = [tap for tap in taps(model) if tap.endswith("blocks.0.output")][-1]
    with recording(model, [place]) as seen:
        wanted = run()
    before = f"{place.removesuffix('output')}mixer.added"
    with intervene(model, {before: torch.zeros_like}):
        assert not torch.allclose(run(), wanted, atol=1e-3)
    with intervene(model, {before: torch.zeros_like, place: lambda x: seen[place][0]}):
        assert torch.equal(run(), wanted)


def test_every_tap_of_every_part_occurs_where_values_are_replaced():
    """By what they say."""
    of_cases = {tap.description for name in [*MODELS, *LABELLED] for tap in taps(runs_of(name)[0]).values()}
    of_edited = {tap.description for name in EDITED for tap in taps(runs_of(name)[0]).values()}
    assert "" not in of_cases
    assert of_edited == of_cases


def test_every_attention_with_heads_occurs():
    occurring = {type(mixer_of(name)) for name in ATTENTIONS} | {type(cross_of(name)) for name in CROSS}
    assert occurring == {k for k in MultiHead.__subclasses__() if k.__module__.startswith("heedful.")}
