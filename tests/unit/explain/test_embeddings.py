"""Vectors of the inputs of every run that can be explained: of every task and family of models."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.errors import DataError, RequestError
from heedful.nn.blocks import EncoderStack
from heedful.tasks.embedding import POOLINGS, hidden_states

TEXTS = ["the cat", "a dog sat", "", "mat", "the dog"]
OWN = {
    "classification", "pairs", "pairs, to their end", "fourier", "sets of labels", "regression", "images",
    "images without class token", "resnet", "sentence embeddings",
}  # fmt: skip
"""Runs whose own pooling is trained."""
CAUSAL = {
    "one text", "language model", "recurrent language model", "local and compressed", "rotary, shared keys",
    "pairs, to their end",
}  # fmt: skip


def inputs_for(run, given):
    if run.task.columns.images:
        draw = np.random.default_rng(3)
        return [given, *draw.integers(0, 256, size=(4, *np.shape(given)), dtype=np.uint8)]
    return TEXTS


def test_batched_equals_single_and_the_order_is_kept(explained, every):
    run, given = explained(every)
    inputs = inputs_for(run, given)
    vectors = run.embed(inputs)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(inputs), run.embedding_width)
    single = [run.embed([each])[0] for each in inputs]
    np.testing.assert_allclose(vectors, single, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(run.embed(inputs[::-1], batch_tokens=8)[::-1], vectors, rtol=1e-4, atol=2e-6)
    assert len(np.unique(vectors.round(4), axis=0)) > 1


def test_of_nothing_there_are_no_vectors(explained, every):
    run, _ = explained(every)
    empty = run.embed([])
    assert (empty.shape, empty.dtype) == ((0, run.embedding_width), np.float32)


def test_poolings_are_those_of_numpy_over_all_tokens(explained, every):
    """The oracle pools the hidden states of one sequence, read as the task reads it."""
    run, given = explained(every)
    (input,) = inputs_for(run, given)[1:2]
    sequence = run.task.embedding_inputs([input]).batch([0])
    with torch.inference_mode():
        hidden = hidden_states(run.model, sequence)
        own = run.model.heads["pooled"](hidden, sequence.layout)[0].numpy() if every in OWN else None
    states = hidden.numpy()
    expected = {"mean": states.mean(0), "first": states[0], "last": states[-1], "max": states.max(0)}
    refused = {"first"} if every in CAUSAL else {"first", "last"} if run.task.columns.images else set()
    for pooling in POOLINGS:
        if pooling in refused:
            with pytest.raises(RequestError, match=f"pooling={pooling}: not supported by this run; expected"):
                run.embed([input], pooling=pooling)
        else:
            found = run.embed([input], pooling=pooling)[0]
            np.testing.assert_allclose(found, expected[pooling], rtol=1e-4, atol=2e-6)
    default = expected["mean"] if own is None else own
    np.testing.assert_allclose(run.embed([input])[0], default, rtol=1e-4, atol=2e-6)


def test_layers_are_those_that_hooks_of_torch_read(explained, every):
    run, given = explained(every)
    (input,) = inputs_for(run, given)[1:2]
    stack = getattr(run.model, "encoder", getattr(run.model, "stack", None))
    if not isinstance(stack, EncoderStack):
        with pytest.raises(RequestError, match="layer: not supported by this run, whose model has no"):
            run.embed([input], layer=0)
        return
    n, outputs = len(stack.blocks), []
    handles = [b.register_forward_hook(lambda m, x, output: outputs.append(output)) for b in stack.blocks]
    run.embed([input])
    for handle in handles:
        handle.remove()
    assert len(outputs) == n
    for layer in range(n):
        expected = outputs[layer].mean(0).numpy()
        np.testing.assert_allclose(run.embed([input], layer=layer)[0], expected, rtol=1e-4, atol=2e-6)
        np.testing.assert_array_equal(run.embed([input], layer=layer), run.embed([input], layer=layer - n))
    for layer in (n, -n - 1):
        with pytest.raises(RequestError, match=f"layer: there is no such layer; the model has {n}"):
            run.embed([], layer=layer)


def test_the_command_counts_layers_from_one(explained):
    run, _ = explained("classification")
    arguments = ["embed", str(run.folder.path), "--layer", "2", "--pooling", "max"]
    outcome = CliRunner().invoke(app, arguments, input="the cat\n")
    found = json.loads(outcome.stdout)["vector"]
    np.testing.assert_allclose(found, run.embed(["the cat"], layer=1, pooling="max")[0], atol=1e-6)


def test_every_task_is_swept(tasks):
    from heedful.tasks.registry import TASKS

    assert tasks == TASKS.keys()


def test_a_pair_is_read_together(explained):
    run, pair = explained("regression")
    together, first = run.embed([pair, pair[0]])
    assert np.abs(together - first).max() > 1e-3
    with pytest.raises(
        RequestError, match=r"input 1: expected a tuple of 2 texts \(text, pair\), got a tuple"
    ):
        run.embed([("one", "two", "three")])


@pytest.mark.parametrize("name, n_specials", [("classification", 2), ("rotary, shared keys", 0)])
def test_long_texts_are_truncated_with_a_warning(explained, name, n_specials):
    """Encoders read the first tokens between their special ones; language models the last, as of prompts."""
    run, _ = explained(name)
    n = run.recipe.model.longest - n_specials
    text = "the cat sat on the mat " * n
    ids = run.processor.text.encode(text)
    with pytest.warns(
        UserWarning, match=f"1 of 2 inputs were truncated; the first is input 2: cut from {len(ids)}"
    ):
        run.embed(["the cat", text])
    read = run.task.embedding_inputs([text]).batch([0]).ids.tolist()
    assert read[1:-1] == ids[:n] if n_specials else read == ids[-n:]


def test_an_image_that_cannot_be_read_is_an_error_or_has_no_vector(explained, tmp_path):
    run, given = explained("images")
    (tmp_path / "torn.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"torn\.png"):
        run.embed([given, tmp_path / "torn.png"])
    whole, torn = run.embeddings([given, tmp_path / "torn.png"])
    assert torn.vector is None
    assert "torn.png" in torn.error
    np.testing.assert_allclose(whole.vector, run.embed([given])[0], atol=1e-6)


@pytest.mark.parametrize(
    "inputs, options, message",
    [
        ("a text", {}, "expected a list of texts, got a text"),
        ([3], {}, "input 1: expected a text, got an int"),
        (["a"], {"pooling": "meen"}, r"pooling=meen: not supported by this run \(did you mean 'mean'"),
        (["a"], {"batch_tokens": 0}, "batch_tokens: expected a whole number of at least 1, got 0"),
    ],
)
def test_wrong_requests_are_refused(explained, inputs, options, message):
    run, _ = explained("classification")
    with pytest.raises(RequestError, match=message):
        run.embed(inputs, **options)
