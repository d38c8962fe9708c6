"""A law: messages of the service name fields of requests, not options of the command.

Requests of every task, verb and option are provoked to be refused. No message has `` --``, and inputs are
counted as in JSON: ``inputs[1]`` is the second one. The only exception is what somebody else can do: status
421, of a request to another host, names ``--allowed-host`` of `heedful serve` (`heedful.serve.protection`).
"""

import json
import re

import pytest
from tiny_runs import TASKS, make

from heedful.api.run import load
from heedful.errors import HeedfulError
from heedful.explain.views import VIEWS
from heedful.serve.admission import RefusedError
from heedful.serve.answering import Answering, Body
from heedful.serve.bodies import BODIES
from heedful.serve.requests import parsed

VALUES = [
    *(0, 1, 2, 9, -1, 0.5, True, "zzz", "", "source", ["a b"], [["a"], None], [["", "a"]], [[[]]]),
    *({"kind": "sample"}, {"a": "b"}, [3]),
]
DECODINGS = [
    {"kind": "greedy"},
    {"kind": "greedy", "min_length": 999},
    {"kind": "beam", "beam": 3},
    {"kind": "beam", "beam": 1, "n_best": 2},
    {"kind": "diverse-beam", "beam": 4},
    {"kind": "mbr"},
    {"kind": "sample", "n": 3},
    {"kind": "sample", "temperature": -1},
    {"kind": "sample", "top_k": 2, "top_p": 0.1},
    {"beam": 2},
    {"kind": "beam", "max_length": {"cap": 0}},
]
SEVERAL = [
    {"must": ["a"], "decoding": {"kind": "greedy"}},
    {"must": ["a"], "must_not": ["a"], "beam": 2},
    {"n_best": 5, "beam": 2},
    {"n_best": 2, "decoding": {"kind": "greedy"}},
    {"beam": 2, "decoding": {"kind": "sample"}},
    {"target_prefix": "a", "regex": "b"},
    {"regex": "(", "json_schema": {}},
    {"json_schema": {"type": "no such"}},
    {"max_new_tokens": 2, "decoding": {"kind": "greedy", "min_length": 9}},
    {"alignment": True, "attention": True},
    {"target": "a", "alternative": 1},
    {"target": "", "views": ["losses"]},
    {"alternative": 1, "decoding": {"kind": "greedy"}},
    {"alternative": 9, "decoding": {"kind": "beam", "beam": 2}},
    {"alternative": 9},
    {"views": ["all"]},
    {"layers": [7]},
    {"heads": [7]},
    {"kinds": ["cross"]},
    {"kinds": []},
    *({"views": [name]} for name in VIEWS),
]
INPUTS = [
    ["a b"],
    ["a b", "b", "c"],
    [""],
    ["a b", {"zzz": 1}],
    [{"sourse": "a"}],
    [{"x": "a", "y": "b"}],
    ["a", ["b", "c", "d", "e"]],
    ["a", {"source": "b", "text": "b", "words": "b", "prompt": "b", "must": 5}],
    ["a", {"source": "b", "prompt": "b", "target_prefix": [1]}],
    ["a", {"source": "b", "text": "b", "words": ["b", 3], "prompt": "b"}],
    ["a " * 300],
]


@pytest.fixture(scope="module", params=TASKS)
def answering(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    make(request.param, folder)
    return Answering(load(folder / "finished", device="cpu"), "auto", lambda: ())


def messages_of(answering, verb, content):
    """The messages that a client may see of a request: errors, notes, and what a page says."""
    payload = json.dumps(content).encode()
    try:
        parsed(payload, verb)
        body = Body.parsed(payload)
        if verb == "explain":
            explanation = json.loads(answering.explanation(body, page=False))
            notes = explanation["answer"].get("notes", ())
            return [*explanation.get("unavailable", {}).values(), *notes, *said(answering, body)]
        if verb == "stream":
            found = [answering.stream(body, lambda piece: None)]
        else:
            (found,) = answering.answers(verb, [body])
    except (HeedfulError, RefusedError) as error:
        return [str(error)]
    return [text for each in found for text in (each.get("error", ""), *each.get("notes", ()))]


def said(answering, body):
    """The texts of the page of an explanation."""
    page = answering.explanation(body, page=True)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    drawings = json.loads(data[1])["more"]
    return [str(drawing.get(key, "")) for drawing in drawings for key in ("title", "note")]


def requests_of(verb):
    for name in ("beam", "n_best", *BODIES[verb].model_fields, "bem", "max_length", "tokens"):
        for value in VALUES if name not in ("inputs", "decoding") else ():
            yield {"inputs": ["a b"], name: value}
    for decoding in DECODINGS:
        yield {"inputs": ["a b"], "decoding": decoding}
    for options in SEVERAL:
        yield {"inputs": ["a b"], **options}
    for inputs in INPUTS if verb != "complete" else ():  # only of texts: prompts of OpenAI's clients
        yield {"inputs": inputs}


@pytest.mark.slow
def test_messages_name_fields_of_requests(answering):
    found = {
        (verb, message)
        for verb in BODIES
        for content in requests_of(verb)
        for message in messages_of(answering, verb, content)
    }
    assert len(found) > 40
    wrong = [each for each in found if re.search(r"(^|[\s(`])--\w|\binputs?:? ?\d", each[1])]
    assert not wrong
