"""Scores with the model's own prefixes: each is that of a loop over positions, whatever is in the batch."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from heedful.decoding.protocol import StepOutput
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_model
from heedful.nn.layout import Tokens
from heedful.tasks.generation.generator import Generator, score_free_running, score_targets
from heedful.tasks.generation.sequence_formats import ENCODER_DECODER, ConcatenatedFormat

SOURCES, TARGETS = [[7, 8, 9], [], [10, 11], [12]], [[11, 12], [13, 14, 15, 9, 8], [], [9, 9, 10]]
UNREAD, END, CPU = range(7), 2, torch.device("cpu")
ENDED = [[*target, END] for target in TARGETS]


@pytest.fixture
def language_model():
    torch.manual_seed(3)
    layer = {"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
    model = build_model(LanguageModelConfig(d_model=14, n_layers=2, context=29, layer=layer), 23).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def free_running(model, sequence_format, sources=SOURCES, ended=ENDED):
    generator = Generator(model)
    prefix_output, _ = sequence_format.prefill(generator, sources, CPU)
    return score_free_running(generator, prefix_output, ended, UNREAD)


@torch.no_grad()
def loop(model, sequence_format, source, ended):
    """Append the best word to the prefix; each step reads the whole prefix anew, without a cache."""
    written, log_probs, correct = [], [], []
    for token in ended:
        batch = sequence_format.collate_scored([source], [written])
        p = model.heads["token"](model(batch.inputs, batch.source))[-1].softmax(-1).tolist()
        log_probs.append(math.log(p[token]))
        correct.append(max(range(len(p)), key=p.__getitem__) == token)
        written.append(max(range(len(UNREAD), len(p)), key=p.__getitem__))
    return log_probs, correct


def assert_equals_loop(model, sequence_format):
    results = free_running(model, sequence_format)
    for source, ended, result in zip(SOURCES, ENDED, results, strict=True):
        log_probs, correct = loop(model, sequence_format, source, ended)
        assert result.correct.tolist() == correct
        torch.testing.assert_close(result.log_probs, torch.tensor(log_probs), rtol=1e-4, atol=1e-5)
    return results


@pytest.mark.slow
def test_scores_of_encoder_decoders_equal_a_loop(translator):
    results = assert_equals_loop(translator, ENCODER_DECODER)
    forced = score_targets(translator, ENCODER_DECODER.collate(SOURCES, TARGETS))
    for own, given in zip(results, forced, strict=True):
        torch.testing.assert_close(own.log_probs[0], given.log_probs[0])  # nothing of its own is read yet
        assert own.correct[0] == given.correct[0]
    assert not torch.equal(results[1].log_probs, forced[1].log_probs)


def test_scores_of_language_models_equal_a_loop(language_model):
    assert_equals_loop(language_model, ConcatenatedFormat(29))


@torch.no_grad()
def test_whether_a_token_is_the_most_probable_equals_a_loop(translator):
    results = score_targets(translator, ENCODER_DECODER.collate(SOURCES, TARGETS))
    for source, target, result in zip(SOURCES, TARGETS, results, strict=True):
        for place, token in enumerate([*target, END]):
            inputs = Tokens.of([[1, *target[:place]]])
            logits = translator.heads["token"](translator(inputs, Tokens.of([[*source, END]])))[-1]
            assert bool(result.correct[place]) == (int(logits.argmax()) == token)


def test_a_model_that_ignores_its_prefix_scores_the_same(translator):
    with torch.no_grad():
        translator.target_embedding.weight[:] = translator.target_embedding.weight[3]
        translator.heads["token"].weight = torch.nn.Parameter(
            torch.randn_like(translator.heads["token"].weight)
        )
    forced = score_targets(translator, ENCODER_DECODER.collate(SOURCES, TARGETS))
    for own, given in zip(free_running(translator, ENCODER_DECODER), forced, strict=True):
        torch.testing.assert_close(own.log_probs, given.log_probs, rtol=0, atol=1e-5)
        assert torch.equal(own.correct, given.correct)


# A model with known distributions ---------------------------------------------------------------------------

BIGRAMS = {7: [0, 0, 0.5, 0.1, 0.3, 0.1], 8: [0, 0, 0.2, 0.2, 0.2, 0.4], 9: [0, 0, 0.1, 0.6, 0.2, 0.1]}
"""P(next | last) of ids 0 to 5, of which 2 is the end token; 7, 8 and 9 stand for 3, 4 and 5."""


@dataclass
class Last:
    """A state: the last token of each hypothesis."""

    ids: Tensor

    def keep(self, sentences):
        return Last(self.ids[list(sentences)])


class BigramModel:
    """A step function that knows only the last token."""

    def __init__(self):
        self.read = []

    def step(self, ids, state, parents):
        assert len(ids) == len(state.ids)
        self.read.append(ids.tolist())
        rows = torch.tensor([BIGRAMS[int(i) + 4] for i in ids])
        return StepOutput(rows.log(), Last(ids))


def test_scores_of_known_distributions_are_those_computed_by_hand():
    model = BigramModel()
    first = torch.tensor([BIGRAMS[7], BIGRAMS[9]]).log()
    ended = [[3, 4, 5, 2], [3, 2]]
    results = score_free_running(model, StepOutput(first, Last(torch.tensor([3, 5]))), ended, [0, 1, 2])
    # After 3 the end is most probable, which is not read: 4 is. Then 5, then 3. The second target is over
    # after 3 was read in its place.
    assert model.read == [[4, 3], [5], [3]]
    probabilities = [[0.1, 0.2, 0.1, 0.5], [0.6, 0.5]]
    for result, expected in zip(results, probabilities, strict=True):
        torch.testing.assert_close(result.log_probs.exp(), torch.tensor(expected))
    assert [result.correct.tolist() for result in results] == [[False, False, False, True], [True, True]]


def test_without_targets_there_are_no_scores():
    first = StepOutput(torch.zeros(0, 6), Last(torch.zeros(0, dtype=torch.int64)))
    assert score_free_running(BigramModel(), first, []) == []
