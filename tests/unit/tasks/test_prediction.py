"""Predictions as Python shows them."""

from heedful.tasks.prediction import Prediction
from heedful.tasks.regression import NumberPrediction


def test_what_is_shown_is_the_answer_and_what_it_has():
    prediction = Prediction("ein Mann", -0.5, ["ein", "Mann"], [-0.2, -0.2, -0.1], ids=(7, 8), cut=3)
    assert repr(prediction) == "Prediction(text='ein Mann', score=-0.5, tokens=<2>, log_probs=<3>, cut=3)"
    assert repr(Prediction("")) == "Prediction(text='')"
    assert repr(Prediction("", error="no such file")) == "Prediction(text='', error='no such file')"


def test_the_class_and_its_own_fields_are_shown():
    assert repr(NumberPrediction("3.5", value=3.5)) == "NumberPrediction(text='3.5', value=3.5)"
