"""Variants of inputs: batched equals single, and leaving a word out equals not writing it."""

import math
import re

import numpy as np
import pytest
import torch

from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.occlusion import effects, occlusion
from heedful.explain.attribution.replacements import Words
from heedful.explain.attribution.variants import patch_slices
from heedful.explain.capture import prepare_input
from heedful.explain.views.gradients import block_sums
from heedful.nn.modes import evaluating
from heedful.tasks.model_input import AnswerOptions


@pytest.fixture
def measured(explained):
    """A run, an input, and what is measured of it, by the name of a run."""

    def of(name, given=None, target=None):
        run, default = explained(name)
        given = default if given is None else given
        with evaluating(run.model):
            prepared = prepare_input(run, given, AnswerOptions(target=target))
            return run, given, Measured.of(run.model, prepared)

    return of


def log_odds(prediction, answer):
    chances = prediction.label_probabilities()
    return math.log(chances[answer]) - math.log(sum(p for label, p in chances.items() if label != answer))


def without(words, i):
    return " ".join(words[:i] + words[i + 1 :])


def test_a_variant_without_a_word_is_read_like_a_text_without_it(measured):
    run, _, found = measured("classification", "the cat lay on a mat")
    words, (answer,) = ["the", "cat", "lay", "on", "a", "mat"], found.answers.names
    assert found.features.names == tuple(words)
    predictions = run.predict(["the cat lay on a mat", *(without(words, i) for i in range(len(words)))])
    values = [log_odds(prediction, answer) for prediction in predictions]
    expected = [values[0] - value for value in values[1:]]
    np.testing.assert_allclose(occlusion(found)[:, 0], expected, atol=1e-5)


def test_of_a_pair_the_words_of_both_texts_keep_their_segments(measured):
    run, _, found = measured("pairs", ("the cat", "a dog sat"))
    (answer,) = found.answers.names
    variants = [("the cat", "a dog sat"), ("cat", "a dog sat"), ("the", "a dog sat")]
    variants += [("the cat", "dog sat"), ("the cat", "a sat"), ("the cat", "a dog")]
    values = [log_odds(prediction, answer) for prediction in run.predict(variants)]
    np.testing.assert_allclose(occlusion(found)[:, 0], values[0] - np.array(values[1:]), atol=1e-5)


def test_of_a_set_each_label_has_its_own_log_odds(measured):
    run, _, found = measured("sets of labels", "the cat lay")
    words = ["the", "cat", "lay"]
    predictions = run.predict(["the cat lay", *(without(words, i) for i in range(3))])
    chances = [[p.probabilities[name] for name in found.answers.names] for p in predictions]
    logits = np.log(chances) - np.log1p(-np.array(chances))
    np.testing.assert_allclose(occlusion(found), logits[0] - logits[1:], atol=1e-5)


def test_a_number_changes_by_its_unit(measured):
    run, _, found = measured("regression", ("the cat", "a dog"))
    variants = [
        ("the cat", "a dog"),
        ("cat", "a dog"),
        ("the", "a dog"),
        ("the cat", "dog"),
        ("the cat", "a"),
    ]
    values = [prediction.value for prediction in run.predict(variants)]
    np.testing.assert_allclose(occlusion(found)[:, 0], values[0] - np.array(values[1:]), atol=1e-5)


@pytest.mark.parametrize("name", ["translation", "recurrent"])
def test_a_written_text_is_scored_given_the_source_without_a_word(measured, name):
    target = "SLEEPS DOG RED"
    run, source, found = measured(name, target=target)
    words = source.split()
    scores = [
        p.score
        for p in run.score([(source, target), *((without(words, i), target) for i in range(len(words)))])
    ]
    total = occlusion(found).sum(1)
    np.testing.assert_allclose(total, scores[0] - np.array(scores[1:]), atol=1e-4)
    assert found.values([{}]).sum().item() == pytest.approx(scores[0], abs=1e-4)


def test_a_tag_is_compared_at_its_own_word_and_gone_with_it(measured):
    run, _, found = measured("tagging", "the dog sat")
    scores = occlusion(found)
    assert found.answers.words == ("the", "dog", "sat")
    assert scores.isnan().tolist() == np.eye(3, dtype=bool).tolist()
    (whole,) = run.predict(["the dog sat"])
    chances = found.values([{}], as_probability=True)[0]
    np.testing.assert_allclose(chances, whole.log_probs, atol=1e-5)
    (shorter,) = run.predict(["dog sat"])
    rest = found.values([{0: ()}], as_probability=True)[0]
    same = [a == b for a, b in zip(whole.tags[1:], shorter.tags, strict=True)]
    np.testing.assert_allclose(rest[1:][same], np.array(shorter.log_probs)[same], atol=1e-5)


