"""The gap between teacher-forced and free-running scores."""

import math

import pytest
import torch

from heedful.tasks.generation.generator import TargetScores
from heedful.tasks.metrics.forcing_gap import forcing_gap


def scores(probabilities, correct):
    return TargetScores(torch.tensor(probabilities).log(), torch.tensor(correct, dtype=torch.bool))


FORCED = [scores([0.5, 0.8, 0.9], [1, 1, 1]), scores([0.2, 0.7], [0, 1]), scores([0.4], [0])]
FREE = [scores([0.5, 0.4, 0.1], [1, 0, 0]), scores([0.2, 0.6], [0, 1]), scores([0.4], [0])]


def test_scores_are_those_computed_by_hand():
    found = {score.name: score for score in forcing_gap(FORCED, FREE, "abc")}
    nats = [
        -sum(map(math.log, p)) / 6 for p in ((0.5, 0.8, 0.9, 0.2, 0.7, 0.4), (0.5, 0.4, 0.1, 0.2, 0.6, 0.4))
    ]
    assert {name: score.value for name, score in found.items()} == pytest.approx(
        {
            "token accuracy, forced": 4 / 6,
            "token accuracy, free": 2 / 6,
            "accuracy gap": 2 / 6,
            "nats per token, forced": nats[0],
            "nats per token, free": nats[1],
            "nats per token gap": nats[1] - nats[0],
        },
        rel=1e-6,
    )
    assert all(score.counts == {"tokens": 6, "sentences": 3} for score in found.values())
    # After the first error of the second pass: the third token of the first text, and the second of the next.
    assert found["token accuracy, free"].details == {
        "tokens_after_first_error": 2,
        "forced_accuracy_after_first_error": 1.0,
        "free_accuracy_after_first_error": 0.5,
    }


def test_signatures_name_tokenizer_and_prefix():
    signatures = {score.name: score.signature for score in forcing_gap(FORCED, FREE, "abc")}
    assert signatures["nats per token, forced"] == "unit:token|tokenizer:abc|prefix:reference"
    assert signatures["nats per token, free"] == "unit:token|tokenizer:abc|prefix:greedy"
    assert signatures["nats per token gap"] == "unit:token|tokenizer:abc|prefix:greedy-reference"


def test_equal_passes_have_no_gap_and_without_errors_nothing_comes_after_one():
    by_name = {score.name: score for score in forcing_gap(FORCED[:1], FORCED[:1], "abc")}
    assert by_name["accuracy gap"].value == by_name["nats per token gap"].value == 0
    assert by_name["token accuracy, free"].details == {}


def test_nothing_to_score_has_no_scores():
    assert forcing_gap([], [], "abc") == []
