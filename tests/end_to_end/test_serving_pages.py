"""What the documentation says about serving is so: commands, a client, configurations of other programs."""

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import ENVIRONMENT
from tiny_runs import make

from heedful.api.run import load
from heedful.cli.main import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVING = (ROOT / "docs" / "how-to" / "serving.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "service.md").read_text(encoding="utf-8")
HOST = "translate.example.org"
LONG = {"inputs": ["a b"], "max_new_tokens": 60_000, "decoding": {"kind": "greedy", "min_length": 50_000}}


def section(text, heading):
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def commands(text):
    """The lines of its blocks of commands, without comments."""
    return [line.partition("  #")[0].strip() for line in text.splitlines() if line.startswith("    ")]


def titled(name):
    return re.search(rf'^```\w+ title="{re.escape(name)}"\n(.*?)^```', SERVING, re.MULTILINE | re.DOTALL)[1]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Served:
    """A service that a command of a page has started."""

    def __init__(self, process):
        self.process, self.lines, self.port = process, [], None
        self.is_ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        assert self.is_ready.wait(90), self.lines
        assert self.port, self.lines

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
            if line == "heedful: ready\n":
                self.is_ready.set()
        self.is_ready.set()

    def get(self, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the runs that the pages name, and an image."""
    own = tmp_path_factory.mktemp("serving")
    for kind in ("translation", "language-modelling", "image-classification"):
        make(kind, own / kind)
    (own / "runs").mkdir()
    shutil.copytree(own / "translation" / "finished", own / "runs" / "mine")
    shutil.copytree(own / "language-modelling" / "finished", own / "runs" / "lm")
    shutil.copytree(own / "image-classification" / "finished", own / "runs" / "pets")
    shutil.copy(own / "image-classification" / "0.png", own / "cat.png")
    programs = own / "programs"
    programs.mkdir()
    for name, before, after in (("heedful", "-m heedful", "--port 0"), ("python", "", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {before} "$@" {after}\n', encoding="utf-8")
        program.chmod(0o755)
    return own


@pytest.fixture
def shell(folder):
    """Run a line of a page with bash."""
    env = {**ENVIRONMENT, "PATH": f"{folder / 'programs'}:{os.environ['PATH']}"}

    def run(line):
        return subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"], cwd=folder, env=env, capture_output=True, timeout=60
        )

    return run


@contextmanager
def started(line, folder):
    """Start a service by a line of a page; it listens on a free port."""
    env = {**ENVIRONMENT, "PATH": f"{folder / 'programs'}:{os.environ['PATH']}"}
    command = ["bash", "-c", f"exec {line}"]
    process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    try:
        service = Served(process)
        yield service
    finally:
        process.kill()
        process.wait()
        service.reader.join()
        process.stderr.close()


def needs(*programs):
    return pytest.mark.skipif(
        any(shutil.which(program) is None for program in programs), reason=f"missing: {' or '.join(programs)}"
    )


@needs("curl")
@pytest.mark.parametrize(
    "text", [section(README, "Serve it"), section(SERVING, "On your own machine")], ids=["README", "serving"]
)
def test_start_curl_stop(text, folder, shell):
    lines = commands(text)
    start = next(line for line in lines if line.startswith("heedful serve "))
    calls = [line for line in lines if "curl " in line]
    assert len(calls) > 1
    outputs = {}
    with started(f"{start} runs/pets", folder) as service:
        for line in calls:
            done = shell(
                line.replace("127.0.0.1:8000", f"127.0.0.1:{service.port}").replace("curl ", "curl -fsS ")
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            outputs[line] = done.stdout.decode()
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(30) == 0
        service.reader.join()
        assert service.lines[-1] == "heedful: stopped\n"
    (first, *_) = json.loads(outputs[calls[0]])["predictions"]
    assert first["output"] == load(folder / "runs" / "mine").predict(["A man sleeps."])[0].text
    assert (folder / "page.html").read_text().lower().startswith("<!doctype html")
    for line, out in outputs.items():
        if "/stream" in line:
            assert out.startswith("event: piece\n")
            assert "\nevent: end\n" in out
        elif "cat.png" in line:
            expected = load(folder / "runs" / "pets").predict([folder / "cat.png"])[0].text
            assert json.loads(out)["predictions"][0]["output"] == expected
        elif "page.html" not in line:
            json.loads(out)


def test_the_client_and_what_is_said_about_answers(folder):
    scope = {}
    exec(re.search(r"^```python\n(.*?)^```", SERVING, re.MULTILINE | re.DOTALL)[1], scope)
    texts = ["a b c", "c"]
    with started("heedful serve runs/mine", folder) as service:
        found = scope["translate"](texts, f"http://127.0.0.1:{service.port}")
        assert found == [each.text for each in load(folder / "runs" / "mine").predict(texts)]
        described = json.loads(service.get("/v1/runs")[1])["runs"][0]
        table = re.findall(r"^\| (`[^|]+) \|", section(REFERENCE, "What is served"), re.MULTILINE)
        assert {*described} == {name for row in table for name in re.findall(r"`(\w+)`", row)}
        end = time.monotonic() + 10
        while not (line := service.lines[-1]).startswith("{"):
            assert time.monotonic() < end
            time.sleep(0.02)
        shown = re.search(r'^    (\{"time".*\})$', REFERENCE, re.MULTILINE)[1]
        assert [*json.loads(line)] == [*json.loads(shown)]


@pytest.fixture
def behind(folder, tmp_path, shell):
    """Start a service and nginx in front of it, both as the page says; only ports and paths are others."""
    text = section(SERVING, "Behind a reverse proxy")
    made = next(line for line in commands(section(SERVING, "For colleagues")) if line.endswith(">> keys"))
    (folder / "keys").unlink(missing_ok=True)
    assert shell(made).returncode == 0
    certificate, key, port = tmp_path / "own.pem", tmp_path / "own.key", free_port()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={HOST}",
         "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    (start,) = (line for line in commands(text) if line.startswith("heedful serve "))
    with started(start.replace("runs/mine", "mine=runs/lm"), folder) as service:
        own = titled("heedful.conf")
        for there, here in (
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            (f"/etc/ssl/certs/{HOST}.pem", str(certificate)),
            (f"/etc/ssl/private/{HOST}.key", str(key)),
            ("127.0.0.1:8000", f"127.0.0.1:{service.port}"),
        ):
            assert own.count(there) == 1
            own = own.replace(there, here)
        (tmp_path / "heedful.conf").write_text(own)
        folders = "".join(
            f"{name}_temp_path {tmp_path / name};\n"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (tmp_path / "nginx.conf").write_text(
            f"{'user root;' if os.geteuid() == 0 else ''} daemon off; pid {tmp_path / 'pid'}; events {{}}\n"
            f"http {{ access_log off;\n{folders} include {tmp_path / 'heedful.conf'}; }}\n"
        )
        log = tmp_path / "error.log"
        command = [shutil.which("nginx"), "-e", log, "-c", tmp_path / "nginx.conf"]
        assert subprocess.run([*command, "-t", "-q"]).returncode == 0
        nginx = subprocess.Popen(command)
        try:
            yield Behind(service, port, certificate, (folder / "keys").read_text().strip(), log)
        finally:
            nginx.terminate()
            nginx.wait(10)


class Behind:
    """A service behind nginx, as a client that has a key reaches it."""

    def __init__(self, service, port, certificate, key, log):
        self.service, self.port, self.log = service, port, log
        self.trust = ssl.create_default_context(cafile=certificate)
        self.authorization = {"Authorization": f"Bearer {key}"}

    def connection(self):
        end = time.monotonic() + 20
        while True:
            try:
                plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
                break
            except ConnectionRefusedError:  # nginx is still starting
                assert time.monotonic() < end
                time.sleep(0.05)
        connection = http.client.HTTPConnection(HOST)
        connection.sock = self.trust.wrap_socket(plain, server_hostname=HOST)
        return connection

    def request(self, method, path, body=None, **headers):
        connection = self.connection()
        try:
            connection.request(method, path, body if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def n_queued(self):
        metrics = self.service.get("/metrics", **self.authorization)[1].decode()
        return float(re.search(r'heedful_queued_tokens\{run="mine"\} (\S+)', metrics)[1])


@pytest.mark.slow
@needs("nginx", "openssl")
def test_behind_nginx(behind):
    own = behind.authorization
    body = {"inputs": ["a b"], "max_new_tokens": 5}
    status, found = behind.request("POST", "/v1/runs/mine/predict", body, **own)
    assert status == 200
    assert json.loads(found)["predictions"][0]["tokens"]
    status, found = behind.request("POST", "/v1/runs/mine/predict", body)
    assert (status, [*json.loads(found)]) == (401, ["error"])
    assert behind.request("GET", "/health")[0] == 200
    assert behind.request("GET", "/metrics", **own)[0] == 404
    assert behind.request("GET", "/v1/runs", Host="other.example.org", **own)[0] == 421
    for origin, expected in ((HOST, 200), ("other.example.org", 403)):
        assert behind.request("GET", "/v1/runs", Origin=f"https://{origin}", **own)[0] == expected

    large = {"inputs": ["a" * (4 << 20)]}
    status, found = behind.request("POST", "/v1/runs/mine/predict", large, **own)
    assert status == 413
    assert "bytes" in json.loads(found)["error"]["message"], "the message of the service, not a page of nginx"

    # A stream comes as it is written, and ends with its client.
    connection = behind.connection()
    connection.request("POST", "/v1/runs/mine/stream", json.dumps(LONG), own)
    received = b""
    while b"event: piece\n" not in received:
        more = connection.sock.recv(1 << 16)
        assert more, received
        received += more
    assert received.startswith(b"HTTP/1.1 200")
    assert len(received) < 4096, "nginx collects a page of memory if it buffers"
    assert behind.n_queued() > 0
    connection.close()
    end = time.monotonic() + 20
    while behind.n_queued():
        assert time.monotonic() < end, behind.log.read_text()
        time.sleep(0.05)


@needs("systemd-analyze")
def test_the_unit_of_systemd_is_valid(tmp_path):
    text, program = titled("heedful.service"), "/opt/heedful/.venv/bin/heedful"
    assert text.count(program) == 1
    (tmp_path / "heedful.service").write_text(text.replace(program, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "heedful.service"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def options_of_serve():
    (command,) = (each for each in app.registered_commands if each.name == "serve")
    from typer.main import get_command_from_info

    found = get_command_from_info(command, pretty_exceptions_short=False, rich_markup_mode=None)
    return {option: parameter for parameter in found.params for option in parameter.opts if option[0] == "-"}


def test_the_unit_leaves_time_to_stop():
    patience = int(re.search(r"^TimeoutStopSec=(\d+)$", titled("heedful.service"), re.MULTILINE)[1])
    options = options_of_serve()
    assert patience > options["--drain-timeout"].default + options["--drain-delay"].default + 5
    assert f"--stop-timeout {patience}" in SERVING


def test_engines_that_get_the_signal_end_before_they_have_answered(folder):
    """Why the unit needs KillMode=mixed."""
    with started("heedful serve runs/lm", folder) as service:
        children = subprocess.run(["pgrep", "-P", str(service.process.pid)], capture_output=True, text=True)
        (engine,) = map(int, children.stdout.split())
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        connection.request("POST", "/v1/runs/lm/stream", json.dumps(LONG))
        response = connection.getresponse()
        assert response.read1().startswith(b"event: piece")
        os.kill(engine, signal.SIGTERM)
        assert b"event: error" in response.read()
        connection.close()


def instructions():
    """The instructions of the container file, by name."""
    found = {}
    for line in titled("Dockerfile").splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            found.setdefault(name, []).append(rest)
    return found


def test_the_container_file_copies_what_there_is_and_starts_a_service(folder):
    parts = instructions()
    copied = [name for line in parts["COPY"] for name in line.split()[:-1]]
    assert {"pyproject.toml", "constraints.txt", "src"} <= {*copied}
    assert all((ROOT / name).exists() for name in copied)
    wanted = re.search(
        r'readme = "(.*?)"\n.*license-files = \["(.*?)"\]', (ROOT / "pyproject.toml").read_text(), re.S
    )
    assert {*wanted.groups()} <= {*copied}, "hatchling reads them"
    command = json.loads(parts["ENTRYPOINT"][0]) + json.loads(parts["CMD"][0])
    assert command[:2] == ["heedful", "serve"]
    line = shlex.join(command).replace("/runs/", "runs/").replace("0.0.0.0", "127.0.0.1")
    (folder / "own-keys").write_text("sixteen-characters-or-more\n")
    health = json.loads(parts["HEALTHCHECK"][0].partition("CMD ")[2])
    assert health[0] == "python"
    with started(line.replace("/keys", "own-keys"), folder) as service:
        check = [sys.executable, *(each.replace(":8000", f":{service.port}") for each in health[1:])]
        assert subprocess.run(check).returncode == 0
    assert subprocess.run(check, stderr=subprocess.DEVNULL).returncode != 0


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{p}.md" for p in ("how-to/serving", "how-to/deployment"))]
)
def test_options_that_pages_name_exist(page):
    lines = re.findall(r"(?:heedful serve|^CMD|--restart).*$", (ROOT / page).read_text(), re.MULTILINE)
    named = {option for line in lines for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", line)}
    assert named <= {*options_of_serve()}


def test_a_service_of_the_monitoring_example_is_valid_yaml():
    from ruamel.yaml import YAML

    (job,) = YAML(typ="safe").load(titled("prometheus.yml"))["scrape_configs"]
    assert job["job_name"] == "heedful"
