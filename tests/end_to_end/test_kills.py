"""A run that was killed, interrupted or stopped, and resumed, is bit for bit the run that never was.

Equal are the weights (by hash), every update and every validation in ``metrics.jsonl``.
"""

import os
import random
import signal
import time

import pytest
from killing import ELSEWHERE, SIZES, begin, finish, leftovers, outcome, wait_for

from heedful.training.signals import POINTS


@pytest.mark.parametrize("point", [point for point in POINTS if point not in ELSEWHERE])
def test_a_kill_at_a_point(heedful, corpus, whole, point):
    count = random.Random(point).randint(1, 3)
    killed = begin(heedful, corpus, env={"HEEDFUL_FAULT": f"{point}:{count}"}).wait()
    assert killed.status == -signal.SIGKILL, killed.err
    assert killed.out == ""
    assert finish(heedful, corpus) == whole


@pytest.mark.slow
def test_what_a_killed_training_of_several_processes_leaves_is_removed_by_the_next(
    process, environment, corpus, tmp_path
):
    """Its folder among the system's temporary ones, what was half written, and the store of tokens."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = ["-m", "heedful", "train", "tiny.yaml", *SIZES, "training.processes=2", "--out", "run"]
    settings = {**environment, "TMPDIR": str(temporary)}
    done = process(*command, cwd=corpus, env={**settings, "HEEDFUL_FAULT": "after-model-written"})
    assert done.returncode == -signal.SIGKILL, done.stderr
    for path in ("cache/.train.0123456789abcdef.tmp", ".labels.json.0123456789abcdef.tmp"):
        (corpus / "run" / path).mkdir()
    left = leftovers(corpus / "run", temporary)
    assert {path.parent for path in left} >= {temporary, corpus / "run", corpus / "run" / "checkpoints"}
    done = process(*command, "--resume", cwd=corpus, env=settings)
    assert done.returncode == 0, done.stderr
    assert leftovers(corpus / "run", temporary) == []


@pytest.mark.slow
def test_many_kills_in_a_row(heedful, corpus, whole):
    draw = random.Random(2)
    points = [point for point in POINTS if point not in ELSEWHERE]
    statuses = []
    while 0 not in statuses and len(statuses) < 12:
        fault = f"{draw.choice(points)}:{draw.randint(1, 2)}"
        statuses.append(begin(heedful, corpus, env={"HEEDFUL_FAULT": fault}).wait().status)
    assert set(statuses) <= {-signal.SIGKILL, 0}
    assert statuses.count(-signal.SIGKILL) >= 5
    assert finish(heedful, corpus) == whole


@pytest.mark.slow
def test_kills_at_any_moment(heedful, corpus, whole):
    draw = random.Random(3)
    statuses = []
    for _ in range(12):
        process = begin(heedful, corpus)
        time.sleep(draw.uniform(0.02, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        statuses.append(process.wait().status)
    assert set(statuses) <= {-signal.SIGKILL, 0}
    assert statuses.count(-signal.SIGKILL) >= 3
    assert finish(heedful, corpus) == whole


@pytest.mark.parametrize(
    ("made", "number"),
    [
        ("recipe.yaml", signal.SIGKILL),
        ("source.tokenizer.json", signal.SIGKILL),
        ("source.tokenizer.json", signal.SIGTERM),
        ("cache/valid", signal.SIGKILL),
        ("cache/train", signal.SIGKILL),
        ("data.json", signal.SIGKILL),
    ],
)
def test_a_kill_while_the_data_are_prepared(heedful, corpus, whole, made, number):
    """Or just after, where the machine is quick; before the first checkpoint in any case."""
    process = begin(heedful, corpus)
    wait_for((corpus / "run" / made).exists)
    os.kill(process.pid, number)
    assert process.wait().status == -number
    assert not (corpus / "run" / "checkpoints").exists()
    assert finish(heedful, corpus) == whole


def test_a_kill_before_the_first_checkpoint_begins_anew(heedful, corpus, whole):
    killed = begin(heedful, corpus, env={"HEEDFUL_FAULT": "after-update:2"}).wait()
    assert killed.status == -signal.SIGKILL
    assert not (corpus / "run" / "checkpoints").exists()
    done = heedful("predict", "run", cwd=corpus, stdin="red dog\n")
    assert done.status == 2
    assert "continue it with `heedful train --resume`" in done.err
    assert finish(heedful, corpus) == whole


def test_a_killed_run_predicts_with_its_last_checkpoint(heedful, corpus):
    begin(heedful, corpus, env={"HEEDFUL_FAULT": "after-update:8"}).wait()
    assert not (corpus / "run" / "run.json").exists()
    done = heedful("predict", "run", cwd=corpus, stdin="red dog\n\n")
    assert done.status == 0, done.err
    assert done.out.count("\n") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_update_end_and_a_checkpoint_be_written(heedful, corpus, number):
    endless = ["training.max_updates=100000", "training.validate_every=100000"]
    process = heedful.start("train", "tiny.yaml", *endless, "--out", "run", "--json", cwd=corpus)
    metrics = corpus / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 4)
    os.kill(process.pid, number)
    done = process.wait()
    assert done.status == 130, done.err
    stopped = done.json()
    assert stopped["stopped"] == "signal"
    n = stopped["updates"]
    assert (corpus / "run" / "checkpoints" / f"step-{n:08d}").is_dir()
    assert heedful("predict", "run", cwd=corpus, stdin="red\n").status == 0
    more = [f"training.max_updates={n + 3}", "training.validate_every=100000"]
    assert heedful("train", "tiny.yaml", *more, "--out", "run", "--resume", cwd=corpus).status == 0
    assert heedful("train", "tiny.yaml", *more, "--out", "straight", cwd=corpus).status == 0
    assert outcome(corpus / "run") == outcome(corpus / "straight")


def test_a_checkpoint_out_of_turn_is_in_no_average(heedful, corpus):
    """A signal leaves a checkpoint that an undisturbed run never has; the averages are the same."""
    sizes = ["training.average=2", "training.save_every=23", "training.validate_every=1000"]
    process = begin(heedful, corpus, changes=["training.max_updates=100000", *sizes])
    metrics = corpus / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 4)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait().status == 130
    (stopped,) = [int(path.name[5:]) for path in (corpus / "run" / "checkpoints").iterdir()][-1:]
    end = f"training.max_updates={23 * (stopped // 23 + 1)}"
    assert begin(heedful, corpus, changes=[*sizes, end]).wait().status == 0
    assert heedful("train", "tiny.yaml", *sizes, end, "--out", "straight", cwd=corpus).status == 0
    assert outcome(corpus / "run") == outcome(corpus / "straight")


def test_a_stopped_training_says_how_to_go_on(heedful, corpus):
    process = heedful.start("train", "tiny.yaml", "training.max_updates=100000", "--out", "run", cwd=corpus)
    metrics = corpus / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 2)
    os.kill(process.pid, signal.SIGINT)
    done = process.wait()
    assert (done.status, done.out) == (130, "run\n")
    assert "interrupted" in done.err
    assert "heedful train run --resume" in done.err


def test_an_interrupt_while_the_data_are_prepared_leaves_nothing(heedful, corpus):
    for name in ("train.src", "train.tgt"):
        (corpus / name).write_text((corpus / name).read_text("utf-8") * 300, "utf-8")
    process = begin(heedful, corpus)
    wait_for((corpus / "run" / "recipe.yaml").exists)
    os.kill(process.pid, signal.SIGINT)
    done = process.wait()
    assert (done.status, done.out) == (130, "")
    assert done.err.endswith("heedful: interrupted\n")
    assert not (corpus / "run").exists()


def test_a_finished_run_resumes_to_itself(heedful, corpus, whole):
    assert finish(heedful, corpus) == whole
    before = (corpus / "run" / "weights.safetensors").read_bytes()
    assert finish(heedful, corpus) == whole
    assert (corpus / "run" / "weights.safetensors").read_bytes() == before
