"""Law 3, on a GPU: it computes what the CPU computes. These tests skip without CUDA."""

import json

import pytest
import torch
from cases import (
    DECODED,
    END,
    LABELLED,
    MODELS,
    OBJECTIVES,
    SOURCES,
    START,
    TARGETS,
    V_TARGET,
    D,
    batch_for,
    labelled_batch,
    labelled_model,
    model_of,
)

import heedful
from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength, decode
from heedful.decoding.protocol import Request
from heedful.engine.choosing import Inference
from heedful.nn.declarations import declared
from heedful.nn.layout import Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.tasks.generation.generator import Generator
from heedful.training.model_with_loss import ModelWithLoss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

DEVICE = torch.device("cuda")

TOLERANCE = 1e-4
"""Relative to the largest number: sums of the two devices are in another order, through a few layers."""

FORBIDDEN = [0, START, *range(11, V_TARGET)]


@pytest.fixture(autouse=True)
def _fp32(monkeypatch):
    """Convolutions on a GPU round to TF32 by default."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def same(actual, expected):
    scale = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(actual.cpu(), expected, rtol=0.0, atol=TOLERANCE * scale)


def results(model, objective, batch):
    """The loss, and the gradients by name."""
    step = ModelWithLoss(model, objective)
    loss, _ = step(batch, step.counts(batch))
    model.zero_grad()
    loss.backward()
    return loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def agree(model, objective, batch):
    """The GPU's loss and gradients are those of the CPU, of batch statistics in fp64."""
    if "couples_batch" in declared(model):
        model.eval()
    loss, gradients = results(model, objective, batch)
    expected = {name: gradient.clone() for name, gradient in gradients.items()}
    actual, gradients = results(model.to(DEVICE), objective, batch.to(DEVICE))
    same(actual, loss)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        same(gradients[name], gradient)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_the_same_loss_and_gradients(name):
    model = model_of(name)
    if "draws_noise" in declared(model):
        pytest.skip("noise is drawn on the device")
    agree(model, NextToken(smoothing=0.1), batch_for(model, SOURCES, TARGETS))


@pytest.mark.parametrize("name", LABELLED)
def test_a_labelled_model_gives_the_same_hidden_states(name):
    model, batch = labelled_model(name), labelled_batch(name)
    expected = model(batch.inputs, batch.source)
    moved = batch.to(DEVICE)
    same(model.to(DEVICE)(moved.inputs, moved.source), expected)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_gives_the_same_loss(name):
    case = OBJECTIVES[name]
    torch.manual_seed(5)
    heads, batch = case.heads(), case.batch(range(4))
    hidden = torch.randn(sum(batch.inputs.layout.lengths), D)
    objective = case.make()

    def sums(hidden, heads, batch):
        return torch.stack([term.sum.float() for term in objective(hidden, heads, batch)])

    expected = sums(hidden, heads, batch)
    same(sums(hidden.to(DEVICE), heads.to(DEVICE), batch.to(DEVICE)), expected)


def decoded(model, config, device):
    source = batch_for(model, SOURCES, TARGETS).to(device).source
    start = Tokens.of([[START]] * len(SOURCES), device=device)
    generator = Generator(model, attention=isinstance(config, BeamConfig) and config.coverage > 0)
    request = Request(
        generator.prefill(source, start),
        generator.step,
        end=END,
        max_lengths=[config.max_length.of(len(s)) for s in SOURCES],
        forbidden=FORBIDDEN,
        source_lengths=[0] * len(SOURCES) if source is None else source.layout.lengths,
    )
    with torch.inference_mode():
        return [[h.ids for h in hypotheses] for hypotheses in decode(config, request)]


@pytest.mark.parametrize("coverage", [0.0, 0.3])
@pytest.mark.parametrize("name", DECODED)
def test_a_beam_finds_the_same_hypotheses(name, coverage):
    model = model_of(name).eval()
    if coverage and not model.alignment_taps:
        pytest.skip("no attention to the source")
    config = BeamConfig(max_length=MaxLength(ratio=1.0, extra=3), beam=3, n_best=3, coverage=coverage)
    expected = decoded(model, config, torch.device("cpu"))
    assert decoded(model.to(DEVICE), config, DEVICE) == expected


@pytest.mark.parametrize("name", DECODED)
def test_greedy_decoding_writes_the_same(name):
    model, config = model_of(name).eval(), GreedyConfig(max_length=MaxLength(ratio=1.0, extra=3))
    expected = decoded(model, config, torch.device("cpu"))
    assert decoded(model.to(DEVICE), config, DEVICE) == expected


def test_the_path_of_decoding_is_described():
    assert Inference(model_of("transformer").to(DEVICE)).description == "fp32 on the GPU"


KINDS = {
    "phrasebook-ta": "I enjoyed the film transformers",
    "phrasebook-rnn": "I enjoyed the film transformers",
    "phrasebook-lm": "I enjoyed",
    "phrasebook-tags": "I enjoyed the film",
    "reverse": "a b c d",
}


@pytest.fixture
def deterministic(monkeypatch):
    """Sums of gradients on a GPU are otherwise in no fixed order."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("precision", "compile"), [("fp32", "off"), ("bf16", "on")])
@pytest.mark.parametrize("recipe", KINDS)
@pytest.mark.filterwarnings("ignore:.*deterministic")
def test_a_run_trains_continues_and_works(recipe, precision, compile, tmp_path, deterministic):
    """Weights of a training that was stopped and resumed equal those of one that was not."""
    changes = {
        "training.max_updates": 12,
        "training.validate_every": 6,
        "training.save_every": 6,
        "training.precision": precision,
        "training.compile": compile,
        "schedule.warmup": 2,
    }

    def stop(event):
        return getattr(event, "update", 0) >= 6

    straight = heedful.train(recipe, out=tmp_path / "straight", overrides=changes, device=str(DEVICE))
    heedful.train(recipe, out=tmp_path / "stopped", overrides=changes, device=str(DEVICE), callbacks=[stop])
    resumed = heedful.resume(tmp_path / "stopped", device=str(DEVICE))
    for ours, theirs in zip(resumed.model.parameters(), straight.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    events = [json.loads(line) for line in (tmp_path / "straight/metrics.jsonl").read_text().splitlines()]
    losses = [event["loss"] for event in events if event["event"] == "updated"]
    assert losses[-1] < losses[0]
    gpu, cpu = (heedful.load(tmp_path / "straight", device=device) for device in (str(DEVICE), "cpu"))
    ours, theirs = (run.predict([KINDS[recipe]])[0] for run in (gpu, cpu))
    assert type(ours) is type(theirs)
    assert gpu.evaluate("test", limit=7).scores
    assert gpu.explain(KINDS[recipe])
