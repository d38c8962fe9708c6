"""How many tokens a request has, and which are refused."""

from contextlib import suppress

import pytest

from heedful.decoding.protocol import MaxLength
from heedful.serve.admission import RefusedError
from heedful.serve.bodies import PredictBody
from heedful.serve.engines import Engines, ServedRun
from heedful.serve.metrics import Metrics
from heedful.serve.requests import SAMPLED, SHORTEST_SAMPLE, cost_of
from heedful.serve.service import Limits, served_run

BEAM = {"kind": "beam", "beam": 5, "max_length": {"ratio": 1.5, "extra": 7, "cap": None}}
TRANSLATOR = {"generates": True, "decoding": BEAM, "max_new_tokens": None, "cache_bytes": 1000}
WRITER = {"generates": True, "decoding": {"kind": "sample", "n": 1}, "max_new_tokens": 200}


@pytest.fixture
def served(tmp_path):
    """A run without a tokenizer: each text counts as one token."""

    def of(description, cache_memory=None):
        engines = Engines(ServedRun("run", str(tmp_path)), 1, 30.0)
        engines._lost_description = description
        engines.cache_memory = cache_memory
        return served_run(engines, Limits(), Metrics())

    return of


def cost(run, *inputs, verb="predict", **options):
    return cost_of(run, verb, PredictBody.model_construct(inputs=[*inputs], **options), Limits())


@pytest.mark.parametrize(
    ("options", "n_hypotheses", "longest"),
    [
        ({}, 5, MaxLength(ratio=1.5, extra=7)),
        ({"beam": 3}, 3, MaxLength(ratio=1.5, extra=7)),
        ({"beam": 2, "n_best": 4}, 4, MaxLength(ratio=1.5, extra=7)),
        ({"decoding": {"kind": "sample", "n": 6, "max_length": {"cap": 3}}}, 6, MaxLength(ratio=1.5, cap=3)),
        ({"decoding": {"kind": "greedy", "max_length": {"ratio": 0}}}, 1, MaxLength(ratio=0, extra=7)),
    ],
)
def test_the_cost_is_that_of_the_longest_outputs_of_all_hypotheses(served, options, n_hypotheses, longest):
    found = cost(served(TRANSLATOR), ["a", "b", "c"], "d", **options)
    assert found.read == 4
    assert found.total == n_hypotheses * (4 + longest.of(3) + longest.of(1))
    expected = 4 + min(3, longest.of(3)) + min(1, longest.of(1))
    assert found.expected == n_hypotheses * expected


def test_a_language_model_writes_up_to_its_limit(served):
    assert cost(served(WRITER), "a") == (1, 201, 201)
    assert cost(served(WRITER), "a", max_new_tokens=9) == (1, 10, 10)


def test_scores_and_vectors_write_nothing(served):
    assert cost(served(WRITER), "a", "b", verb="score") == (2, 2, 2)
    assert cost(served(WRITER), "a", verb="embed") == (1, 1, 1)


def test_labels_have_no_hypotheses(served):
    assert cost(served({"labels": ["x"]}), "a", "b", n_best=5) == (2, 2, 2)


@pytest.mark.parametrize("value", [10**400, 1e308, -3, "x", None, [], True, {"a": 1}])
def test_any_number_in_the_options_is_counted_or_refused(served, value):
    """The engine says what is wrong; here nothing overflows."""
    length = {"ratio": value, "extra": value, "cap": value}
    decoding = {"kind": "beam", "beam": value, "n": value, "max_length": length}
    for options in ({"beam": value}, {"n_best": value}, {"decoding": decoding}, {"decoding": value}):
        for description in (TRANSLATOR, {**TRANSLATOR, "decoding": decoding}):
            with suppress(RefusedError):
                assert cost(served(description), "a", max_new_tokens=value, **options).total >= 1


def test_what_does_not_fit_in_memory_is_refused(served):
    assert cost(served(TRANSLATOR, 50_000), "a").total == 5 * (1 + 8)
    with pytest.raises(RefusedError, match="do not fit in memory"):
        cost(served(TRANSLATOR, 44_999), "a")


class Letters:
    """A tokenizer that makes a token of every two characters."""

    def __init__(self):
        self.read = 0

    def encode_batch(self, texts):
        self.read += sum(map(len, texts))
        return [range(-(-len(text) // 2)) for text in texts]


@pytest.mark.parametrize("texts", [["a" * 4096], ["a" * 400_001], ["ab" * 500] * 256, ["a", "b" * 9999, ""]])
def test_counting_reads_a_bounded_part_of_much_text(served, texts):
    run = served({})
    run.tokenizer = Letters()
    exact = sum(max(1, -(-len(text) // 2) + 1) for text in texts)
    assert cost(run, *texts).total == pytest.approx(exact, rel=0.01, abs=1)
    assert run.tokenizer.read <= max(SAMPLED, SHORTEST_SAMPLE * len(texts))