def test_words_before_a_continuation_are_left_out_one_by_one(measured):
    _, _, found = measured("language model", "the cat", target=" sat on")
    assert found.features.names == ("the", "cat")
    shorter = [
        measured("language model", text, target=" sat on")[2].values([{}]).sum() for text in ("cat", "the")
    ]
    whole = found.values([{}]).sum()
    torch.testing.assert_close(occlusion(found).sum(1), whole - torch.stack(shorter), rtol=0, atol=1e-4)


def test_the_first_part_of_a_word_that_the_answer_completes_is_a_feature(measured):
    _, _, found = measured("language model", "the cat", target="s")
    assert found.features.names == ("the", "cat")
    assert found.answers.names[0] == "cats"


NAMES = """
translation, one text, recurrent, language model, recurrent language model, masked, pairs, classification
sets of labels, regression, sentence embeddings, tagging, answers, images, masks, captions, fourier, resnet
"""


@pytest.mark.parametrize("name", re.split(", |\n", NAMES.strip()))
def test_batches_of_any_size_give_the_same_values_and_an_empty_edit_the_input_itself(measured, name):
    run, _, found = measured(name)
    n = len(found.features)
    edits = [{}, *({i: ()} for i in range(n)), {0: (), n - 1: ()}, {}]
    with evaluating(run.model):
        together, alone = found.values(edits), found.values(edits, budget=1)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5, equal_nan=True)
    torch.testing.assert_close(together[0], together[-1], rtol=1e-4, atol=1e-5)
    assert together.shape == (n + 3, len(found.answers))
    if found.prepared.targets.numbers is None:
        batch = found.prepared.batch
        scores = found.prepared.targets.scores(run.model(batch.inputs, batch.source), batch).double()
        expected = found.answers.sums(scores[None])[0]
        torch.testing.assert_close(found.values([{}], as_probability=True)[0], expected, rtol=1e-4, atol=1e-5)


class TheSame:
    """Replaces each word by its own ids."""

    def __init__(self, found):
        self.ids = found.prepared.batch.inputs.ids.tolist()

    def draw(self, generator, features, index):
        return [self.ids[token] for token in features.tokens[index]]


def test_a_word_replaced_by_itself_changes_nothing(measured):
    for name in ("classification", "pairs", "tagging", "answers"):
        _, _, found = measured(name)
        changes = effects(found, [[0], [0, len(found.features) - 1]], TheSame(found), draws=2)
        torch.testing.assert_close(changes, torch.zeros_like(changes), rtol=0, atol=1e-5)


def test_replacements_are_words_as_they_occur_and_fit_the_length(measured):
    _, _, found = measured("classification", "the cat lay on a mat")
    tokenizer = found.prepared
    words = Words([(7,), (8, 9), (10, 11, 12)], most=0)
    draws = [words.draw(np.random.default_rng(seed), found.features, 0) for seed in range(50)]
    assert {tuple(ids) for ids in draws} == {
        ids for ids in words.ids if len(ids) <= len(found.features.tokens[0])
    }
    free = Words(words.ids)
    assert {tuple(free.draw(np.random.default_rng(seed), found.features, 0)) for seed in range(50)} == {
        *words.ids
    }
    assert tokenizer is found.prepared


def test_patches_cover_the_pixels_as_sums_over_blocks_do():
    values = np.random.default_rng(0).normal(size=(7, 11))
    grid = (3, 5)
    sums = [values[patch_slices(i, grid, values.shape)].sum() for i in range(15)]
    np.testing.assert_allclose(np.reshape(sums, grid), block_sums(values, grid))


def test_a_patch_that_is_left_out_has_the_mean_colour(measured):
    run, _, found = measured("images")
    pixels = found.prepared.batch.inputs.pixels.clone()
    grid = found.prepared.axes["input"].grid
    pixels[0][(slice(None), *patch_slices(2, grid, pixels.shape[2:]))] = 0.0
    inputs = found.prepared.batch.inputs
    with torch.no_grad(), evaluating(run.model):
        hidden = run.model(type(inputs)(pixels, inputs.layout))
        (logits,) = found.prepared.targets.logits(hidden, found.prepared.batch)
    answer = found.prepared.targets.answers.item()
    others = [logit for index, logit in enumerate(logits[0]) if index != answer]
    expected = logits[0, answer] - torch.stack(others).logsumexp(0)
    assert found.values([{2: ()}])[0, 0].item() == pytest.approx(expected.item(), abs=1e-5)
