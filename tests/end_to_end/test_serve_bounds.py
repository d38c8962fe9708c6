"""What a service bounds: slow and silent clients, headers, forms, foreign pages, memory, engines."""

import base64
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from services import another, endless
from tiny_runs import make

KINDS = ["translation", "language-modelling", "image-classification"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        make(kind, folder / kind)
    return {kind: folder / kind / "finished" for kind in KINDS}


@pytest.fixture(scope="module")
def service(runs):
    with another(runs, "--send-timeout", "1", "--request-timeout", "6") as running:
        yield running


def connected(service):
    return socket.create_connection(("127.0.0.1", service.port), timeout=40)


def head(run, verb, length, *lines):
    given = "".join(f"{line}\r\n" for line in ("host: localhost", f"content-length: {length}", *lines))
    return f"POST /v1/runs/{run}/{verb} HTTP/1.1\r\n{given}\r\n".encode()


def gauge(service, name, run):
    text = service.get("/metrics")[1].decode()
    return float(text.split(f'{name}{{run="{run}"}} ')[1].split("\n")[0])


def test_a_client_that_reads_no_more_of_its_stream_is_cut_off(service):
    body = json.dumps({"inputs": ["a b"], **endless(200_000)}).encode()
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        own.connect(("127.0.0.1", service.port))
        own.sendall(head("language-modelling", "stream", len(body)) + body)
        assert b"200" in own.recv(16)
        service.wait_until(lambda: gauge(service, "heedful_queued_tokens", "language-modelling") == 0, 20)
        assert service.predictions("language-modelling", ["a b"], max_new_tokens=2)


def test_a_stream_ends_at_its_deadline_with_an_event(service):
    body = {"inputs": ["a b"], **endless(200_000)}
    begun = time.monotonic()
    status, data = service.request("POST", "/v1/runs/language-modelling/stream", body)
    assert status == 200
    assert 5 < time.monotonic() - begun < 30
    kind, text = data.decode().strip().split("\n\n")[-1].split("\n")
    assert kind == "event: error"
    assert json.loads(text.removeprefix("data: "))["status"] == 503


def test_a_plain_request_ends_at_its_deadline(service):
    body = {"inputs": ["a b"], **endless(200_000)}
    status, found = service.post("language-modelling", "predict", body)
    assert status == 503
    assert "time" in found["error"]["message"]
    assert gauge(service, "heedful_queued_tokens", "language-modelling") == 0


def test_headers_have_a_bound(service):
    line, sent = b"x-header: " + b"a" * 1000 + b"\r\n", 0
    with connected(service) as own:
        own.sendall(b"GET /v1/runs HTTP/1.1\r\nhost: localhost\r\n")
        try:
            while sent < 4 << 20:
                own.sendall(line)
                sent += len(line)
        except OSError:
            pass
        assert sent < 4 << 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"GET /v1/runs HTTP/1.1\r\nhost: local",
        pytest.param(head("translation", "predict", 100) + b"{", marks=pytest.mark.full),
    ],
)
def test_who_sends_nothing_more_is_cut_off(service, beginning):
    """Headers have ten seconds, bodies thirty."""
    with connected(service) as own:
        own.sendall(beginning)
        answer = own.recv(4096)
        assert answer == b"" or b"408" in answer.split(b"\r\n")[0]


def test_pages_of_other_sites_are_refused(service):
    for origin, expected in (
        (f"http://127.0.0.1:{service.port}", 200),
        ("http://127.0.0.1:1", 403),
        ("https://evil.example", 403),
        ("null", 403),
    ):
        headers = {"origin": origin}
        status, _ = service.post("translation", "predict", {"inputs": ["a b"]}, headers=headers)
        assert status == expected, origin


def test_no_address_redirects(service):
    """A redirect would name the address behind a proxy, and lose its scheme."""
    for path in ("/v1/runs/translation/predict/", "/v1/runs/", "/health/", "/page"):
        for method in ("GET", "POST"):
            assert service.request(method, path, b"{}" if method == "POST" else None)[0] in (404, 405)


