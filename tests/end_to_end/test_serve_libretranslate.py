"""LibreTranslate's package as a client, and what others send: forms, JSON, lists, alternatives."""

import json
from urllib.error import HTTPError
from urllib.parse import urlencode

import libretranslatepy
import pytest
from services import another
from tiny_runs import make

from heedful.api.run import load

KEY = "a-key-of-this-service"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "translation"
    make("translation", folder)
    return folder / "finished"


@pytest.fixture(scope="module")
def service(run):
    given = {"mt": f"{run}=en:ta", "other": f"{run}=de:ta", "third": f"{run}=de:pt-BR", "none": run}
    with another(given) as running:
        yield running


@pytest.fixture(scope="module")
def texts(run):
    return [prediction.text for prediction in load(run).predict(["a b c", "c ä & b"])]


def client_of(service, **options):
    return libretranslatepy.LibreTranslateAPI(f"http://127.0.0.1:{service.port}/", **options)


def refusal_of(call, *arguments):
    with pytest.raises(HTTPError) as refused:
        call(*arguments)
    with refused.value as error:
        return error.code, json.loads(error.read())["error"]


def translated(service, body, headers=()):
    payload = urlencode(body, doseq=True).encode() if headers == FORM else json.dumps(body).encode()
    status, data = service.request("POST", "/translate", payload, headers)
    found = json.loads(data)
    found.pop("notes", None)
    return status, found


def test_its_package_translates(service, texts):
    client = client_of(service)
    assert client.translate("a b c", "en", "ta") == texts[0]
    assert client.translate("c ä & b", "de", "ta") == texts[1]
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["ta"]},
        {"code": "de", "name": "German", "targets": ["ta", "pt-BR"]},
    ]
    status, message = refusal_of(client.detect, "a b")
    assert status == 404
    assert "detects languages" in message


@pytest.mark.parametrize("headers", [(), FORM])
def test_texts_and_lists_in_json_and_forms(service, texts, headers):
    one = {"q": "a b c", "source": "en", "target": "ta", "format": "text"}
    assert translated(service, one, headers) == (200, {"translatedText": texts[0]})
    several = {**one, "q": ["a b c", "c ä & b"]}
    assert translated(service, several, headers) == (200, {"translatedText": texts})


@pytest.mark.parametrize("headers", [(), FORM])
def test_alternatives_are_the_n_best(service, run, headers):
    (expected,) = load(run).predict(["a b c"], n_best=3)
    body = {"q": "a b c", "source": "en", "target": "ta", "alternatives": 2}
    assert translated(service, body, headers) == (
        200,
        {"translatedText": expected.text, "alternatives": [each.text for each in expected.alternatives]},
    )


def test_an_unknown_source_is_the_only_one_there_is(service, texts):
    body = {"q": "a b c", "source": "auto", "target": "pt-BR"}
    detected = {"confidence": 0, "language": "de"}
    assert translated(service, body) == (200, {"translatedText": texts[0], "detectedLanguage": detected})
    status, found = translated(service, {**body, "target": "ta"})
    assert status == 400
    assert "detects languages" in found["error"]


@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        ({"target": "fr"}, 400, "de:pt-BR, de:ta, en:ta"),
        ({"format": "html"}, 400, "only text"),
        ({"q": None}, 422, "q"),
        ({"q": []}, 422, "q"),
        ({"q": [3]}, 422, "q"),
        ({"alternatives": 100_000}, 413, "tokens"),
        ({"alternatives": -1}, 422, "alternatives"),
        ({"beam": 3}, 422, "beam: not supported"),
    ],
)
def test_what_cannot_be_done_is_refused(service, changes, expected, words):
    body = {"q": "a b", "source": "en", "target": "ta", **changes}
    status, found = translated(service, body)
    assert (status, words in found["error"]) == (expected, True), found


def test_strange_forms_are_refused(service):
    for payload in (b"", b"q=%ff&source=en&target=ta", b"q=a&" * 5000, b"\xff", b"source=en&target=ta"):
        status, data = service.request("POST", "/translate", payload, FORM)
        assert status == 422, payload[:20]
        assert json.loads(data)["error"]


