"""Law of outputs that nobody waits for any more: they leave the batch, and change no other one."""

from dataclasses import replace

import numpy as np
import pytest
from predictors import DECODERS, LONG, PATHS, PREDICTORS, made, recurrent
from tiers import sampled

MAKERS = [*PREDICTORS, recurrent]
CASES = [(make, decoder) for make in MAKERS for decoder in DECODERS]


class Leaving:
    """Lets the inputs of each step leave; counts the steps."""

    def __init__(self, leave_at):
        self.leave_at, self.n_steps, self.gone = leave_at, 0, set()

    def __call__(self):
        self.n_steps += 1
        self.gone.update(number for number, step in self.leave_at.items() if step <= self.n_steps)
        return self.gone


def predict(predictor, inputs, leave_at):
    leaving = Leaving(leave_at)
    predictor.options = replace(predictor.options, on_step=leaving)
    return predictor.predict(inputs, first=5), leaving.n_steps


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "case",
    sampled(CASES, [(make, "beam") for make in MAKERS] + [(MAKERS[0], decoder) for decoder in DECODERS]),
    ids=lambda case: f"{case[0].__name__}-{case[1]}",
)
def test_who_leaves_changes_no_other_output(case, path):
    make, name = case
    predictor, inputs = made(make, DECODERS[name], path, max_length=LONG)
    inputs = [*inputs, *inputs[::-1]]
    on_engine = path == "engine" and make is not recurrent
    undisturbed, n_steps = predict(predictor, inputs, {})
    assert n_steps > 9, "too few steps to leave between them"
    draw = np.random.default_rng(4)
    for _ in range(3):
        leave_at = {
            5 + int(i): int(draw.integers(1, n_steps))
            for i in draw.permutation(len(inputs))[: len(inputs) // 2]
        }
        found, _ = predict(predictor, inputs, leave_at)
        for i, (own, other) in enumerate(zip(found, undisturbed, strict=True)):
            if 5 + i in leave_at and len(own.ids) < len(other.ids):
                assert not own.finished
            if 5 + i not in leave_at:
                assert own.text == other.text
                assert own.tokens == other.tokens
                if on_engine:
                    assert own == other
                else:
                    np.testing.assert_allclose(own.log_probs, other.log_probs, atol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("name", DECODERS)
def test_nothing_runs_for_those_who_left(make, name):
    """All leave after the first step of their batch: no second one is made."""
    predictor, inputs = made(make, DECODERS[name], "plain", max_length=LONG)
    found, n_steps = predict(predictor, inputs[:1], {5: 1})
    assert n_steps == 1
    assert len(found[0].ids) <= 1
    assert not found[0].finished
