"""Services for tests: real processes on a free port of this machine."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from commands import ENVIRONMENT


class Service:
    """A service in a process of its own."""

    def __init__(self, runs, *options, timeout=90):
        arguments = [f"{name}={path}" for name, path in runs.items()]
        command = [sys.executable, "-m", "heedful", "serve", *arguments, "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.lines, self.port = [], None
        self._told = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._told.wait(timeout), self.lines
        assert self.port, self.lines
        self.wait_until(lambda: self.get("/health")[0] == 200, timeout)

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                self._told.set()
        self._told.set()

    def wait_until(self, holds, timeout=30):
        end = time.monotonic() + timeout
        while not holds():
            assert time.monotonic() < end, self.lines[-5:]
            assert self.process.poll() is None, self.lines
            time.sleep(0.02)

    def request(self, method, path, body=None, headers=(), timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, payload, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def post(self, run, verb, body, **settings):
        status, data = self.request("POST", f"/v1/runs/{run}/{verb}", body, **settings)
        return status, json.loads(data)

    def predictions(self, run, inputs, **options):
        status, found = self.post(run, "predict", {"inputs": inputs, **options})
        assert status == 200, found
        return found["predictions"]

    def engines(self):
        """The process ids of the engines."""
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True)
        return [int(line) for line in children.stdout.split()]

    def close(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stderr.close()

    def end(self, number=signal.SIGTERM, timeout=30):
        self.process.send_signal(number)
        return self.process.wait(timeout)


@contextmanager
def another(runs, *options):
    running = Service(runs, *options)
    try:
        yield running
    finally:
        running.close()


def endless(n):
    """Options with which a language model writes so many tokens, and does not end before."""
    return {"max_new_tokens": n, "decoding": {"kind": "greedy", "min_length": n}}
