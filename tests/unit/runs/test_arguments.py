"""Arguments of predictions: what is refused, and which value stands for which."""

import numpy as np
import pandas
import pytest

from heedful.decoding.config import BeamConfig, DiverseBeamConfig, GreedyConfig, MbrConfig, SampleConfig
from heedful.errors import RequestError
from heedful.runs.arguments import checked_options, inputs_of, with_beam
from heedful.tasks.task_info import Columns

IMAGES = Columns(("image", "label"), ("image",), images=("image",))
TEXTS = Columns(("text", "label"), ("text",))


@pytest.mark.parametrize("shape", [(), (5, 7), (5, 7, 3)])
def test_an_array_that_is_one_image_is_no_list_of_images(shape):
    with pytest.raises(RequestError, match=r"expected a list of images, got an array of .*: \[image\]"):
        inputs_of(IMAGES, np.zeros(shape, np.uint8))


@pytest.mark.parametrize("shape", [(2, 5, 7), (2, 5, 7, 3)])
def test_an_array_of_images_is_a_list_of_them(shape):
    assert [image.shape for image in inputs_of(IMAGES, np.zeros(shape, np.uint8))] == [shape[1:]] * 2


def test_an_array_of_texts_is_a_list_of_them():
    assert inputs_of(TEXTS, np.array(["a", "b"])) == ["a", "b"]
    with pytest.raises(RequestError, match=r"expected a list of texts, got an array of shape \(\)"):
        inputs_of(TEXTS, np.array("a b"))


def test_stop_texts_are_read_once_and_are_texts():
    assert checked_options({"stop": (text for text in ["a", "b"])}) == {"stop": ("a", "b")}
    for name, value, message in (
        ("stop", "ab", r"expected a list of texts, got a text; write stop=\['ab'\]"),
        ("stop", 3, "expected a list of texts, got an int"),
        ("max_new_tokens", "3", "expected a whole number of at least 1, got '3'"),
        ("max_new_tokens", 3.0, "expected a whole number of at least 1, got 3.0"),
        ("max_new_tokens", True, "expected a whole number of at least 1, got True"),
        ("gap", 3, "expected a text, got 3"),
        ("prefix", 3, "expected a text, got 3"),
    ):
        with pytest.raises(RequestError, match=f"^{name}: {message}"):
            checked_options({name: value})
    with pytest.raises(RequestError, match=r"stop\[1\]: expected a text, got 3"):
        checked_options({"stop": ["a", 3]})


@pytest.mark.parametrize(
    "decoding, beam, n_best, expected",
    [
        (GreedyConfig(), None, 3, BeamConfig(beam=3, n_best=3)),
        (BeamConfig(beam=2, coverage=0.1), 5, None, BeamConfig(beam=5, coverage=0.1)),
        (DiverseBeamConfig(diversity=2.0), 6, 3, DiverseBeamConfig(beam=6, n_best=3, diversity=2.0)),
        (SampleConfig(seed=3), None, 3, SampleConfig(seed=3, n=3)),
        (MbrConfig(n=9), None, 3, MbrConfig(n=9, n_best=3)),
    ],
)
def test_a_beam_and_a_number_of_answers_change_a_decoding(decoding, beam, n_best, expected):
    assert with_beam(decoding, beam, n_best) == expected


def test_samples_have_no_beam():
    for decoding in (SampleConfig(), MbrConfig()):
        with pytest.raises(RequestError, match="beam=3 is not supported by sampling"):
            with_beam(decoding, 3, None)


@pytest.mark.parametrize("missing", [float("nan"), np.float64("nan"), pandas.NA, pandas.NaT], ids=repr)
@pytest.mark.parametrize("names", [("text",), ("text", "pair")])
def test_a_missing_value_of_a_table_is_named_with_the_remedy(missing, names):
    columns, is_pair = Columns(names, names), len(names) > 1
    series = pandas.Series(["a", missing], dtype=object)
    with pytest.raises(RequestError, match=r"input 2.*, a missing value; .*fillna\(\"\"\)"):
        inputs_of(columns, [(each, "b") for each in series] if is_pair else series)
    filled = series.fillna("")  # as the message says
    inputs = [(each, "b") for each in filled] if is_pair else filled
    assert inputs_of(columns, inputs) == [*inputs]
