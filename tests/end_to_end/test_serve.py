"""The service as its clients meet it: a real process, real sockets, engines that are killed and stopped."""

import base64
import json
import os
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from services import Service, another, endless
from tiny_runs import TASKS, make

from heedful.api.run import load
from heedful.errors import DataError, RequestError
from heedful.explain.alignment import occlusion_agreement
from heedful.explain.attribution import replacements
from heedful.explain.views import OVER_INPUTS
from heedful.serve.answering import Answering, Body
from heedful.serve.description import description_of

KINDS = ["translation", "classification", "tagging", "language-modelling", "image-classification"]
SAMPLE = {"kind": "sample", "seed": 3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        make(kind, folder / kind)
    return {kind: folder / kind / "finished" for kind in KINDS}


@pytest.fixture(scope="module")
def service(runs):
    running = Service(runs)
    yield running
    running.close()


INPUTS = {
    "translation": ["a b c", {"source": "c c a", "id": 7}, "", "a a b b", "zzz"],
    "classification": ["a b c", {"text": "b", "id": [1, {"x": None}]}, "", "q"],
    "tagging": ["a b c", ["a", "b b"], {"words": "c a", "who": "me"}],
    "language-modelling": ["a b", "", {"prompt": "c c a", "id": 7}],
}
OPTIONS = [
    ("translation", {}),
    ("translation", {"beam": 2, "n_best": 2}),
    ("translation", {"decoding": {**SAMPLE, "n": 1}}),
    ("translation", {"alignment": True, "attention": True}),
    ("translation", {"must_not": ["a"]}),
    ("classification", {"threshold": 0.9, "otherwise": "unsure"}),
    ("classification", {"n_best": 2}),
    ("tagging", {}),
    ("language-modelling", {"max_new_tokens": 5}),
    ("language-modelling", {"max_new_tokens": 7, "decoding": SAMPLE, "prefix": "a b "}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_predictions_are_those_of_the_command(service, runs, kind, options, heedful, tmp_path):
    """Byte for byte, of the engine; each by itself and all at once, from several clients."""
    inputs = INPUTS[kind]
    key = TASKS[kind]["data"]["train"]["columns"]
    first = "prompt" if kind == "language-modelling" else next(iter(key))
    lines = [value if isinstance(value, dict) else {first: value} for value in inputs]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = []
    for name, value in options.items():
        if name == "decoding":
            arguments += [part for k, v in value.items() for part in ("--decoding", f"{k}={v}")]
        elif name == "prefix":
            (tmp_path / "prefix.txt").write_text(value)
            arguments += ["--prefix", tmp_path / "prefix.txt"]
        elif name == "must_not":
            arguments += ["--must-not", value[0]]
        elif value is True:
            arguments.append(f"--{name}")
        else:
            arguments += [f"--{name.replace('_', '-')}", value]
    done = heedful("predict", runs[kind], tmp_path / "in.jsonl", "--jsonl", *arguments, cwd=tmp_path)
    expected = [json.loads(line) for line in done.out.splitlines()]
    found = service.predictions(kind, inputs, **options)
    names = ("notes", "error")  # these name the place of an input, which is another
    bare = lambda rows: [{k: v for k, v in row.items() if k not in names} for row in rows]  # noqa: E731
    assert bare(found) == bare(expected)
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda _: service.predictions(kind, inputs, **options), range(24)))
    on_engine = kind in ("translation", "language-modelling")
    for each in together:
        if on_engine:
            assert each == found
        else:
            assert [row.get("output") for row in each] == [row.get("output") for row in found]


def test_an_alignment_without_a_known_head_names_no_path(runs, tmp_path, monkeypatch):
    def missing(*arguments):
        raise DataError("/of/the/server/rows.jsonl: no such file")

    run = shutil.copytree(runs["translation"], tmp_path / "run")
    (run / "alignment.json").unlink()
    monkeypatch.setattr(occlusion_agreement, "chosen_splits", missing)
    answering = Answering(load(run), "auto", lambda: ())
    with pytest.raises(RequestError, match="cannot be read here") as refused:
        answering.answers("predict", [Body(["a b"], {"alignment": True})])
    assert "/of/the/server" not in str(refused.value)


def test_a_view_without_its_training_data_is_left_out_alone(runs, tmp_path, monkeypatch):
    def missing(run):
        raise DataError(f"{tmp_path}/rows.jsonl: no such file")

    monkeypatch.setattr(replacements, "_training_inputs", missing)
    answering = Answering(load(runs["classification"]), "auto", lambda: ())
    body = Body(["a b"], {"views": ["occlusion", "replacement"]})
    page, found = answering.explanation(body, page=True), answering.explanation(body, page=False)
    assert "No view replacement" in page
    assert str(tmp_path) not in page + found
    assert list(json.loads(found)["more"]) == ["occlusion"]
    assert "cannot be read here" in json.loads(found)["unavailable"]["replacement"]


def test_selecting_a_head_counts_as_steps(runs, tmp_path):
    """It may take longer than a silent engine lives."""
    steps = []
    run = shutil.copytree(runs["translation"], tmp_path / "run")
    (run / "alignment.json").unlink()
    answering = Answering(load(run), "auto", lambda: steps.append(1) or ())
    answering.answers("predict", [Body(["a"], {})])
    plain = len(steps)
    answering.answers("predict", [Body(["a"], {"alignment": True})])
    assert len(steps) > 2 * plain


def test_images_are_bytes(service, runs):
    files = sorted(runs["image-classification"].parent.glob("*.png"))
    run = load(runs["image-classification"])
    expected = [prediction.text for prediction in run.predict(files)]
    inputs = [{"image": base64.b64encode(file.read_bytes()).decode(), "id": 3} for file in files]
    found = service.predictions("image-classification", inputs)
    assert [each["output"] for each in found] == expected
    assert all(each["input"] == {"id": 3} for each in found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", ["predict", "score", "embed", "explain", "stream"])
def test_no_path_that_a_client_names_is_opened(service, runs, kind, verb, tmp_path):
    """Its text would be in the answer, or an error would say that there is no such file."""
    secret = tmp_path / "secret.txt"
    secret.write_text('{"planted": "xyzzy"}')
    file = sorted(runs["image-classification"].parent.glob("*.png"))[0]
    paths = [str(secret), f"file://{secret}", "/etc/passwd", str(file), "../finished/run.json"]
    names = ["inputs", "prefix", "json_schema", "regex", "terminology", "must", "decoding", "views", "gap"]
    for path in paths:
        for name in names:
            body = {"inputs": ["a b"], name: [path] if name in ("inputs", "views", "must") else path}
            if kind == "image-classification" and name == "inputs":
                body = {"inputs": [{"image": path}]}
            status, data = service.request("POST", f"/v1/runs/{kind}/{verb}", body)
            assert status in (200, 422), data
            assert b"xyzzy" not in data
            assert b"planted" not in data
            assert b"root:" not in data
            assert b"No such file" not in data
            if kind == "image-classification" and name == "inputs":
                assert status == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"inputs": []}',
        b'{"inputs": "a"}',
        b'{"inputs": [1]}',
        b'{"inputs": [null]}',
        b'{"inputs": ["a"], "beam": 0}',
        b'{"inputs": ["a"], "beam": "x"}',
        b'{"inputs": ["a"], "bem": 2}',
        b'{"inputs": ["a"], "beam": NaN}',
        b'{"inputs": ["a"], "threshold": 1e999}',
        b'{"inputs": [{"source": "a", "x": 1e999}]}',
        b'{"inputs": ["\\ud800"]}',
        b'{"inputs": ["\xff"]}',
        b'{"inputs": [{"sourse": "a"}]}',
        b"[" * 200_000,
        b'{"inputs": [' + b"[" * 150 + b"]" * 150 + b"]}",
        b'{"inputs": ["a"], "decoding": {"kind": "no such"}}',
        b'{"inputs": ["a"], "decoding": 3}',
        b'{"inputs": ["a"], "attention": "yes"}',
    ],
)
def test_invalid_requests_are_refused_with_a_reason(service, body):
    status, found = service.post("translation", "predict", body)
    assert status == 422, found
    assert found["error"]["message"]
    assert service.predictions("translation", ["a b c"])[0]["output"] is not None


