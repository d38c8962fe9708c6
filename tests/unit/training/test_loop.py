import json
import math
import os
import re
import signal
import threading

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from toy_training import LENGTHS, Toy, in_process, make_batch, run_toy, same, toy_data

from heedful.errors import DamagedError, RequestError, WorkError
from heedful.training import checkpoints
from heedful.training.callbacks import JsonLines, Saved, Started, Stopped, Updated, Validated
from heedful.training.checkpoints import final_weights, select_checkpoints
from heedful.training.settings import TrainingConfig
from heedful.training.signals import POINTS
from heedful.training.update import PlannedData


def _steps(run):
    return [int(p.name[5:]) for p in checkpoints.paths(run)]


def _scripted(metrics):
    """A validation that returns the given metrics in turn."""
    left = iter(metrics)
    return lambda model: {"loss": next(left)}


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch):
    """Nothing here depends on it (a killed process leaves the page cache alone), and it takes long."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A training that was never stopped."""
    toy = Toy(tmp_path_factory.mktemp("whole"))
    toy.callbacks.append(JsonLines(toy.run / "metrics.jsonl"))
    result = toy.train()
    return toy, result


def _figures(run):
    """The lines about updates and validations, without times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds", "elapsed")
    return [
        {key: value for key, value in line.items() if key not in timed}
        for line in lines
        if line["event"] in ("updated", "validated")
    ]


def _kept(run, end):
    """The weights that a run ends with."""
    return final_weights(run, TrainingConfig(max_updates=end))[0]


def _untimed(state):
    return {**state.to_json(), "seconds": 0.0}


def test_the_toy_is_worth_testing_with(whole):
    """Several epochs, reductions of the rate, and a best checkpoint that is not the last."""
    toy, result = whole
    assert result.stop_reason == "updates"
    assert result.state.epoch >= 2
    assert toy.schedule.scale < 1
    assert 0 < result.state.best[0].update < result.state.update
    figures = _figures(toy.run)
    losses = [line["loss"] for line in figures if line["event"] == "updated"]
    assert len(losses) == 17
    assert losses[-1] < losses[0]
    assert result.state.tokens == sum(line.get("tokens", 0) for line in figures)


@pytest.mark.slow
@pytest.mark.parametrize("stop", range(1, 17))
def test_resumed_at_any_update_is_bit_equal(tmp_path, whole, stop):
    """Stopped by a signal after update ``stop``, which also falls on validations and ends of epochs."""

    def interrupt(event):
        if isinstance(event, Updated) and event.update == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    metrics = JsonLines(tmp_path / "metrics.jsonl")
    first = Toy(tmp_path, callbacks=[metrics, interrupt])
    assert first.train().stop_reason == "signal"
    second = Toy(tmp_path, callbacks=[metrics])
    result = second.train(resume=True)
    toy, wanted = whole
    assert same(second.weights, toy.weights)
    assert _untimed(result.state) == _untimed(wanted.state)
    assert _figures(tmp_path) == _figures(toy.run)
    assert _steps(tmp_path) == _steps(toy.run)


@pytest.mark.parametrize("end", [4, 7, 9, 16])
def test_a_longer_training_goes_on_where_a_shorter_one_ended(tmp_path, whole, end):
    """The shorter one is validated at its end, which is a regular validation of the longer one at 9 alone."""
    Toy(tmp_path, {"max_updates": end}).train()
    second = Toy(tmp_path)
    state = second.train(resume=True).state
    toy, wanted = whole
    assert same(second.weights, toy.weights)
    assert _untimed(state) == _untimed(wanted.state)
    assert _steps(tmp_path) == _steps(toy.run)
    assert same(_kept(tmp_path, 17), _kept(toy.run, 17))


def test_resuming_a_finished_training_changes_nothing(tmp_path):
    first = Toy(tmp_path, {"max_updates": 4})
    state = first.train().state
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "checkpoints").rglob("*")}
    second = Toy(tmp_path, {"max_updates": 4}, validate=_scripted([]))
    result = second.train(resume=True)
    assert result.stop_reason == "updates"
    assert result.state == state
    assert same(first.weights, second.weights)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "checkpoints").rglob("*")} == before


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path, whole):
    again, other = Toy(tmp_path / "a"), Toy(tmp_path / "b", {"seed": 2})
    again.train()
    other.train()
    assert same(again.weights, whole[0].weights)
    assert not same(other.weights, whole[0].weights)


def _kill_and_resume(run, whole, environment=None, after=None):
    settings = {"max_updates": 17}
    process = in_process(run_toy, run, settings, False, 0.01 if after else 0.0, environment=environment)
    if after:
        process.join(after)
        process.kill()
    process.join(60)
    killed = process.exitcode == -signal.SIGKILL
    # What the killed process left is whole, except for what has a temporary name.
    assert checkpoints.latest_intact(run)[1] == []
    resumed = Toy(run, settings, callbacks=[JsonLines(run / "metrics.jsonl")])
    state = resumed.train(resume=True).state
    assert same(resumed.weights, whole[0].weights)
    assert _untimed(state) == _untimed(whole[1].state)
    assert _figures(run) == _figures(whole[0].run)
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == sorted(
        p.name for p in (whole[0].run / "checkpoints").iterdir()
    )
    return killed


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("point", [point for point in POINTS if point != "while-replacing"])
def test_killed_at_any_point_and_resumed_is_bit_equal(tmp_path, whole, point, count):
    assert _kill_and_resume(tmp_path, whole, {"HEEDFUL_FAULT": f"{point}:{count}"})


@pytest.mark.parametrize("after", [0.05, 0.13, 0.21, 0.34])
def test_killed_at_any_time_and_resumed_is_bit_equal(tmp_path, whole, after):
    _kill_and_resume(tmp_path, whole, after=after)


def test_a_damaged_newest_checkpoint_is_skipped_and_reported(tmp_path, whole):
    Toy(tmp_path, {"max_updates": 8}).train()
    (checkpoints.path_of(tmp_path, 8) / "state.json").write_text("{}")
    events = []
    toy = Toy(tmp_path, callbacks=[events.append])
    toy.train(resume=True)
    assert events[0].update == 6
    assert [str(checkpoints.path_of(tmp_path, 8) / "state.json") in text for text in events[0].damaged] == [
        True
    ]
    assert same(toy.weights, whole[0].weights)


def test_nothing_but_damaged_checkpoints_is_an_error(tmp_path):
    Toy(tmp_path, {"max_updates": 1}).train()
    (checkpoints.path_of(tmp_path, 1) / "model.safetensors").unlink()
    with pytest.raises(DamagedError, match=r"all checkpoints are damaged; the newest: .*is missing"):
        Toy(tmp_path).train(resume=True)


def test_a_run_with_checkpoints_is_not_overwritten(tmp_path):
    Toy(tmp_path, {"max_updates": 1}).train()
    with pytest.raises(RequestError, match="already has checkpoints"):
        Toy(tmp_path).train()


def test_events_in_order(tmp_path):
    events = []
    settings = {"max_updates": 5, "validate_every": 2, "save_every": 3}
    Toy(tmp_path, settings, callbacks=[events.append]).train()
    assert [(type(event), event.update) for event in events] == [
        (Started, 0),
        (Updated, 1),
        (Updated, 2),
        (Validated, 2),
        (Saved, 2),
        (Updated, 3),
        (Saved, 3),
        (Updated, 4),
        (Validated, 4),
        (Saved, 4),
        (Updated, 5),
        (Validated, 5),
        (Saved, 5),
        (Stopped, 5),
    ]
    rates = [event.rate for event in events if isinstance(event, Updated)]
    assert rates[:2] == pytest.approx([0.1, 0.2])
    assert all(event.elapsed >= 0 for event in events if isinstance(event, Updated))


def test_early_stopping_counts_validations_without_a_better_metric(tmp_path):
    metrics = [5.0, 4.0, 4.0, 3.0, math.nan, 3.0, 9.0, 1.0]
    toy = Toy(tmp_path, {"patience": 3, "validate_every": 2, "max_updates": 99}, validate=_scripted(metrics))
    result = toy.train()
    assert result.stop_reason == "patience"
    assert result.state.update == 14
    assert (result.state.best[0].update, result.state.best[0].metric) == (8, 3.0)
    assert _steps(tmp_path) == [8, 12, 14]
    assert Toy(tmp_path, {"patience": 3}).train(resume=True).stop_reason == "patience"


def test_the_best_are_kept_and_never_the_worse(tmp_path):
    settings = {"keep_last": 1, "keep_best": 2, "validate_every": 1, "max_updates": 6}
    values = _scripted([1.0, 5.0, 2.0, 5.0, math.inf, 3.0])
    toy = Toy(tmp_path, settings, validate=values, direction="higher")
    state = toy.train().state
    assert [(s.update, s.metric) for s in state.best] == [(2, 5.0), (4, 5.0)]
    assert _steps(tmp_path) == [2, 4, 6]


def test_a_last_validation_out_of_turn_finds_the_best_but_does_not_count(tmp_path):
    toy = Toy(tmp_path, {"max_updates": 5}, validate=_scripted([3.0, 2.0]))
    state = toy.train().state
    assert state.validated == 5
    assert state.best[0].update == 5
    assert toy.schedule.best == 3.0
    toy = Toy(tmp_path / "worse", {"max_updates": 5}, validate=_scripted([3.0, 4.0]))
    assert toy.train().state.bad_validations == 0


def test_patience_of_a_continued_run_knows_nothing_of_a_validation_out_of_turn(tmp_path):
    """The metrics of updates 3, 6, 9 and 12, and of 5 in the run that stops there."""
    settings = {"patience": 3, "keep_best": 3}
    whole = Toy(tmp_path / "whole", {**settings, "max_updates": 12}, validate=_scripted([4.0, 3.0, 5.0, 2.5]))
    Toy(tmp_path / "parts", {**settings, "max_updates": 5}, validate=_scripted([4.0, 1.0])).train()
    parts = Toy(tmp_path / "parts", {**settings, "max_updates": 12}, validate=_scripted([3.0, 5.0, 2.5]))
    one, two = whole.train().state, parts.train(resume=True).state
    assert one.bad_validations == two.bad_validations == 0
    assert one.best_regular == two.best_regular == 2.5
    assert one.best == two.best
    assert [scored.update for scored in two.best] == [12, 6, 3]


def test_what_was_best_out_of_turn_is_forgotten_by_a_training_that_goes_on(tmp_path):
    """Update 5, the best of the run that ends there. What was best before it is kept for the longer run."""
    end, longer = ({"keep_last": 1, "max_updates": n} for n in (5, 12))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    wanted = Toy(whole, longer, validate=_scripted([3.0, 4.0, 5.0, 6.0])).train().state
    ended = Toy(parts, end, validate=_scripted([3.0, 1.0])).train().state
    assert [(scored.update, scored.is_regular) for scored in ended.best] == [(5, False), (3, True)]
    assert _steps(parts) == [3, 5]
    assert select_checkpoints(parts, TrainingConfig(**end)) == [checkpoints.path_of(parts, 5)]
    state = Toy(parts, longer, validate=_scripted([4.0, 5.0, 6.0])).train(resume=True).state
    assert _untimed(state) == _untimed(wanted)
    assert _steps(parts) == _steps(whole) == [3, 12]
    assert same(_kept(parts, 12), _kept(whole, 12))


def test_stops_after_epochs_having_seen_every_sample_so_often(tmp_path):
    seen = []
    data = PlannedData(
        LENGTHS, lambda samples, epoch: seen.extend(samples) or make_batch(samples, epoch), 31, 5
    )
    result = Toy(tmp_path, {"max_updates": None, "max_epochs": 3}, data=data).train()
    assert result.stop_reason == "epochs"
    assert result.state.epoch == 3
    assert sorted(seen) == sorted(list(range(23)) * 3)
    assert result.state.samples == 69


def test_stops_after_minutes_over_all_parts(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("heedful.training.loop.time.monotonic", lambda: now[0])

    def tick(event):
        if isinstance(event, Updated):
            now[0] += 30.0

    settings = {"max_updates": None, "max_minutes": 2.0}
    state = Toy(tmp_path, {**settings, "max_updates": 3}, callbacks=[tick]).train().state
    assert state.seconds == 90.0
    result = Toy(tmp_path, settings, callbacks=[tick]).train(resume=True)
    # The clock is read before each tick: 90 s after update 4, 120 s after update 5.
    assert (result.stop_reason, result.state.update) == ("minutes", 5)


def test_stops_when_the_data_ends(tmp_path):
    class Short:
        split, collate = toy_data().split, toy_data().collate

        def updates(self, cursor):
            done = cursor["done"] if cursor else 0
            for number in range(done, 4):
                yield [number, number + 7], {"epoch": 0, "done": number + 1}

    result = Toy(tmp_path, data=Short()).train()
    assert (result.stop_reason, result.state.update) == ("data", 4)
    assert _steps(tmp_path)[-1] == 4
    assert Toy(tmp_path, data=Short()).train(resume=True).stop_reason == "data"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_update_saves_and_gives_the_handlers_back(tmp_path, number):
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    validations = []

    def interrupt(event):
        if isinstance(event, Updated) and event.update == 3:
            os.kill(os.getpid(), number)

    toy = Toy(tmp_path, callbacks=[interrupt], validate=lambda model: validations.append(1) or {"loss": 1.0})
    result = toy.train()
    assert (result.stop_reason, result.state.update) == ("signal", 3)
    assert _steps(tmp_path)[-1] == 3
    assert validations == []  # it was due, and the resumed run makes up for it
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_signal_ends_the_process_at_once(tmp_path):
    process = in_process(_signalled_twice, tmp_path)
    process.join(60)
    assert process.exitcode == -signal.SIGTERM
    assert _steps(tmp_path) == [2]


def _signalled_twice(run):
    def interrupt(event):
        if isinstance(event, Updated) and event.update == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)

    Toy(run, callbacks=[interrupt]).train()


def test_trains_outside_the_main_thread(tmp_path, whole):
    toy = Toy(tmp_path)
    thread = threading.Thread(target=toy.train)
    thread.start()
    thread.join()
    assert same(toy.weights, whole[0].weights)


def test_a_nan_loss_stops_training_and_saves_the_batch(tmp_path):
    events = []
    toy = Toy(tmp_path, callbacks=[events.append])
    schedule, rate = toy.schedule, toy.schedule.rate
    schedule.rate = lambda step: math.nan if step == 5 else rate(step)
    with pytest.raises(WorkError, match="update 6: the loss is nan"):
        toy.train()
    assert events[-1] == Stopped(5, "failed", events[-1].elapsed)
    assert json.loads((tmp_path / "bad_batch.json").read_text())["update"] == 6


def test_weights_that_are_nan_are_not_saved(tmp_path):
    toy = Toy(tmp_path)
    schedule, rate = toy.schedule, toy.schedule.rate
    schedule.rate = lambda step: math.nan if step == 4 else rate(step)
    with pytest.raises(WorkError, match=r"update 4: training diverged: embedding\.weight contains NaN"):
        toy.train()


def test_a_callback_that_fails_at_the_end_does_not_end_the_others_twice(tmp_path):
    events = []

    def fail(event):
        if isinstance(event, Stopped):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Toy(tmp_path, {"max_updates": 4}, callbacks=[events.append, fail]).train()
    assert [event.reason for event in events if isinstance(event, Stopped)] == ["updates"]


def test_the_metric_must_be_among_those_measured(tmp_path):
    toy = Toy(tmp_path, {"metric": "los"})
    with pytest.raises(RequestError, match=r"no metric 'los' .did you mean 'loss'.*available: loss"):
        toy.train()


def test_without_validation_only_the_newest_are_kept(tmp_path):
    result = Toy(tmp_path, {"save_every": 5}, validate=None).train()
    assert result.state.best == []
    assert _steps(tmp_path) == [15, 17]


def test_a_training_without_an_end_is_refused():
    with pytest.raises(ValidationError, match="max_updates, max_epochs, max_minutes and patience"):
        TrainingConfig()
    assert TrainingConfig(max_epochs=1, average=5).n_last == 5
    assert TrainingConfig(max_epochs=1, average=5, average_of="best").n_best == 5
    assert TrainingConfig(max_epochs=1, keep_best=0).n_best == 1


def test_accumulation_gives_the_same_training_up_to_rounding(tmp_path):
    settings = {"clip_norm": None, "max_updates": 6}
    one = Toy(tmp_path / "one", settings, dropout=0.0)
    three = Toy(tmp_path / "three", {**settings, "accumulate": 3}, dropout=0.0)
    one.train()
    three.train()
    for name, tensor in one.weights.items():
        torch.testing.assert_close(three.weights[name], tensor, rtol=1e-4, atol=1e-5)


def test_a_boolean_of_numpy_stops_the_training(tmp_path):
    toy = Toy(tmp_path, {"max_updates": 4}, callbacks=[lambda event: np.mean([0.5]) > 0])
    assert toy.train().stop_reason == "callback"


@pytest.mark.parametrize("value", [0, 1, "yes", [True], torch.tensor(True)])
def test_other_values_of_a_callback_are_refused(value, tmp_path):
    def criterion(event):
        return value

    message = (
        rf"callback .*criterion: expected True .*, False or None as its result, got {re.escape(repr(value))};"
    )
    with pytest.raises(RequestError, match=message):
        Toy(tmp_path, {"max_updates": 4}, callbacks=[criterion]).train()
