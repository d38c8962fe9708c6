"""Views besides attention, against plain loops, the model's own distribution and finite differences."""

import json
import math
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.api.run import load
from heedful.errors import RequestError
from heedful.explain.attention_sites import Selection, find_sites
from heedful.explain.capture import explain_input, prepare_input
from heedful.explain.views import VIEWS, ViewModule, view_module, views_of
from heedful.explain.views.shared import EMBEDDINGS
from heedful.nn.taps import recording
from heedful.tasks.model_input import AnswerOptions

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "explanation.schema.json"

STACKED = ["translation", "summarisation", "one text", "language model", "local and compressed", "masked"]
STACKED += ["classification", "pairs", "pairs, to their end", "fourier", "tagging", "answers", "images"]
STACKED += ["captions", "recurrent language model"]
PROBABLE = [
    *STACKED,
    "captions of cells",
    "show, attend and tell",
    "recurrent",
    "recurrent without attention",
    "resnet",
]
EMBEDDED = [*STACKED, "recurrent", "recurrent, one head", "recurrent without attention", "regression"]


def computed(view, run, reading):
    """The values of a view."""
    return view_module(view).compute(run, reading, ())


def own(run, reading):
    """The model's own log-probabilities of the answers, and of all possible ones, ``[n, C]``."""
    with torch.no_grad():
        hidden = run.model(reading.batch.inputs, reading.batch.source)
        every = torch.cat([part.log_softmax(-1) for part in reading.targets.logits(hidden, reading.batch)])
    return every.gather(1, reading.targets.answers[:, None])[:, 0], every


# Lens ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STACKED)
def test_the_last_depth_is_the_models_own_answer(explained, name):
    run, given = explained(name)
    reading = prepare_input(run, given)
    found = computed("lens", run, reading)
    wanted, every = own(run, reading)
    last = found["depths"][-1]
    assert last["log_probs"] == pytest.approx(wanted.tolist(), abs=2e-6)
    values, numbers = every.topk(min(5, every.shape[1]))
    for i, top in enumerate(last["top"]):
        assert [each["log_prob"] for each in top] == pytest.approx(values[i].tolist(), abs=2e-6)
        assert [each["answer"] for each in top] == [
            reading.targets.name(i, number) for number in numbers[i].tolist()
        ]
    assert found["answers"] == reading.targets.names


@pytest.mark.parametrize(("name", "stack"), [("language model", "stack"), ("summarisation", "decoder")])
def test_every_depth_is_normed_and_read_out(explained, name, stack):
    run, given = explained(name)
    reading = prepare_input(run, given)
    batch, blocks = reading.batch, getattr(run.model, stack)
    taps = [f"{stack}.blocks.{i}.output" for i in range(len(blocks.blocks))]
    with torch.no_grad(), recording(run.model, taps) as seen:
        run.model(batch.inputs, batch.source)
        embedding = run.model.embedding if stack == "stack" else run.model.target_embedding
        states = [embedding(batch.inputs), *(seen[tap][0] for tap in taps)]
        wanted = []
        for x in states:
            mean, deviation = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
            normed = (x - mean) / (deviation + blocks.norm.eps).sqrt() * blocks.norm.weight + blocks.norm.bias
            logits = run.model.heads["token"](batch.picked(normed))
            wanted.append(logits.log_softmax(-1).gather(1, batch.targets[:, None])[:, 0].tolist())
    found = [depth["log_probs"] for depth in computed("lens", run, reading)["depths"]]
    assert len(found) == len(wanted) == 1 + len(blocks.blocks)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_greedy_answers_are_the_best_of_the_last_depth(explained):
    run, given = explained("summarisation")
    found = computed("lens", run, prepare_input(run, given))
    tokens = run.predict([given])[0].tokens
    assert [top[0]["answer"] for top in found["depths"][-1]["top"]][: len(tokens)] == tokens


def test_a_text_without_a_gap_has_no_depths(explained):
    run, _ = explained("masked")
    reading = prepare_input(run, "the cat")
    assert computed("lens", run, reading)["depths"] == []
    assert computed("losses", run, reading)["mean"] is None
    with pytest.raises(RequestError, match="the answer is empty"):
        computed("gradients", run, reading)


# Losses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBABLE)
def test_losses_are_minus_the_logarithms_of_the_probabilities(explained, name):
    run, given = explained(name)
    reading = prepare_input(run, given)
    found = computed("losses", run, reading)
    wanted, _ = own(run, reading)
    assert found["losses"] == pytest.approx((-wanted).tolist(), abs=2e-6)
    assert found["probabilities"] == pytest.approx(wanted.exp().tolist(), abs=2e-6)
    written = [loss for loss, given in zip(found["losses"], found["given"], strict=True) if not given]
    assert found["mean"] == pytest.approx(sum(written) / len(written), abs=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(found["mean"]), rel=1e-4)


