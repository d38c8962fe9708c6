"""A process that is forked from one with a run can use the run."""

import os
import subprocess
import sys

import pytest

RECIPE = {
    "task": {"kind": "translation"},
    "tokenizer": {"subwords": {"kind": "word"}},
    "model": {
        "kind": "transformer",
        "d_model": 64,
        "n_layers": 1,
        "dropout": 0.0,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 2},
            "channels": {"kind": "feed-forward", "d_ff": 64},
        },
    },
    "decoding": {"kind": "greedy", "max_length": {"ratio": 0, "extra": 3}},
}

FORK = """
import os, signal, sys, torch
from heedful import load
torch.set_num_threads(2)
run = load(sys.argv[1], device="cpu")
inputs = ["a b c"] * 20
before = [each.to_dict() for each in run.predict(inputs)]
matrix = torch.ones(700, 700)
torch.layer_norm(matrix @ matrix, [700])  # on both threads
child = os.fork()
if child == 0:
    signal.alarm(60)  # it would wait for threads that do not exist
    for again in (run, load(sys.argv[1], device="cpu")):
        outputs = [each.to_dict()["output"] for each in again.predict(inputs)]
        assert outputs == [each["output"] for each in before]
    torch.layer_norm(matrix @ matrix, [700])
    os._exit(0 if torch.get_num_threads() == 1 else 3)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert torch.get_num_threads() == 2
assert [each.to_dict() for each in run.predict(inputs)] == before
sys.exit(status)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("native", ["0", "1"])
def test_a_forked_process_computes_on_one_thread(make_run, tmp_path, native):
    rows = [{"source": "a b c", "target": "c b a"}]
    folder = make_run(tmp_path / "run", RECIPE, rows)
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(folder)]
    environment = {**os.environ, "HEEDFUL_NATIVE": native}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
