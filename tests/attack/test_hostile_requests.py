"""What strangers send to a service: no request makes it fail, leave it waiting, or remember it."""

import base64
import io
import json
import os
import zlib
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from services import another
from tiny_runs import make

load_all_checks()
KINDS = ["translation", "classification", "language-modelling", "image-classification"]
VERBS = ["predict", "score", "embed", "explain", "stream"]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        make(kind, folder / kind)
    with another({kind: folder / kind / "finished" for kind in KINDS}) as running:
        yield running


def described(service):
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{service.port}/openapi.json")


def test_requests_of_its_own_description(service, amount):
    """Valid and invalid requests, made by schemathesis from ``/openapi.json``."""
    names = st.sampled_from([*KINDS, "no such run"])
    for found in described(service).get_all_operations():
        operation = found.ok()
        n = amount(20, 2000) if "{name}" in operation.path else 5

        @given(case=operation.as_strategy(), name=names)
        @settings(
            max_examples=n,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[*HealthCheck],
        )
        def asked(case, name):
            if case.path_parameters:
                case.path_parameters["name"] = name
            case.call_and_validate(checks=CHECKS, timeout=60)

        asked()


# By hand ----------------------------------------------------------------------------------------------------

SECRET = "Zq7PlantedSecret"


def bomb(width, height):
    """A PNG of a few bytes that says it is very large."""
    own = io.BytesIO()
    Image.new("1", (8, 8)).save(own, "PNG")
    data = bytearray(own.getvalue())
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return base64.b64encode(data).decode()


def large_image(side):
    own = io.BytesIO()
    Image.new("L", (side, side)).save(own, "PNG", compress_level=9)
    return base64.b64encode(own.getvalue()).decode()


