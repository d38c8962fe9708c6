"""Images of answers, read out at every depth, and of losses: what is drawn is what the views say."""

import math
from dataclasses import replace

import numpy as np
import pytest

from heedful.errors import RequestError
from heedful.explain.attention_sites import NO_MAPS
from heedful.explain.capture import explain_input
from heedful.explain.drawing.canvas import shorten
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.explanation import Explanation
from heedful.explain.views import view_module


@pytest.mark.parametrize("name", ["translation", "language model", "classification", "masked", "captions"])
def test_the_table_has_the_most_probable_answer_of_every_depth(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, maps=NO_MAPS, views=["lens"])
    values = seen.views["lens"]
    axes = figure_of(seen).axes[0]
    texts = {tuple(map(round, text.get_position())): text for text in axes.texts}
    shares = np.asarray(axes.images[0].get_array())
    assert shares.shape == (len(values["answers"]), len(values["depths"]))
    for column, depth in enumerate(values["depths"]):
        for row, (top, answer) in enumerate(zip(depth["top"], values["answers"], strict=True)):
            assert texts[column, row].get_text() == shorten(top[0]["answer"], 14)
            assert (texts[column, row].get_weight() == "bold") == (top[0]["answer"] == answer)
            assert shares[row, column] == pytest.approx(math.exp(top[0]["log_prob"]), rel=1e-5)
    depths = [label.get_text() for label in axes.get_xticklabels()]
    assert depths == ["embeddings", *(f"layer {n + 1}" for n in range(len(depths) - 1))]


@pytest.mark.parametrize("name", ["translation", "language model", "classification"])
def test_the_bars_are_the_losses(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given, maps=NO_MAPS, views=["losses"])
    values = seen.views["losses"]
    axes = figure_of(seen).axes[0]
    assert [bar.get_width() for bar in axes.patches] == values["losses"]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == list(values["answers"])
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert len(set(zip(values["given"], colours, strict=True))) == len(set(values["given"]))
    if len(labels) > 1:
        assert axes.lines[0].get_xdata()[0] == values["mean"]
    else:
        assert not axes.lines


@pytest.mark.parametrize("name", ["lens", "losses"])
def test_nothing_and_too_much_are_refused(explained, name):
    run, _ = explained("masked")
    seen = explain_input(run, "the cat", maps=NO_MAPS, views=[name])
    with pytest.raises(RequestError, match="the answer is empty, so there is nothing to draw"):
        figure_of(seen)
    run, given = explained("translation")
    seen = explain_input(run, given, maps=NO_MAPS, views=[name])
    long = {key: value * 99 if isinstance(value, list) else value for key, value in seen.views[name].items()}
    assert isinstance(seen, Explanation)
    with pytest.raises(RequestError, match="at most 120 tokens, got"):
        view_module(name).figure(replace(seen, views={name: long}), long)
