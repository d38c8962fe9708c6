"""A training loop of the user's own."""

import numpy as np
import pytest
import torch

import heedful
from heedful.errors import RequestError, WorkError
from heedful.training.callbacks import Validated

TINY = {
    "model": {"d_model": 12, "n_layers": 1},
    "model.layer.mixer": {"n_heads": 3, "dropout": 0.0},
    "model.layer.channels.d_ff": 17,
    "model.dropout": 0.0,
    "data.train.limit": 60,
    "data.valid.limit": 7,
    "training": {"tokens_per_update": 150, "precision": "fp32", "compile": "off", "processes": 1},
    "training.clip_norm": None,
}


@pytest.mark.slow
def test_a_loop_of_ones_own_gives_the_weights_of_train(tmp_path):
    # With a large epsilon, gradients of 1e-9 (of the biases of keys, which have no effect) stay small.
    optimizer = {"kind": "adamw", "weight_decay": 0.0, "eps": 1e-3, "beta1": 0.9, "beta2": 0.95}
    overrides = {**TINY, "optimizer": optimizer, "schedule": {"kind": "constant", "peak": 1e-3}}
    limits = {"max_epochs": 2, "max_updates": None, "average": 0, "validate_every": 99}
    trained = {**overrides, "training": {**overrides["training"], **limits}}
    expected = heedful.train("phrasebook-ta", tmp_path / "run", overrides=trained, progress=False)
    setup = heedful.prepare("phrasebook-ta", tmp_path / "own", overrides=overrides, progress=False)
    adamw = torch.optim.AdamW(setup.model.parameters(), 1e-3, (0.9, 0.95), 1e-3, weight_decay=0)
    updates = 0
    for batch in setup.batches(epochs=2):
        setup.loss(batch).backward()
        adamw.step()
        adamw.zero_grad()
        updates += 1
    run = setup.finish(updates=updates)
    assert updates == expected.folder.read_card()["updates"] == run.folder.read_card()["updates"]
    for name, tensor in expected.model.state_dict().items():
        torch.testing.assert_close(run.model.state_dict()[name], tensor, atol=1e-6, rtol=1e-5)
    texts = ["we see the bird", "the old dog sleeps"]
    assert [p.text for p in run.predict(texts)] == [p.text for p in expected.predict(texts)]


@pytest.mark.slow
def test_validations_are_those_of_train(tmp_path):
    validations = []

    def keep(event):
        if isinstance(event, Validated):
            validations.append(event.metrics)

    # A rate of nearly nothing: both models have their first weights.
    still = {**TINY, "schedule": {"kind": "constant", "peak": 1e-30}, "model.dropout": 0.5}
    settings = {**still["training"], "max_updates": 1, "validate_every": 1, "save_every": 1, "average": 0}
    overrides = {**still, "training": settings}
    heedful.train("phrasebook-ta", tmp_path / "run", overrides=overrides, callbacks=[keep], progress=False)
    setup = heedful.prepare("phrasebook-ta", tmp_path / "own", overrides=overrides, progress=False)
    metrics = setup.validate()
    assert metrics.keys() == validations[0].keys() >= {"loss", "bleu"}
    for name, value in validations[0].items():
        assert metrics[name] == pytest.approx(value, rel=1e-6), name
    assert setup.model.training
    assert setup.updates_per_epoch == len(list(setup.batches()))


@pytest.mark.slow
def test_weights_can_be_saved_in_between(tmp_path):
    setup = heedful.prepare("phrasebook-ta", tmp_path / "own", overrides=TINY, progress=False)
    first = setup.finish(updates=0)
    assert setup.model.training
    with torch.no_grad():
        for parameter in setup.model.parameters():
            parameter.mul_(0.5)
    second = setup.finish(updates=1)
    assert second.folder.read_card()["updates"] == 1
    before, after = (run.model.state_dict() for run in (first, heedful.load(tmp_path / "own")))
    assert all(torch.equal(0.5 * before[name], after[name]) for name, _ in setup.model.named_parameters())


@pytest.mark.slow
def test_the_terms_add_up_to_the_loss(tmp_path):
    setup = heedful.prepare("phrasebook-ta", tmp_path / "own", overrides=TINY, progress=False)
    batch = next(setup.batches())
    loss, terms = setup.loss_and_terms(batch)
    total = sum(term.weight * float(term.sum) / term.count for term in terms)
    assert total == pytest.approx(float(loss.detach()), rel=1e-5)


@pytest.mark.slow
def test_a_folder_with_a_run_is_refused(tmp_path):
    setup = heedful.prepare("phrasebook-ta", tmp_path / "own", overrides=TINY, progress=False)
    setup.finish()
    with pytest.raises(RequestError, match="already contains a run"):
        heedful.prepare("phrasebook-ta", tmp_path / "own", overrides=TINY, progress=False)


@pytest.fixture
def setup(tmp_path):
    """A training of a small classifier that has been finished once."""
    rows = [{"text": "a b", "label": "x"}, {"text": "b c", "label": "y"}]
    mixer = {"n_heads": 2}
    setup = heedful.prepare(
        "my-own-labels",
        tmp_path / "own",
        data={"train": rows * 9, "valid": rows},
        overrides={
            "model": {"kind": "encoder", "d_model": 6, "n_layers": 1, "layer": {"mixer": mixer}},
            "tokenizer": {"subwords": {"kind": "word"}},
        },
        progress=False,
    )
    setup.finish(updates=1)
    return setup


def test_facts_are_numbers_of_any_library(setup):
    run = setup.finish(loss=np.float32(0.5), best=torch.tensor(2), rate=np.array(0.25), worst=float("nan"))
    card = run.folder.read_card()
    assert [card[name] for name in ("loss", "best", "rate", "worst")] == [0.5, 2, 0.25, None]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"losses": [1, 2]}, "losses: expected a number or text, got a list of 2"),
        ({"loss": torch.zeros(2)}, "loss: expected a number or text, got a Tensor"),
        ({"updates": "many"}, "updates: expected a number of at least 0, got 'many'"),
        ({"version": 99}, "version: the run's card has an entry of this name"),
        ({"files": "x"}, "files: the run's card has an entry of this name"),
    ],
)
def test_facts_that_a_card_cannot_have_leave_the_run_as_it_is(facts, message, setup):
    with pytest.raises(RequestError, match=message):
        setup.finish(**facts)
    assert heedful.load(setup.folder.path).folder.read_card()["updates"] == 1


@pytest.mark.parametrize(("value", "problem"), [("nan", "NaN"), ("inf", "infinity")])
def test_weights_that_are_not_finite_are_not_written(value, problem, setup):
    parameters = dict(setup.model.named_parameters())
    name = [*parameters][-1]
    with torch.no_grad():
        parameters[name].view(-1)[0] = float(value)
    with pytest.raises(WorkError, match=f"parameter {name} contains {problem}: training diverged"):
        setup.finish(updates=2)
    assert heedful.load(setup.folder.path).folder.read_card()["updates"] == 1
