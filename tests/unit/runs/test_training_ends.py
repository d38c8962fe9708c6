"""Where a training ends: progress, schedule and weights follow the limit that ends it first."""

import math

import pytest
import torch
from safetensors.torch import load_file

from heedful.data.plan import plan
from heedful.errors import RequestError
from heedful.runs.train import train_run
from heedful.tasks.translation import Translation, TranslationRecipe
from heedful.training.callbacks import Speed, Started, Updated
from heedful.training.checkpoints import average, path_of

pytestmark = pytest.mark.slow

PATH = {"kind": "files", "columns": {"source": "text", "target": "text"}}
MODEL = {
    "kind": "transformer",
    "d_model": 4,
    "n_layers": 1,
    "layer": {"mixer": {"kind": "attention", "n_heads": 2}, "channels": {"kind": "feed-forward", "d_ff": 3}},
}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    lines = [" ".join("abcdefg"[: 1 + n % 7]) for n in range(40)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(folder, schedule, **training):
    """Train; the events, the lines that were logged, and the result."""
    settings = {"validate_every": 500, "precision": "fp32", "processes": 1, "tokens_per_update": 60}
    recipe = TranslationRecipe.model_validate(
        {
            "task": {"kind": "translation"},
            "data": {"train": PATH, "valid": PATH},
            "tokenizer": {"subwords": {"kind": "character"}},
            "model": MODEL,
            "schedule": schedule,
            "training": {**settings, **training},
        }
    )
    events, lines = [], []
    made = train_run(
        recipe, folder / "run", device="cpu", log=lines.append, callbacks=lambda run: [events.append]
    )
    return events, lines, made


def rates(events):
    return [event.rate for event in events if isinstance(event, Updated)]


@pytest.mark.parametrize("kind", ["cosine", "linear"])
@pytest.mark.parametrize(
    "limits", [{"max_updates": 7}, {"max_epochs": 2}, {"max_updates": 7, "max_epochs": 2}, {"max_epochs": 1}]
)
def test_a_decay_and_the_progress_end_with_the_training_under_every_limit(corpus, kind, limits):
    events, lines, made = trained(corpus, {"kind": kind, "peak": 1e-3, "warmup": 2}, **limits)
    (started,) = (event for event in events if isinstance(event, Started))
    assert started.max_updates == made.result.state.update == len(rates(events))
    assert rates(events)[-1] == pytest.approx(0, abs=1e-12)
    assert rates(events)[-2] > 1e-6
    assert not [line for line in lines if "it was still" in line]


def test_epochs_of_plans_differ_little_in_their_numbers_of_updates():
    """So the first one stands for all, in schedules and progress."""
    lengths = torch.randint(1, 40, (900,), generator=torch.Generator().manual_seed(1)).numpy()
    n_updates = [len(plan(lengths, tokens_per_update=500, seed=1, epoch=e)) for e in range(9)]
    assert max(n_updates) - min(n_updates) <= 0.1 * min(n_updates)


def test_a_decay_that_another_limit_cuts_off_is_reported_with_a_length_that_fits(corpus):
    schedule = {"kind": "linear", "peak": 1e-3}
    _, lines, made = trained(corpus, schedule, max_updates=5000, max_minutes=1e-9)
    n = made.result.state.update
    (line,) = (line for line in lines if "it was still" in line)
    assert line.startswith(f"the training ended after {n} updates (minutes), and the learning rate decays")
    assert f"with training.max_updates={n} it decays to its end" in line
    events, lines, _ = trained(corpus / "again", schedule, max_updates=n)
    assert rates(events)[-1] == 0
    assert not [line for line in lines if "it was still" in line]


@pytest.mark.parametrize("kind", ["constant", "inverse-sqrt", "warmup", "plateau"])
def test_a_warm_up_that_the_training_does_not_leave_is_reported(corpus, kind):
    peak = {} if kind == "warmup" else {"peak": 1e-3}
    _, lines, _ = trained(corpus, {"kind": kind, "warmup": 90, **peak}, max_updates=3)
    (line,) = (line for line in lines if "schedule.warmup=90" in line)
    assert line.startswith("the training ends after 3 updates, within schedule.warmup=90: the learning rate")
    _, lines, _ = trained(corpus / "again", {"kind": kind, "warmup": 3, **peak}, max_updates=3)
    assert not [line for line in lines if "schedule.warmup" in line]


def test_a_decay_to_zero_before_the_last_epoch_is_refused(corpus):
    with pytest.raises(
        RequestError, match=r"schedule\.updates=3 decays the learning rate to schedule.floor=0"
    ):
        trained(corpus, {"kind": "linear", "peak": 1e-3, "updates": 3}, max_epochs=4)


def test_the_remaining_time_is_that_of_the_first_limit():
    """An update takes 2 seconds: 100 updates 3:18 more, 3 minutes 2:58 more, one minute 58 seconds."""
    first = Updated(1, 0, 1.0, {}, 1e-3, 1.0, 10, 2.0, 2.0)
    for max_minutes, max_updates, left in (
        (None, 100, "3:18 left"), (3.0, 100, "2:58 left"), (3.0, None, "2:58 left"), (9.0, 100, "3:18 left"),
        (1.0, 100, "0:58 left"), (0.01, 100, "0:00 left"), (None, None, "tokens/s"),
    ):  # fmt: skip
        assert Speed(max_minutes).summary(first, max_updates).endswith(left)


@pytest.mark.parametrize("of_average, kept", [(math.nan, (2,)), (math.inf, (2,)), (0.5, (2, 3)), (2.0, (2,))])
def test_an_average_is_kept_only_if_its_metric_is_a_better_number(corpus, monkeypatch, of_average, kept):
    """Validations measure 1.5, then 1 (update 2), then 3, and of the average what is given."""
    measured = iter([1.5, 1.0, 3.0, of_average])
    monkeypatch.setattr(Translation, "validation_metrics", lambda self, terms: {"loss": next(measured)})
    limits = {"max_updates": 3, "validate_every": 1, "average": 2, "keep_last": 3}
    _, _, made = trained(corpus, {"kind": "constant"}, **limits)
    expected, _ = average([path_of(corpus / "run", n) / "model.safetensors" for n in kept])
    final = load_file(made.folder.weights)
    assert all(torch.equal(final[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_a_validation_that_is_no_number_is_never_the_best(corpus, monkeypatch, direction):
    values = [math.nan, 2.0, math.nan, math.inf, -math.inf, 2.0]
    measured = iter(values)
    monkeypatch.setattr(Translation, "validation_metrics", lambda self, terms: {"loss": next(measured)})
    monkeypatch.setattr(TranslationRecipe, "falling_metrics", frozenset())
    limits = {"max_updates": 6, "validate_every": 1, "keep_best": 3, "direction": direction}
    _, _, made = trained(corpus, {"kind": "constant"}, **limits)
    assert [(best.update, best.metric) for best in made.result.state.best] == [(2, 2.0), (6, 2.0)]
    final = load_file(made.folder.weights)
    expected = load_file(path_of(corpus / "run", 2) / "model.safetensors")
    assert all(torch.equal(final[name], tensor) for name, tensor in expected.items())


def test_one_checkpoint_is_averaged_like_several(corpus, monkeypatch):
    """The last checkpoint alone is worse than the best, so the best is kept."""
    measured = iter([1.0, 3.0, 3.0])
    monkeypatch.setattr(Translation, "validation_metrics", lambda self, terms: {"loss": next(measured)})
    _, lines, made = trained(corpus, {"kind": "constant"}, max_updates=2, validate_every=1, average=1)
    final = load_file(made.folder.weights)
    expected = load_file(path_of(corpus / "run", 1) / "model.safetensors")
    assert all(torch.equal(final[name], tensor) for name, tensor in expected.items())
    assert any("of the average of 1 checkpoint, 1 of the best one (update 1)" in line for line in lines)


def test_fewer_checkpoints_than_are_averaged_are_reported(corpus):
    _, lines, _ = trained(corpus, {"kind": "constant"}, max_updates=3, save_every=2, average=5)
    assert "training.average=5: the run has only 2 to average" in "\n".join(lines)