def test_its_key_is_in_the_body(run, tmp_path, texts):
    (tmp_path / "keys").write_text(f"{KEY}\n", "utf-8")
    with another({"mt": f"{run}=en:ta"}, "--api-key-file", str(tmp_path / "keys")) as service:
        assert client_of(service, api_key=KEY).translate("a b c", "en", "ta") == texts[0]
        assert client_of(service, api_key=KEY).languages()[0]["code"] == "en"
        for wrong in ({}, {"api_key": KEY[:-1]}, {"api_key": ""}):
            assert refusal_of(client_of(service, **wrong).translate, "a b c", "en", "ta")[0] == 403
        body = {"q": "a b c", "source": "en", "target": "ta"}
        headers = {"authorization": f"Bearer {KEY}"}
        assert translated(service, body, headers) == (200, {"translatedText": texts[0]})
        assert not [line for line in service.lines if KEY in line]


def test_languages_of_a_recipe(tmp_path):
    make("translation", tmp_path / "runs", languages={"source": "en", "target": "de"})
    with another({"mt": tmp_path / "runs/finished"}) as service:
        languages = [{"code": "en", "name": "English", "targets": ["de"]}]
        assert client_of(service).languages() == languages


@pytest.mark.parametrize("headers", [(), FORM])
def test_each_line_is_translated_and_the_breaks_stay(service, texts, headers):
    body = {"q": "\na b c\r\n\r\nc ä & b\n \t\na b c", "source": "en", "target": "ta"}
    expected = f"\n{texts[0]}\r\n\r\n{texts[1]}\n \t\n{texts[0]}"
    assert translated(service, body, headers) == (200, {"translatedText": expected})
    several = {**body, "q": ["a b c\nc ä & b", "\n", "c ä & b"]}
    expected = [f"{texts[0]}\n{texts[1]}", "\n", texts[1]]
    assert translated(service, several, headers) == (200, {"translatedText": expected})


def test_alternatives_of_lines_are_joined_by_rank(service, run):
    found = load(run).predict(["a b c", "b"], n_best=3)
    ranked = [[each.text, *(other.text for other in each.alternatives)] for each in found]
    body = {"q": "a b c\n\nb", "source": "en", "target": "ta", "alternatives": 2}
    status, answer = translated(service, body)
    assert status == 200
    assert answer["translatedText"] == "\n\n".join(own[0] for own in ranked)
    n = max(map(len, ranked))
    assert answer["alternatives"] == [
        "\n\n".join(own[i] if i < len(own) else own[0] for own in ranked) for i in range(1, n)
    ]


def test_a_text_may_have_more_lines_than_a_request_has_inputs(service, texts):
    body = {"q": "a b c\n" * 300, "source": "en", "target": "ta"}
    assert translated(service, body) == (200, {"translatedText": f"{texts[0]}\n" * 300})
    for text in ("a\n" * 5000, ["a"] * 5000, "\r" * 2_000_000):
        status, found = translated(service, {**body, "q": text})
        assert (status, "4,096 lines" in found["error"]) == (413, True), found


def test_a_line_that_cannot_be_translated_is_an_error(service):
    body = {"q": ["a", f"b\n{'a' * 1_100_000}"], "source": "en", "target": "ta"}
    status, found = translated(service, body)
    assert status in (413, 422)
    assert found["error"]


def test_what_is_unusual_is_noted(service, run):
    """A text, or one of several, whose output was cut, or that has unknown words."""
    strange = "a \u1234 b"
    (expected,) = load(run).predict([strange])
    assert expected.notes
    for q, notes in (
        (f"a\n{strange}", lambda found: found["notes"]),
        (["a", strange], lambda found: found["notes"][1]),
    ):
        body = {"q": q, "source": "en", "target": "ta"}
        status, data = service.request("POST", "/translate", json.dumps(body).encode())
        found = notes(json.loads(data))
        assert status == 200
        assert set(expected.notes) <= {*found}
        assert len(found) == len({*found})


def test_json_that_calls_itself_a_form_is_read(service, texts):
    """As ``curl -d '{…}'`` sends it."""
    payload = json.dumps({"q": "a b c", "source": "en", "target": "ta"}).encode()
    status, data = service.request("POST", "/translate", payload, FORM)
    assert (status, json.loads(data)["translatedText"]) == (200, texts[0])
