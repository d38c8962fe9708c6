"""The package of OpenAI as a client: completions, streams, log-probabilities, embeddings."""

import json
import math

import numpy as np
import openai
import pytest
from services import another
from tiny_runs import make

from heedful.api.run import load

KINDS = ["language-modelling", "classification"]
GREEDY = {"kind": "greedy"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        make(kind, folder / kind)
    return {name: folder / kind / "finished" for name, kind in zip(("lm", "mood"), KINDS, strict=True)}


@pytest.fixture(scope="module")
def service(runs, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("a-key-of-this-service\n", "utf-8")
    with another(runs, "--api-key-file", str(keys)) as running:
        yield running


@pytest.fixture(scope="module")
def client(service):
    base = f"http://127.0.0.1:{service.port}/v1"
    with openai.OpenAI(base_url=base, api_key="a-key-of-this-service", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def writer(runs):
    return load(runs["lm"])


def test_the_runs_are_models(client):
    assert [model.id for model in client.models.list()] == ["lm", "mood"]
    assert client.models.retrieve("mood").id == "mood"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no such")


def test_the_description_says_that_keys_are_needed(service):
    headers = {"authorization": "Bearer a-key-of-this-service"}
    status, data = service.request("GET", "/openapi.json", headers=headers)
    described = json.loads(data)
    assert status == 200
    (name,) = described["security"][0]
    assert described["components"]["securitySchemes"][name] == {"type": "http", "scheme": "bearer"}


def test_a_wrong_key_is_an_authentication_error(service):
    base = f"http://127.0.0.1:{service.port}/v1"
    with (
        openai.OpenAI(base_url=base, api_key="another", max_retries=0) as other,
        pytest.raises(openai.AuthenticationError),
    ):
        other.models.list()


def test_completions_are_predictions(client, writer):
    prompts = ["a b", "c c a", "b"]
    found = client.completions.create(model="lm", prompt=prompts, max_tokens=7, temperature=0)
    expected = writer.predict(prompts, max_new_tokens=7, decoding=GREEDY)
    assert [choice.text for choice in found.choices] == [each.text for each in expected]
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    reasons = ["stop" if each.finished else "length" for each in expected]
    assert [choice.finish_reason for choice in found.choices] == reasons
    tokenizer = writer.task.processor.text
    assert found.usage.prompt_tokens == sum(map(len, tokenizer.encode_batch(prompts)))
    assert found.usage.completion_tokens == sum(len(each.tokens) for each in expected)
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_a_seed_gives_the_same_text_and_none_gives_others(client, writer):
    arguments = {"model": "lm", "prompt": "a b", "max_tokens": 30, "temperature": 1.0, "top_p": 0.9}
    texts = [client.completions.create(**arguments, seed=5).choices[0].text for _ in range(2)]
    decoding = {"kind": "sample", "temperature": 1.0, "top_p": 0.9, "seed": 5}
    (expected,) = writer.predict(["a b"], max_new_tokens=30, decoding=decoding)
    assert texts == [expected.text] * 2
    others = {client.completions.create(**arguments).choices[0].text for _ in range(8)}
    assert len(others) > 1


def test_a_stop_ends_the_text(client):
    plain = {"model": "lm", "prompt": "a b", "max_tokens": 30, "temperature": 0}
    text = client.completions.create(**plain).choices[0].text
    stop = text.strip()[2]
    for given in (stop, [stop, "no such"]):
        found = client.completions.create(**plain, stop=given).choices[0]
        assert found.text == text.split(stop)[0]
        assert found.finish_reason == "stop"


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("n_candidates", [0, 3])
@pytest.mark.parametrize("max_tokens", [0, 6])
def test_log_probabilities(client, writer, echo, n_candidates, max_tokens):
    found = client.completions.create(
        model="lm", prompt="a b", max_tokens=max_tokens, temperature=0, echo=echo, logprobs=n_candidates
    ).choices[0]
    own = found.logprobs
    assert "".join(own.tokens) == found.text
    assert own.text_offset == [sum(map(len, own.tokens[:i])) for i in range(len(own.tokens))]
    prediction = writer.predict(["a b"], max_new_tokens=6, decoding=GREEDY)[0]
    expected = prediction.log_probs[: len(prediction.tokens)] if max_tokens else []
    if echo:
        (scored,) = writer.score(["a b"])
        expected = [*scored.log_probs[:-1], *expected]
    np.testing.assert_allclose(own.token_logprobs, expected, atol=1e-5)
    if not n_candidates or not own.tokens:
        assert own.top_logprobs is None
        return
    for token, log_prob, top in zip(own.tokens, own.token_logprobs, own.top_logprobs, strict=True):
        assert len(top) <= n_candidates
        assert sum(map(math.exp, top.values())) < 1 + 1e-5
        best = max(top.values())
        assert log_prob <= best + 1e-5
        if not echo:  # greedy: each token is the most probable one
            assert top[token] == pytest.approx(best, abs=1e-5)


def test_log_probabilities_of_a_whole_text_are_its_score(client, writer):
    text = "a b c c a"
    found = client.completions.create(model="lm", prompt=text, max_tokens=0, echo=True, logprobs=1).choices[0]
    (scored,) = writer.score([text])
    assert found.text == text
    np.testing.assert_allclose(found.logprobs.token_logprobs, scored.log_probs[:-1], atol=1e-5)


def test_log_probabilities_fit_the_context(client, writer):
    context = writer.recipe.model.context
    arguments = {"model": "lm", "max_tokens": 0, "echo": True, "logprobs": 0}
    n_tokens = len(writer.task.processor.text.encode("a " * 10)) / 10
    longest = "a " * int((context - 1) / n_tokens)
    assert client.completions.create(prompt=longest, **arguments).choices[0].text == longest
    with pytest.raises(openai.BadRequestError, match="the context"):
        client.completions.create(prompt=longest + "a " * 3, **arguments)


def test_a_stream_has_the_same_text(client):
    arguments = {"model": "lm", "prompt": "a b", "max_tokens": 20, "temperature": 0.7, "seed": 11}
    expected = client.completions.create(**arguments)
    chunks = [*client.completions.create(**arguments, stream=True, stream_options={"include_usage": True})]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == expected.choices[0].text
    assert len({chunk.id for chunk in chunks}) == 1
    *pieces, last, usage = chunks
    assert {chunk.choices[0].finish_reason for chunk in pieces} <= {None}
    assert last.choices[0].finish_reason == expected.choices[0].finish_reason
    assert usage.usage == expected.usage
    echoed = [*client.completions.create(**arguments, stream=True, echo=True)]
    assert echoed[0].choices[0].text == "a b"
    assert all(chunk.usage is None for chunk in echoed)


LONG = "a b c " * 200


def test_what_was_cut_is_noted(client, writer):
    """In every form; OpenAI's own service refuses prompts that exceed the context, this one cuts them."""
    (expected,) = writer.predict([LONG], max_new_tokens=3, decoding=GREEDY)
    assert "were read" in expected.notes[0]
    settings = {"model": "lm", "max_tokens": 3, "temperature": 0}
    whole = client.completions.create(**settings, prompt=["a", LONG])
    assert not any("were read" in note for note in getattr(whole.choices[0], "notes", ()))
    assert whole.choices[1].notes == [*expected.notes]
    *_, last = client.completions.create(**settings, prompt=LONG, stream=True)
    assert last.choices[0].notes == [*expected.notes]
    short, long = client.embeddings.create(model="mood", input=["a", LONG]).data
    assert not hasattr(short, "notes")
    assert long.notes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 2}, "n: not supported"),
        ({"best_of": 3}, "best_of: not supported"),
        ({"suffix": "x"}, "suffix: not supported"),
        ({"logit_bias": {"5": 1}}, "logit_bias: not supported"),
        ({"presence_penalty": 0.5}, "presence_penalty: not supported"),
        ({"extra_body": {"top_k": 3}}, "top_k: not supported"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"logprobs": 9}, "logprobs"),
        ({"temperature": 3}, "temperature"),
        ({"stream": True, "logprobs": 1}, "logprobs: not supported in a stream"),
        ({"stream": True, "prompt": ["a", "b"]}, "one prompt"),
        ({"max_tokens": 10**9}, "tokens"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(client, arguments, words):
    with pytest.raises(openai.APIStatusError, match=words) as refused:
        client.completions.create(**{"model": "lm", "prompt": "a", "max_tokens": 3, **arguments})
    assert refused.value.status_code in (400, 413)


def test_values_that_change_nothing_are_accepted(client):
    arguments = {"n": 1, "best_of": 1, "presence_penalty": 0, "logit_bias": {}, "user": "somebody"}
    assert client.completions.create(model="lm", prompt="a", max_tokens=2, **arguments).choices


def test_other_runs_and_conversations_are_404_with_the_reason(client):
    with pytest.raises(openai.NotFoundError, match="/v1/runs/mood/predict"):
        client.completions.create(model="mood", prompt="a")
    with pytest.raises(openai.NotFoundError, match="no run of this name"):
        client.completions.create(model="no such", prompt="a")
    with pytest.raises(openai.NotFoundError, match="not trained on conversations"):
        client.chat.completions.create(model="lm", messages=[{"role": "user", "content": "hello"}])


@pytest.mark.parametrize("name", ["mood", "lm"])
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_are_vectors(client, runs, name, encoding):
    """The client asks for base64 if nothing is said, and decodes it itself."""
    texts = ["a b", "c", "a a b"]
    chosen = {} if encoding == "base64" else {"encoding_format": "float"}
    found = client.embeddings.create(model=name, input=texts, **chosen)
    expected = load(runs[name]).embed(texts)
    np.testing.assert_allclose([each.embedding for each in found.data], expected, atol=1e-5)
    assert [each.index for each in found.data] == [0, 1, 2]
    assert found.usage.total_tokens >= 3
    with pytest.raises(openai.BadRequestError, match="dimensions: not supported"):
        client.embeddings.create(model=name, input=texts, dimensions=2)


def test_no_text_is_in_the_log(service, client):
    client.completions.create(model="lm", prompt="Xq7Planted", max_tokens=2)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="Xq7Planted", prompt="a")
    client.models.list()
    logged = [json.loads(line) for line in service.lines if line.startswith("{")]
    assert {"complete", "stream", "embed"} <= {line["verb"] for line in logged}
    assert not [line for line in service.lines if "Xq7Planted" in line]