def test_one_invalid_request_does_not_spoil_others_in_its_batch(service):
    expected = service.predictions("translation", ["a b c"])

    def ask(number):
        inputs = ["a b c"] if number % 3 else [{"source": "x", "must": 5}]
        return number, service.post("translation", "predict", {"inputs": inputs})

    with ThreadPoolExecutor(12) as pool:
        for number, (status, found) in pool.map(ask, range(36)):
            if number % 3:
                assert (status, found["predictions"]) == (200, expected)
            else:
                assert status == 422


def test_limits(service):
    _, limits = service.get("/v1/limits")
    limits = json.loads(limits)
    for body, words in (
        ({"inputs": ["a"] * (limits["inputs"] + 1)}, "at most 256"),
        ({"inputs": ["a " * limits["tokens"]]}, "tokens"),
        ({"inputs": ["a b c"] * 250, "beam": 900}, "tokens"),
        ({"inputs": ["a" * limits["body"]]}, "bytes"),
    ):
        status, found = service.post("translation", "predict", body)
        assert status == 413, found
        assert words in found["error"]["message"]


def test_a_chunked_body_is_bounded_while_it_is_read(service):
    chunk, sent = b"10000\r\n" + b"a" * 0x10000 + b"\r\n", 0
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as own:
        own.sendall(
            b"POST /v1/runs/translation/predict HTTP/1.1\r\nhost: localhost\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        try:
            while sent < 64 << 20:
                own.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
    assert sent < 64 << 20


def events_of(service, run, body, **settings):
    status, data = service.request("POST", f"/v1/runs/{run}/stream", body, **settings)
    if status != 200:
        return status, json.loads(data)
    events = [block.split("\n", 1) for block in data.decode().strip("\n").split("\n\n")]
    return status, [(kind.removeprefix("event: "), json.loads(text[6:])) for kind, text in events]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("translation", {"beam": 1}),
        ("translation", {"decoding": SAMPLE}),
        ("language-modelling", {"max_new_tokens": 9}),
        ("language-modelling", {"max_new_tokens": 9, "decoding": SAMPLE}),
    ],
)
def test_a_stream_is_the_prediction_in_pieces(service, kind, options):
    (expected,) = service.predictions(kind, ["a b c"], **options)
    status, events = events_of(service, kind, {"inputs": ["a b c"], **options})
    assert status == 200
    assert {kind for kind, _ in events[:-1]} <= {"piece"}
    assert "".join(event["text"] for _, event in events[:-1]) == expected["output"]
    assert events[-1] == ("end", expected)