def test_a_prompt_has_losses_too_that_are_marked_as_given(explained):
    run, given = explained("language model")
    seen = explain_input(run, given, views=["losses"])
    found, n_prompt = seen.views["losses"], len(run.processor.text.encode(given))
    tokens = seen.axes["input"].tokens
    assert found["places"] == list(range(1, len(tokens)))
    assert found["answers"] == list(tokens[1:])
    assert found["given"] == [place < n_prompt for place in found["places"]]
    (prediction,) = run.predict([given])
    n = len(prediction.log_probs)
    assert found["losses"][-n:] == pytest.approx([-value for value in prediction.log_probs], abs=1e-4)


# Gradients -------------------------------------------------------------------------------------------------

STEP = 1e-3


@contextmanager
def scaled(model, name, token, by):
    """The model with one embedded token, or with all (None), multiplied by a number."""

    def hook(module, inputs, output):
        factors = torch.ones(len(output), 1, dtype=output.dtype)
        factors[slice(None) if token is None else token] = by
        return output * factors

    handle = getattr(model, name).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def score(run, reading):
    with torch.no_grad():
        hidden = run.model(reading.batch.inputs, reading.batch.source)
        return reading.targets.scores(hidden, reading.batch)[reading.targets.n_given :].double().sum().item()


def slope(run, reading, name, token):
    """How fast the score grows when the embedding of a token does."""
    values = []
    for by in (1 + STEP, 1 - STEP):
        with scaled(run.model, name, token, by):
            values.append(score(run, reading))
    return (values[0] - values[1]) / (2 * STEP)


@pytest.mark.slow
@pytest.mark.parametrize("name", EMBEDDED)
def test_products_are_the_slopes_of_the_score(explained, name):
    own_run, given = explained(name)
    run = load(own_run.folder.path, device="cpu")
    # A class that is as good as certain has no slope, so another is asked about.
    labels = getattr(run.processor, "labels", ()) if name != "tagging" else ()
    answer = run.predict([given])[0].text
    reading = prepare_input(
        run, given, options=AnswerOptions(target=next((label for label in labels if label != answer), None))
    )
    found = computed("gradients", run, reading)
    run.model.double()
    assert found["score"] == pytest.approx(score(run, reading), abs=1e-4)
    names = {side: name for name, side in EMBEDDINGS.items()}
    for side in found["sides"]:
        products = side["products"]
        assert len(products) == len(reading.axes[side["name"]].tokens)
        # Logits are taken in 32 bits, which leaves some 1e-3 of a difference of STEP.
        wanted = [slope(run, reading, names[side["name"]], t) for t in range(len(products))]
        np.testing.assert_allclose(products, wanted, atol=5e-3, rtol=5e-3)
        whole = slope(run, reading, names[side["name"]], None)
        assert sum(products) == pytest.approx(whole, abs=1e-2, rel=1e-2)
        assert any(abs(product) > 0.02 for product in products)


def test_norms_are_the_lengths_of_the_gradients(explained):
    """The slope in the direction of the gradient is its length."""
    own_run, given = explained("classification")
    run = load(own_run.folder.path, device="cpu")
    reading = prepare_input(run, given)
    found = computed("gradients", run, reading)["sides"][0]
    run.model.double()
    token, d = 2, run.recipe.model.d_model
    parts = []
    for feature in range(d):
        values = []
        for step in (STEP, -STEP):
            move = torch.zeros(d, dtype=torch.float64)
            move[feature] = step

            def hook(module, inputs, output, move=move):
                moved = output.clone()
                moved[token] += move
                return moved

            handle = run.model.embedding.register_forward_hook(hook)
            values.append(score(run, reading))
            handle.remove()
        parts.append((values[0] - values[1]) / (2 * STEP))
    assert found["norms"][token] == pytest.approx(math.hypot(*parts), rel=1e-2)


# All of them -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_left_on_the_model(explained, others, every):
    run, given = explained(every)
    maps = Selection(kinds=None if find_sites(run.model) else ())
    explain_input(run, given, maps=maps, views=views_of(run), others=others(every))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in run.model.modules())
    assert all(parameter.grad is None for parameter in run.model.parameters())


@pytest.mark.slow
def test_views_are_there_or_say_what_is_instead(explained, others, every):
    run, given = explained(every)
    maps = Selection(kinds=None if find_sites(run.model) else ())
    for name, view in VIEWS.items():
        if view_module(name).supports(run):
            more = others(every) if view.is_over_inputs else []
            assert explain_input(run, given, maps=maps, views=[name], others=more).views.keys() == {name}
        else:
            with pytest.raises(RequestError, match="use another view"):
                explain_input(run, given, maps=maps, views=[name])


def test_every_view_is_a_module_and_has_a_place_in_the_schema():
    assert all(isinstance(view_module(name), ViewModule) for name in VIEWS)
    patterns = json.loads(SCHEMA.read_text("utf-8"))["properties"]["more"]["patternProperties"]
    assert list(patterns) == [f"^{name}$" for name in VIEWS]


def test_the_names_of_views_are_light():
    heavy = "{'torch', 'numpy', 'matplotlib'}"
    code = f"import sys, heedful.explain.views; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