TEXTS = [
    "",
    " ",
    "\x00",
    "\ufeff",
    "\u202e" * 50,
    "a\u0301" * 500,
    "\ud7ff\uffff",
    "🏳️‍🌈" * 100,
    "<s></s><pad>",
    "a" * 50_000,
    "a " * 3000,
    "../../etc/passwd",
    "file:///etc/passwd",
    "http://127.0.0.1:1/",
    "%s%n{0}{{",
    "</script><script>alert(1)</script>",
    "\n\r\n event: end\ndata: {}\n\n",
    SECRET,
]
VALUES = [
    *TEXTS,
    None,
    True,
    -1,
    0,
    1,
    2.5,
    10**30,
    1e308,
    [],
    {},
    [[]],
    [["a", "b"], ["c"]],
    {"text": "a"},
    {"source": "a b"},
    {"prompt": "a"},
    {"text": {"text": "a"}},
    {"source": ["a"], "id": {"x": [None]}},
    {"image": "a"},
    {"image": bomb(100_000, 100_000)},
    {"image": bomb(1, 2**31 - 1)},
    {"image": large_image(3000)},
    {"image": "data:image/png;base64,AAAA"},
    {"image": "/etc/passwd"},
]
OPTIONS = [
    "beam",
    "n_best",
    "decoding",
    "alignment",
    "attention",
    "threshold",
    "otherwise",
    "max_new_tokens",
    "stop",
    "prefix",
    "regex",
    "json_schema",
    "gap",
    "words",
    "must",
    "must_not",
    "target_prefix",
    "terminology",
    "pooling",
    "layer",
    "views",
    "layers",
    "heads",
    "kinds",
    "target",
    "alternative",
    "no such option",
    "__class__",
]
RAW = [
    b"",
    b"null",
    b"[]",
    b'"a"',
    b"{",
    b'{"inputs": [NaN]}',
    b'{"inputs": ["a"], "threshold": NaN}',
    b'{"inputs": ["a"], "beam": Infinity}',
    b'{"inputs": ["a"], "beam": 1e999}',
    b'{"inputs": ["\\ud800"]}',
    b'{"inputs": ["\\udfff\\ud800"], "prefix": "\\ud800"}',
    b'{"inputs": ["\xff\xfe"]}',
    b'\xef\xbb\xbf{"inputs": ["a"]}',
    b'{"inputs": ["a"], "inputs": ["b"]}',
    b'{"inputs": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    b'{"inputs": [' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]}",
    b'{"inputs": ["a"], "decoding": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"inputs": ["' + b"a" * (1 << 20) + b'"]}',
    b'{"inputs": [' + b'"a",' * 300_000 + b'"a"]}',
    b'{"inputs": ["a"], "beam": ' + b"9" * 100_000 + b"}",
    b"\x00" * 1000,
    b'{"inputs": ["a"]}' + b" " * (5 << 20),
]
NAMES = [
    "",
    ".",
    "..",
    "../translation",
    "%2e%2e",
    "translation%00",
    "translation/",
    "%c3%a9",
    "%ff",
    "a" * 5000,
    "*",
]


@pytest.fixture
def harmless(service):
    """Send a request; it is answered, and is not the fault of the service."""

    def send(method, path, body=None, headers=()):
        status, data = service.request(method, path, body, headers)
        assert status < 500 or status == 503, (method, path, str(body)[:300], data[:300])
        if status != 200:
            assert data == b"" or SECRET.encode() not in data.replace(b"\\u", b""), data
        return status

    return send


def test_raw_bodies(service, harmless):
    for body in RAW:
        for kind, verb in (("translation", "predict"), ("language-modelling", "stream")):
            status = harmless("POST", f"/v1/runs/{kind}/{verb}", body)
            assert status in (200, 413, 422), (status, body[:80])


def test_names_and_methods(service, harmless):
    for name in NAMES:
        for verb in ("predict", "stream", "", "../../health", "no such"):
            path = f"/v1/runs/{name}/{verb}".replace(" ", "%20")
            assert harmless("POST", path, b'{"inputs": ["a"]}') in (400, 404, 405, 307)
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"):
        assert harmless(method, "/v1/runs/translation/predict") == 405


def test_any_value_anywhere(service, harmless, draw, amount):
    """Random inputs and options, of any type, for every verb of every run."""
    for _ in range(amount(250, 20_000)):
        kind, verb = draw.choice(KINDS), draw.choice(VERBS)
        inputs = draw.choices(VALUES, k=draw.choice([1, 1, 1, 2, 5]))
        body = {"inputs": draw.choice([inputs, inputs, inputs, draw.choice(VALUES)])}
        for name in draw.sample(OPTIONS, draw.choice([0, 0, 1, 2])):
            body[name] = draw.choice([*VALUES, "greedy", {"kind": draw.choice(["greedy", "beam", "x"])}])
        headers = {"accept": draw.choice(["*/*", "text/html"])}
        payload = json.dumps(body).encode()
        assert harmless("POST", f"/v1/runs/{kind}/{verb}", payload, headers) in (200, 413, 422, 429, 503)
    for kind in KINDS[:3]:
        assert service.predictions(kind, ["a b"])[0]["output"] is not None


def resident(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_memory_does_not_grow_with_requests(service, amount):
    processes = [service.process.pid, *service.engines()]

    def ask(n):
        for number in range(n):
            service.predictions("translation", [f"a b {number}", "c"], beam=1)
            service.predictions("classification", [f"a {number}"])
        return sum(map(resident, processes))

    before = ask(200)
    assert ask(amount(500, 50_000)) - before < 50 << 20


def test_nothing_that_was_sent_is_in_logs_or_metrics(service):
    assert service.predictions("translation", [SECRET])
    status, _ = service.post("translation", "predict", {"inputs": ["a"], SECRET: SECRET})
    assert status == 422
    service.request("POST", f"/v1/runs/{SECRET}/predict", {"inputs": ["a"]})
    assert SECRET.encode() not in service.get("/metrics")[1]
    assert not [line for line in service.lines if SECRET in line]
