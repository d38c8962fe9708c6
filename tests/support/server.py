"""Run the command many times but import torch once: import, then fork for each request.

Each line on standard input is a request, ``{"argv", "cwd", "env", "stdin", "stdout", "stderr", "file_size"}``
with paths for the streams, and is followed by a line that requests to wait. The answers are ``{"pid"}`` when
the process runs, and ``{"status"}`` when it has ended (as in subprocess, negative for a signal). Nothing is
computed before the fork, so the child is in the state of ``python -m heedful`` after its imports; only the
time for measuring updates is set to 0.
"""

import gc
import json
import os
import resource
import signal
import sys
import traceback

import sacrebleu.tokenizers.tokenizer_13a  # noqa: F401
import torch
import torch._dynamo

import heedful.runs.evaluate
import heedful.runs.timing
import heedful.runs.train
import heedful.training.callbacks
from heedful.cli.main import main


def child(request: dict) -> None:
    """Run a request in the forked process like a fresh interpreter; never return."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        handle = os.open(request[name], os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdin, sys.stdout, sys.stderr = (open(n, "r" if n == 0 else "w", encoding="utf-8") for n in range(3))  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    sys.argv = ["heedful", *request["argv"]]
    # As in a terminal; a shell may ignore interrupts for tests that run in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    if request["file_size"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"], resource.RLIM_INFINITY))
    os._exit(status_of_main())


def status_of_main() -> int:
    try:
        main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def serve() -> None:
    heedful.runs.timing.SECONDS = heedful.runs.timing.PATIENCE = 0.0
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    gc.freeze()
    for line in requests:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(request)
        print(json.dumps({"pid": pid}), file=answers, flush=True)
        requests.readline()  # keep the PID reserved until then, so that signals reach no other process
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), file=answers, flush=True)


if __name__ == "__main__":
    serve()
