"""Numbers of parts that would be built for minutes are refused by their key."""

import pytest

from heedful.errors import RequestError
from heedful.runs.reading import read_recipe


@pytest.mark.parametrize(
    ("recipe", "key"),
    [
        ("phrasebook-de", "model.n_layers"),
        ("phrasebook-de", "model.n_decoder_layers"),
        ("phrasebook-rnn", "model.n_layers"),
        ("phrasebook-lm", "model.n_layers"),
        ("phrasebook-tags", "model.n_layers"),
        ("digits", "model.n_layers"),
        ("scenes", "model.n_decoder_layers"),
        ("scenes-lstm", "model.n_layers"),
        ("phrasebook-de", "decoding.beam"),
        ("phrasebook-de", "validation.decoding.beam"),
    ],
)
@pytest.mark.parametrize("number", [1001, 10**6, 10**12])
def test_more_than_a_thousand_are_refused(recipe, key, number):
    changes = ["validation.decoding.kind=beam"] if key.startswith("validation") else []
    with pytest.raises(RequestError, match=rf"{key}={number}: expected a number of at most 1000"):
        read_recipe(recipe, [*changes, f"{key}={number}"])


def test_a_thousand_are_not():
    recipe, _ = read_recipe("phrasebook-de", ["model.n_layers=1000", "decoding.beam=1000"])
    assert recipe.model.n_layers == recipe.decoding.beam == 1000
