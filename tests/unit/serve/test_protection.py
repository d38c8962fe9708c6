import asyncio
import json

import pytest

from heedful.serve.protection import HEADERS, LOOPBACK, Keys, Protection, host_of

KEYS = ["a-key-that-is-long-enough", "another-one-of-the-keys-ü".replace("ü", "u")]


def response_of(path="/v1/runs", hosts=(), keys=(), **headers):
    """The status, headers and body with which a request is answered; 200 stands for the application."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def send(message):
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "headers": raw}
    asyncio.run(Protection(app, hosts, Keys(keys))(scope, None, send))
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"])


@pytest.mark.parametrize("header", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "[::1]"])
def test_own_names_pass(header):
    assert response_of(hosts=LOOPBACK, host=header)[0] == 200


@pytest.mark.parametrize(
    "header", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::2]:80"]
)
def test_foreign_names_are_refused(header):
    status, _, body = response_of(hosts=LOOPBACK, host=header)
    assert status == 421
    assert "evil" not in json.dumps(body)


@pytest.mark.parametrize(
    ("header", "name"), [("a:80", "a"), ("[::1]:80", "::1"), ("::1", "::1"), (" A ", "a"), ("", "")]
)
def test_names_of_hosts(header, name):
    assert host_of(header) == name


def test_keys():
    assert response_of(keys=KEYS)[0] == 401
    assert response_of(keys=KEYS)[1][b"www-authenticate"] == b"Bearer"
    for key in KEYS:
        assert response_of(keys=KEYS, authorization=f"Bearer {key}")[0] == 200
        assert response_of(keys=KEYS, authorization=f"bearer  {key} ")[0] == 200
        for wrong in (
            key,
            f"Basic {key}",
            f"Bearer {key[:-1]}",
            f"Bearer {key}x",
            "Bearer",
            "Bearer ",
            key[::-1],
        ):
            assert response_of(keys=KEYS, authorization=wrong)[0] == 401, wrong


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready"])
def test_probes_need_no_key(path):
    assert response_of(path, keys=KEYS)[0] == 200
    assert response_of(f"{path}/../../v1/runs", keys=KEYS)[0] == 401


@pytest.mark.parametrize("keys", [(), KEYS])
def test_all_responses_have_the_headers(keys):
    found = response_of(keys=keys)[1]
    assert {name: found[name] for name, _ in HEADERS} == dict(HEADERS)
