"""Training by two processes that the command starts: equal to one that splits its updates."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_kills import outcome, wait_for

SIZES = [
    "training.max_updates=24",
    "training.validate_every=6",
    "training.save_every=3",
    "training.processes=2",
]


def children(pid):
    """Processes that ``pid`` started, and that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue  # it ended meanwhile
        if int(parent) == pid and state != "Z":
            found.append(int(path.parent.name))
    return found


def begin(heedful, folder, *changes, out="run", **settings):
    resume = ["--resume"] if (folder / out / "recipe.yaml").exists() else []
    # In the recipe itself it is "auto": a resumed run has to know how many processes it began with.
    sizes = [size for size in SIZES if not (resume and "processes" in size)]
    return heedful.start(
        "train", "tiny.yaml", *sizes, *changes, "--out", out, *resume, cwd=folder, **settings
    )


def n_updates(run):
    return (run / "metrics.jsonl").read_text().count("updated") if (run / "metrics.jsonl").exists() else 0


@pytest.fixture(scope="module")
def whole(heedful, transformer):
    folder = transformer.parent
    done = begin(heedful, folder, out="by-two").wait()
    assert done.status == 0, done.err
    assert "processes: 2, threads of each: 1" in done.err
    return folder / "by-two"


def test_two_processes_equal_one_that_splits_every_update(heedful, transformer, whole):
    """Dropout included; sums of another order differ in their last digits."""
    folder = transformer.parent
    sizes = [*SIZES[:3], "training.accumulate=2"]
    assert heedful("train", "tiny.yaml", *sizes, "--out", "by-one", cwd=folder).status == 0
    one, two = (load_file(run / "weights.safetensors") for run in (folder / "by-one", whole))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-4)
    losses = [[x["loss"] for x in outcome(run)[1] if "loss" in x] for run in (folder / "by-one", whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_each_has_the_threads_that_the_recipe_says(heedful, corpus):
    done = begin(heedful, corpus, "training.threads=2", "training.max_updates=1").wait()
    assert done.status == 0, done.err
    assert "processes: 2, threads of each: 2" in done.err


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="children are found in /proc")
def test_however_it_is_stopped_it_resumes_to_the_same_bits(heedful, corpus, whole):
    run = corpus / "run"
    process = begin(heedful, corpus)
    wait_for(lambda: n_updates(run) >= 4)
    (companion,) = children(process.pid)
    os.kill(companion, signal.SIGKILL)
    done = process.wait()
    assert (done.status, done.out) == (1, ""), done.err
    assert "process 2 of 2 ended (signal SIGKILL); continue with --resume" in done.err
    assert "Traceback" not in done.err

    process = begin(heedful, corpus)
    wait_for(lambda: n_updates(run) >= 8)
    (companion,) = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait().status == -signal.SIGKILL
    wait_for(lambda: not Path(f"/proc/{companion}").exists(), seconds=20)

    process = begin(heedful, corpus, "training.max_updates=100000")
    wait_for(lambda: n_updates(run) >= 13)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.1)
    done = process.wait()
    assert done.status == 130, done.err
    ended = n_updates(run)
    assert ended < 100_000

    straight = ["training.max_updates=24"] if ended < 24 else [f"training.max_updates={ended}"]
    done = begin(heedful, corpus, *straight).wait()
    assert done.status == 0, done.err
    if ended < 24:
        assert outcome(run) == outcome(whole)
    else:  # the machine was quick
        again = begin(heedful, corpus, *straight, out="straight").wait()
        assert again.status == 0
        assert outcome(run) == outcome(corpus / "straight")