def test_what_cannot_be_streamed_is_refused(service):
    for kind, body in (
        ("classification", {"inputs": ["a"]}),
        ("translation", {"inputs": ["a"]}),
        ("translation", {"inputs": ["a", "b"], "beam": 1}),
    ):
        status, found = events_of(service, kind, body)
        assert status == 422
        assert found["error"]["message"]


def test_who_leaves_a_stream_costs_nothing_more(service):
    """A long stream is closed, by FIN or by RST; the engine is free at once."""
    body = json.dumps({"inputs": ["a b"], **endless(200_000)}).encode()
    for resets in (True, False) * 3:
        own = socket.create_connection(("127.0.0.1", service.port), timeout=20)
        own.sendall(
            b"POST /v1/runs/language-modelling/stream HTTP/1.1\r\nhost: localhost\r\n"
            + f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert b"200" in own.recv(4096)
        if resets:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        own.close()
        idle = b'heedful_queued_tokens{run="language-modelling"} 0.0'
        service.wait_until(lambda: idle in service.get("/metrics")[1], 10)  # noqa: B023
        service.predictions("language-modelling", ["a b"], max_new_tokens=2)


def test_verbs_equal_the_library(service, runs):
    run = load(runs["translation"])
    found = service.post("translation", "score", {"inputs": [["a b", "b a"]]})[1]["scores"]
    assert found == [run.score([("a b", "b a")])[0].to_dict({"source": "a b", "target": "b a"})]
    (vector,) = service.post("translation", "embed", {"inputs": ["a b"]})[1]["embeddings"]
    assert vector["vector"] == pytest.approx(run.embed(["a b"])[0].tolist(), abs=1e-5)
    status, explanation = service.post("translation", "explain", {"inputs": ["a b"], "layers": [0]})
    assert status == 200
    assert explanation["answer"]["output"] is not None
    status, page = service.request(
        "POST", "/v1/runs/translation/explain", {"inputs": ["a b"]}, headers={"accept": "text/html"}
    )
    assert status == 200
    assert page.lower().startswith(b"<!doctype html")


def test_what_is_served_is_described(service):
    (found,) = [
        run for run in json.loads(service.get("/v1/runs")[1])["runs"] if run["name"] == "classification"
    ]
    assert (found["task"], found["inputs"], found["ready"]) == ("classification", ["text"], True)
    assert json.loads(service.get("/openapi.json")[1])["paths"].keys() >= {"/v1/runs/{name}/predict"}
    assert service.post("no%20such", "predict", {"inputs": ["a"]})[0] == 404
    assert service.request("GET", "/v1/runs", headers={"host": "evil.example"})[0] == 421


def test_texts_and_names_of_clients_stay_out_of_logs_and_metrics(service):
    service.predictions("translation", ["planted-text"])
    service.post("planted-name", "predict", {"inputs": ["a"]})
    service.post("translation", "predict", {"inputs": ["a"], "planted-option": 1})
    service.get("/planted-path?planted-query")
    time.sleep(0.2)
    assert "planted" not in "".join(service.lines)
    assert b"planted" not in service.get("/metrics")[1]


def test_a_killed_or_stopped_engine_is_replaced(runs):
    with another({"mt": runs["translation"]}, "--engine-timeout", "2", "--workers", "1") as service:
        expected = service.predictions("mt", ["a b c"])
        for number in (signal.SIGKILL, signal.SIGSTOP):
            (engine,) = service.engines()
            statuses, done = [], threading.Event()

            def ask(statuses=statuses, done=done):
                while not done.is_set():
                    statuses.append(service.post("mt", "predict", {"inputs": ["a b c"] * 9})[0])

            clients = [threading.Thread(target=ask) for _ in range(3)]
            for client in clients:
                client.start()
            time.sleep(0.3)
            os.kill(engine, number)
            service.wait_until(lambda: engine not in service.engines())  # noqa: B023
            service.wait_until(lambda: service.get("/health/ready")[0] == 503 or service.engines())
            service.wait_until(lambda: service.get("/health/ready")[0] == 200)
            done.set()
            for client in clients:
                client.join()
            assert {*statuses} <= {200, 503}
            assert 503 in statuses
            assert service.predictions("mt", ["a b c"]) == expected
        assert b'heedful_engine_restarts_total{run="mt"} 2.0' in service.get("/metrics")[1]


def test_sigterm_answers_what_was_admitted_and_ends_with_0(runs):
    with another({"lm": runs["language-modelling"]}) as service:
        engines = service.engines()
        with ThreadPoolExecutor(4) as pool:
            asked = [
                pool.submit(events_of, service, "lm", {"inputs": ["a b"], **endless(1500)}) for _ in range(2)
            ] + [pool.submit(service.post, "lm", "predict", {"inputs": ["a"], **endless(900)})]
            service.wait_until(
                lambda: b'heedful_queued_tokens{run="lm"} 0.0' not in service.get("/metrics")[1]
            )
            time.sleep(0.1)
            assert service.end() == 0
            for each in asked:
                status, found = each.result()
                assert status == 200, found
                assert "predictions" in found or found[-1][0] == "end"
        assert not any(os.path.exists(f"/proc/{engine}") for engine in engines)


def test_no_engine_survives_the_front(runs):
    """Neither one that computes nor one that waits, when the front is killed without a word."""
    with another({"lm": runs["language-modelling"]}, "--workers", "2") as service:
        engines = service.engines()
        assert len(engines) == 2
        own = socket.create_connection(("127.0.0.1", service.port), timeout=20)
        body = json.dumps({"inputs": ["a b"], **endless(200_000)}).encode()
        own.sendall(
            b"POST /v1/runs/lm/stream HTTP/1.1\r\nhost: localhost\r\n"
            + f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert b"200" in own.recv(4096)
        assert service.end(signal.SIGKILL) == -signal.SIGKILL
        own.close()
        end = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{engine}") for engine in engines):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_the_front_never_imports_torch(process, tmp_path):
    done = process(
        "-c",
        "import sys, heedful.serve.server, heedful.cli.serve; print('torch' in sys.modules)",
        cwd=tmp_path,
    )
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no such"], "no such"),
        (["RUN", "--host", "0.0.0.0"], "--api-key-file"),
        (["RUN", "RUN"], "two runs have this name"),
        (["a b=RUN"], "a name has letters"),
        (["RUN", "--allowed-host", "https://x.org/"], "a name alone"),
        (["a=RUN", "b=RUN", "--workers", "1"], "at least one for each of 2 runs"),
        (["RUN", "--api-key-file", "KEYS"], "at least 16"),
    ],
)
def test_wrong_requests_to_serve(heedful, runs, arguments, words, tmp_path):
    (tmp_path / "keys").write_text("short\n")
    given = [
        a.replace("RUN", str(runs["translation"])).replace("KEYS", str(tmp_path / "keys")) for a in arguments
    ]
    done = heedful("serve", *given, cwd=tmp_path)
    assert done.status == 2, done
    assert words in done.err


