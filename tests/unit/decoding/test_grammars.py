"""Outputs that match a grammar, against the regular expressions of Python and a validator of schemas."""

import itertools
import json
import re
import sys

import numpy as np
import pytest

from heedful.decoding.beam import BeamConfig
from heedful.decoding.config import decode
from heedful.decoding.grammars import GrammarConstraint, regex_grammar, schema_grammar
from heedful.decoding.greedy import GreedyConfig
from heedful.decoding.sampling import SampleConfig
from heedful.decoding.spelling import Spelling
from heedful.errors import RequestError

LETTERS = [b"", b"a", b"b", b" a", b"ab", b"ba", b"\xc3", b"\xa9", b""]
"""Pieces of a toy model; the last is its end token."""
END = len(LETTERS) - 1
PATTERNS = ["a+b", "(ab|ba)*", "é", "[ab]{3}", " ?a{2,4}", "a(b a)*", "(a|é)b*", ""]


def constraint_of(pattern, space=b""):
    return GrammarConstraint(Spelling(LETTERS, space), END, regex_grammar(pattern), "regex")


def text_of(ids, space=b""):
    return b"".join(LETTERS[i] for i in ids).removeprefix(space)


@pytest.mark.parametrize("space", [b"", b" "])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_tokens_are_allowed_that_can_lead_to_a_match(pattern, space):
    """Up to three tokens: those are allowed after which some bytes complete a match."""
    constraint, most = constraint_of(pattern, space), 3
    sequences = [ids for n in range(most + 1) for ids in itertools.product(range(1, END), repeat=n)]
    alphabet = [b"a", b"b", b" ", b"\xc3", b"\xa9"]
    texts = [b"".join(parts) for n in range(9) for parts in itertools.product(alphabet, repeat=n)][:60000]
    matched = [text for text in texts if re.fullmatch(pattern.encode(), text)]
    begun = {text[:n] for text in matched for n in range(len(text) + 1)}
    for ids in sequences:
        text = text_of(ids, space)
        if text in begun:
            state = constraint.start()
            for token in ids:
                state = constraint.advance(state, token)
            assert constraint.is_met(state) == (text in matched)
            blocked = np.zeros(len(LETTERS), bool)
            constraint.block(state, blocked)
            allowed = {*range(1, END)} - {*np.flatnonzero(blocked).tolist()}
            found = {token for token in range(1, END) if text_of([*ids, token], space) in begun}
            assert found <= allowed
            if len(text) < 5:
                assert allowed == found


CONFIGS = [GreedyConfig(), BeamConfig(beam=3, n_best=3), SampleConfig(n=3, seed=4)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_finished_outputs_match(toy, config, pattern):
    model, n_finished = toy(len(LETTERS), 3, bias=1.0), 0
    own = [constraint_of(pattern)]
    request = model.request([0, 1, 2], [9, 4, 12], forbidden=[0], constraints=[own] * 3)
    for hypothesis in itertools.chain(*decode(config, request)):
        is_match = re.fullmatch(pattern.encode(), text_of(hypothesis.ids)) is not None
        assert is_match == (not hypothesis.violated)
        assert hypothesis.finished <= is_match
        assert hypothesis.violated in ((), ("regex",))
        n_finished += hypothesis.finished
    assert n_finished


def test_a_text_is_matched_as_a_whole():
    constraint = constraint_of("(ab)+é?")
    assert [constraint.matches(text) for text in ("ab", "ababé", "aba", "", "abé ", "\ud800")] == [
        True, True, False, False, False, False
    ]  # fmt: skip


def test_a_schema():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    constraint = GrammarConstraint(Spelling(LETTERS), END, schema_grammar(schema), "json_schema")
    for text, expected in (({"n": 3}, True), ({"n": "3"}, False), ({}, False), ([], False)):
        assert constraint.matches(json.dumps(text)) == expected


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: constraint_of("(a"), r"regex: .*unclosed group"),
        (
            lambda: GrammarConstraint(Spelling(LETTERS), END, schema_grammar({"type": "x"}), "json_schema"),
            "json_schema: .*Invalid type: x",
        ),
    ],
)
def test_an_invalid_grammar_is_refused(make, message):
    with pytest.raises(RequestError, match=message):
        make()


def test_without_the_library_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(RequestError, match=r"regex: requires .*: pip install 'heedful\[constraints\]'"):
        regex_grammar("a")