def form(parts, boundary="xyz"):
    lines = []
    for name, value, file in parts:
        more = f'; filename="{file}"' if file else ""
        lines.append(f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"{more}\r\n\r\n'.encode())
        lines.append(value if isinstance(value, bytes) else value.encode())
        lines.append(b"\r\n")
    return b"".join(lines) + f"--{boundary}--\r\n".encode()


FORM = {"content-type": "multipart/form-data; boundary=xyz"}


def test_a_form_is_the_same_as_json(service, runs):
    images = [path.read_bytes() for path in sorted(runs["image-classification"].parent.glob("*.png"))]
    expected = service.predictions(
        "image-classification", [base64.b64encode(image).decode() for image in images], n_best=2
    )
    parts = [("image", image, "a.png") for image in images] + [("options", '{"n_best": 2}', None)]
    status, found = service.post("image-classification", "predict", form(parts), headers=FORM)
    assert (status, found) == (200, {"predictions": expected})
    texts = form([("source", "a b", None), ("source", "c ä", None)])
    status, found = service.post("translation", "predict", texts, headers=FORM)
    plain = service.predictions("translation", [{"source": "a b"}, {"source": "c ä"}])
    assert (status, found) == (200, {"predictions": plain})


@pytest.mark.parametrize(
    "parts",
    [
        [("image", "text", None)],
        [("other", b"", "a.png")],
        [("options", "[1]", None)],
        [("options", "{", None), ("image", b"", "a.png")],
        [],
        [("image", b"no image", "../../etc/passwd")],
    ],
)
def test_invalid_forms_are_refused(service, parts):
    status, found = service.post("image-classification", "predict", form(parts), headers=FORM)
    if status == 200:
        (prediction,) = found["predictions"]
        assert "error" in prediction
    else:
        assert status == 422, found
    for headers in (
        FORM,
        {"content-type": "multipart/form-data"},
        {"content-type": "multipart/form-data; boundary="},
    ):
        status, _ = service.post("image-classification", "predict", b"nothing of this kind", headers=headers)
        assert status == 422


def test_batches_are_counted(service):
    with ThreadPoolExecutor(8) as pool:
        bodies = [["a b c"]] * 24
        assert len([*pool.map(lambda inputs: service.predictions("translation", inputs), bodies)]) == 24
    text = service.get("/metrics")[1].decode()
    count = float(text.split('heedful_batch_rows_count{run="translation"} ')[1].split("\n")[0])
    total = float(text.split('heedful_batch_rows_sum{run="translation"} ')[1].split("\n")[0])
    assert 1 <= count <= total
    assert gauge(service, "heedful_cache_bytes", "translation") == 0
    written = float(text.split('heedful_tokens_total{kind="written"} ')[1].split("\n")[0])
    assert written > 0


def engines_of(service):
    return {run["name"]: run["engines"] for run in json.loads(service.get("/v1/runs")[1])["runs"]}


@pytest.mark.slow
def test_engines_move_to_the_run_whose_requests_wait(runs):
    both = {kind: runs[kind] for kind in ("translation", "language-modelling")}
    with another(both, "--workers", "3") as service:
        assert engines_of(service) == {"translation": 2, "language-modelling": 1}
        end, lost = time.monotonic() + 60, []

        def ask(_):
            while time.monotonic() < end and engines_of(service)["language-modelling"] == 1:
                status, found = service.post(
                    "language-modelling", "predict", {"inputs": ["a b"] * 4, **endless(2000)}
                )
                if status not in (200, 429):
                    lost.append(found)

        with ThreadPoolExecutor(8) as pool:
            [*pool.map(ask, range(8))]
        assert engines_of(service) == {"translation": 1, "language-modelling": 2}
        assert not lost
        service.wait_until(lambda: len(service.engines()) == 3)
        assert service.predictions("translation", ["a b"])