@pytest.mark.parametrize("view", OVER_INPUTS)
def test_views_over_several_inputs_are_refused_with_the_reason(service, view):
    status, found = service.post("translation", "explain", {"inputs": ["a b"], "views": ["attention", view]})
    assert status == 422
    assert found["error"]["message"] == f"views: {view} compares several inputs, and a request has one"


def test_a_setting_of_decoding_as_an_option_is_told_where_it_belongs(service):
    status, found = service.post("language-modelling", "predict", {"inputs": ["a"], "temperature": 0.5})
    assert status == 422
    assert '{"decoding": {"kind": "sample", "temperature"' in found["error"]["message"]


def test_the_description_says_whether_a_run_aligns_and_has_slots(service, runs, tmp_path, monkeypatch):
    described = {run["name"]: run for run in json.loads(service.get("/v1/runs")[1])["runs"]}
    assert {name: run["aligns"] for name, run in described.items()} == {
        name: name == "translation" for name in KINDS
    }
    assert {name: run["slots"] for name, run in described.items()} == {
        name: 64 * (name == "language-modelling") for name in KINDS
    }
    run = shutil.copytree(runs["translation"], tmp_path / "run")
    (run / "alignment.json").unlink()
    answering = Answering(load(run), "auto", lambda: ())
    assert description_of(answering, 0)["aligns"]

    def missing(*arguments):
        raise DataError("rows.jsonl: no such file")

    monkeypatch.setattr(occlusion_agreement, "chosen_splits", missing)
    assert not description_of(answering, 0)["aligns"]
