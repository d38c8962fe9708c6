"""Activation patching against single forward passes, one layer, token and head at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from heedful.errors import RequestError
from heedful.explain.attention_sites import Selection, find_sites
from heedful.explain.attribution.patching import Patching, n_patched
from heedful.explain.capture import explain_input, prepare_input
from heedful.explain.views import view_module
from heedful.nn.modes import evaluating
from heedful.nn.taps import attached, intervene, recording, taps
from heedful.tasks.model_input import AnswerOptions
from heedful.text.specials import SPECIALS

ENCODED = [
    "classification",
    "pairs",
    "fourier",
    "sets of labels",
    "regression",
    "tagging",
    "answers",
    "masked",
]
ENCODED += ["masked pairs", "sentence embeddings", "pairs, to their end"]
ENCODER_DECODERS = ["translation", "summarisation", "additive"]
CONTINUED = [
    "language model",
    "recurrent language model",
    "local and compressed",
    "one text",
    "rotary, shared keys",
]
TEXTS = [*ENCODED, *ENCODER_DECODERS, *CONTINUED]
RUNS = [*TEXTS, "images", "masks", "masks by a transformer", "captions", "captions of cells"]


def corrupted(run, prepared, name, other):
    """The batch of another input, with the answer to the first."""
    batch = prepared.batch
    if name in ENCODER_DECODERS:
        ids = torch.tensor([*run.processor.source.encode(other), SPECIALS.end])
        return replace(batch, source=replace(batch.source, ids=ids))
    if name in CONTINUED:
        if name == "one text":
            prompt = [SPECIALS.start, *run.processor.source.encode(other), SPECIALS.separate]
        else:
            prompt = run.processor.text.encode(other)
        ids = torch.cat((torch.tensor(prompt), batch.inputs.ids[len(prompt) :]))
        return replace(batch, inputs=replace(batch.inputs, ids=ids))
    found = prepare_input(run, other).batch
    if name in ("captions", "captions of cells"):
        return replace(batch, source=found.source)
    return replace(batch, inputs=found.inputs)


@torch.no_grad()
def value(run, prepared, batch):
    """The log-probability of an answer of tokens or positions; of classes the sum of log-odds; a number."""
    hidden, targets = run.model(batch.inputs, batch.source), prepared.targets
    if targets.numbers is not None:
        return targets.numbers(hidden, batch).sum().item()
    total, index = 0.0, 0
    for logits in targets.logits(hidden, batch):
        for row in logits.double():
            answer = targets.answers[index]
            if index >= targets.n_given:
                chances = row.softmax(-1)
                total += chances[answer].log().item()
                if not (targets.are_tokens or targets.are_positions):
                    total -= chances[torch.arange(len(row)) != answer].sum().log().item()
            index += 1
    return total


def places(run):
    """The taps of the residual stream of the stack that reads the input."""
    kind = "encoder" if hasattr(run.model, "encoder") else "stack"
    first = "source_embedding.output" if kind == "encoder" else "embedding.output"
    return [first, *(f"{kind}.blocks.{i}.output" for i in range(len(getattr(run.model, kind).blocks)))]


def one_by_one(run, prepared, batch, tap, index):
    """The value if one token (of ``[T, d]``) or head (of ``[1, H, T, d_v]``) is that of the clean input."""
    with torch.no_grad(), recording(run.model, [tap]) as seen:
        run.model(prepared.batch.inputs, prepared.batch.source)
    clean = seen[tap][0]

    def put(x):
        where = torch.zeros_like(x, dtype=torch.bool)
        where[(0, index) if x.dim() == 4 else index] = True
        return torch.where(where, clean, x)

    with intervene(run.model, {tap: put}):
        return value(run, prepared, batch)


@pytest.fixture
def patched(explained, others):
    """A run, its input with the answer, and the values of the view."""

    def of(name, **options):
        run, given = explained(name)
        maps = Selection(kinds=None if find_sites(run.model) else ())
        seen = explain_input(run, given, maps=maps, views=["patching"], others=others(name), **options)
        return run, prepare_input(run, given), seen.views["patching"]

    return of


@pytest.mark.parametrize("name", RUNS)
def test_values_are_those_of_single_forward_passes(patched, others, name):
    run, prepared, found = patched(name)
    batch = corrupted(run, prepared, name, *others(name))
    clean, other = value(run, prepared, prepared.batch), value(run, prepared, batch)
    assert found["clean"] == pytest.approx(clean, abs=1e-5, rel=1e-5)
    assert found["corrupted"] == pytest.approx(other, abs=1e-5, rel=1e-5)
    assert [depth["tap"] for depth in found["depths"]] == places(run)
    layers = [layer for stack in found["stacks"] for layer in stack["layers"]]
    assert [layer["tap"] for layer in layers] == [
        site.tap for site in find_sites(run.model) if site.tap.replace("weights", "mixed") in taps(run.model)
    ]
    rows = [(depth, depth["tap"], range(len(found["tokens"]))) for depth in found["depths"]]
    rows += [(layer, layer["tap"].replace("weights", "mixed"), layer["heads"]) for layer in layers]
    for row, tap, units in rows:
        expected = [one_by_one(run, prepared, batch, tap, unit) - other for unit in units]
        np.testing.assert_allclose(row["effects"], expected, atol=2e-5, rtol=1e-5)
        ratios = np.array(row["effects"]) / (found["clean"] - found["corrupted"])
        np.testing.assert_allclose(row["restored"], ratios, atol=1e-3)


@pytest.fixture
def patching(explained, others):
    """A run, and the patching of its two inputs."""

    def of(name, *extra):
        run, given = explained(name)
        with evaluating(run.model):
            prepared = prepare_input(run, given)
            other = view_module("patching").prepared_like(run, prepared, *others(name))
            return run, Patching.of(run.model, prepared, other, [*places(run), *extra])

    return of


@pytest.mark.parametrize("name", RUNS)
def test_all_tokens_of_a_layer_restore_the_clean_value(patching, name):
    run, found = patching(name)
    for tap in places(run):
        every = range(len(found.activations[tap][0]))
        together = found.patched(tap, [every, ()])
        torch.testing.assert_close(together[0], found.values[0], atol=2e-5, rtol=1e-5)
        assert together[1].equal(found.values[1])


@pytest.mark.parametrize("name", ["classification", "translation", "language model", "images"])
def test_batches_of_any_size_have_the_same_values(patching, name):
    run, found = patching(name)
    for tap in places(run):
        units = [[unit] for unit in range(len(found.activations[tap][0]))]
        whole = found.patched(tap, units)
        for budget in (1, 2 * found.clean.length):
            torch.testing.assert_close(found.patched(tap, units, budget=budget), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", TEXTS)
def test_equal_tokens_change_nothing_at_the_embedding(patched, name):
    _, prepared, found = patched(name)
    axis = prepared.axes[found["side"]]
    differ = [i for i, token in enumerate(found["tokens"]) if token != axis.tokens[i]]
    assert found["differ"] == differ
    effects = found["depths"][0]["effects"]
    assert all(effects[i] == 0 for i in range(len(effects)) if i not in differ)
    assert any(effects[i] != 0 for i in differ)


@pytest.mark.parametrize("name", [*CONTINUED, "pairs, to their end"])
def test_nothing_before_the_first_difference_matters_to_a_causal_model(patched, name):
    _, _, found = patched(name)
    first = found["differ"][0]
    assert first > 0
    for depth in found["depths"]:
        assert depth["effects"][:first] == [0.0] * first


@pytest.mark.parametrize("name", CONTINUED)
def test_tokens_of_the_answer_are_not_patched(patched, name):
    _, prepared, found = patched(name)
    first = prepared.targets.positions[prepared.targets.n_given]
    assert n_patched(prepared) == first == len(found["tokens"])
    assert first < len(prepared.axes["input"].tokens)


def test_the_model_stays_as_it_is(patched, explained):
    run, given = explained("translation")
    before = run.predict([given])[0]
    state = {name: each.clone() for name, each in run.model.state_dict().items()}
    patched("translation")
    assert not attached(run.model)
    assert all(each.equal(state[name]) for name, each in run.model.state_dict().items())
    assert run.predict([given])[0] == before


@pytest.mark.parametrize(
    ("name", "target", "other"),
    [
        ("translation", "RUNS CAT", "the red cat sleeps"),
        ("language model", " sat on", "the dog"),
        ("one text", "RUNS DOG", "red cat runs"),
        ("classification", "7", "the mat sat"),
    ],
)
def test_a_given_answer_is_that_of_both_inputs(explained, name, target, other):
    run, given = explained(name)
    options = AnswerOptions(target=target)
    found = explain_input(run, given, options=options, views=["patching"], others=[other]).views["patching"]
    for key, text in (("clean", given), ("corrupted", other)):
        prepared = prepare_input(run, text, options)
        assert found[key] == pytest.approx(value(run, prepared, prepared.batch), abs=1e-5)


def test_only_selected_heads_are_patched(explained, others):
    run, given = explained("translation")
    found = explain_input(
        run,
        given,
        maps=Selection(layers=[1], heads=[0, 2], kinds=["self"]),
        views=["patching"],
        others=others("translation"),
    ).views["patching"]
    (stack,) = found["stacks"]
    (layer,) = stack["layers"]
    assert (stack["kind"], layer["layer"], layer["heads"]) == ("self", 1, [0, 2])
    assert len(found["depths"]) == 3


@pytest.mark.parametrize(
    ("name", "others", "message"),
    [
        ("classification", [], r"needs two inputs, got 1; give a second one .* others=\[\"OTHER TEXT\"\]"),
        ("classification", ["the mat sat"] * 2, "needs two inputs, got 3"),
        ("classification", ["the cat lay"], "both inputs give the same log-odds of .*nothing to restore"),
        ("regression", [("the cat", "a dog")], "both inputs give the same number"),
        ("translation", ["the red dog sleeps"], "both inputs give the same log-probability of the answer"),
        ("classification", ["the dog lay"], "equal numbers of tokens, got 9 and 10; replace words by words"),
        ("translation", ["red"], "equal numbers of tokens, got 18 and 4"),
        ("language model", ["the cat on"], "equal numbers of tokens, got 4 and "),
        ("pairs", [("the", "cat a dog sat")], "whose separators, masks and tagged words are at the same"),
        ("masked", ["the sat [MASK] on [MASK] log"], "whose separators, masks and tagged words"),
        ("tagging", ["dog the sat"], "whose separators, masks and tagged words"),
    ],
)
def test_inputs_that_cannot_be_patched(explained, name, others, message):
    run, given = explained(name)
    with pytest.raises(RequestError, match=message):
        explain_input(run, given, views=["patching"], others=others)


@pytest.mark.parametrize("name", ["recurrent", "resnet", "show, attend and tell"])
def test_a_model_without_a_stack_of_blocks_has_no_such_view(explained, name):
    run, given = explained(name)
    with pytest.raises(RequestError, match="needs a stack of blocks that reads the input"):
        explain_input(run, given, maps=Selection(kinds=()), views=["patching"], others=[given])


def test_of_one_input_it_is_not_available(explained):
    run, given = explained("classification")
    seen = explain_input(run, given, views=["all"])
    assert "patching" not in seen.views
    assert "needs two inputs, got 1" in seen.unavailable["patching"]
