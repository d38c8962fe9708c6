"""The library itself in a process of one thread, with which the service is compared.

    python reference.py RUN PRECISION     one request a line of standard input, one answer a line, both JSON

| request | answer |
|---|---|
| ``{"each": [texts], "options": {}}`` | the seconds of a call of ``Run.predict`` for each text alone |
| ``{"all": [texts], "options": {}}`` | the seconds of one call for all |
| ``{"answers": [[rows]], "column", "options": {}}`` | the predictions, one call for each list of rows |
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Reference:
    """Such a process.

    Args:
        run: the run.
        precision: of the weights during decoding.
    """

    def __init__(self, run: Path, precision: str) -> None:
        import os

        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(run), precision],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def __enter__(self) -> "Reference":
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, **request: Any) -> Any:
        """Return the answer to a request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def main() -> None:
    """Answer requests until standard input ends."""
    import torch

    import heedful
    from heedful.memory import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    path, precision = sys.argv[1:]
    run = heedful.load(path, device="cpu")
    for line in sys.stdin:
        request = json.loads(line)
        options = {"precision": precision, **request.get("options", {})}
        answer: Any
        if "each" in request:
            answer = []
            for text in request["each"]:
                begun = time.perf_counter()
                run.predict([text], **options)
                answer.append(time.perf_counter() - begun)
        elif "all" in request:
            begun = time.perf_counter()
            run.predict(request["all"], **options)
            answer = time.perf_counter() - begun
        else:
            column = request["column"]
            answer = [
                [
                    prediction.to_dict(row)
                    for prediction, row in zip(
                        run.predict([row[column] for row in rows], **options), rows, strict=True
                    )
                ]
                for rows in request["answers"]
            ]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
