"""Settings of a training that contradict each other."""

import pytest

from heedful.training.settings import TrainingConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "set at least one of max_updates"),
        (
            {"max_updates": 1, "tokens_per_update": 60, "accumulate": 61},
            "accumulate=61 must be at most tokens_per_update=60",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**settings)
    assert TrainingConfig(max_updates=1, tokens_per_update=60, accumulate=60).accumulate == 60
