"""Laws 3, 8 and 9 for decoders over real models: scores can be recomputed, whatever the batch."""

import itertools

import pytest
import torch
from cases import (
    DECODED,
    DECODERS,
    END,
    SOURCES,
    START,
    TOLERANCE,
    V_TARGET,
    batch_for,
    configuration,
    every_decoded,
    every_decoder,
    model_of,
    source_of,
    vocabularies,
)

from heedful.decoding.config import BeamConfig, BeamSettings, GreedyConfig, decode
from heedful.decoding.phrases import BlockedPhrases, ForcedPrefix, RequiredPhrase
from heedful.decoding.protocol import Request
from heedful.decoding.rules import MinLength, NoRepeatedNgram
from heedful.decoding.scoring import GnmtLength
from heedful.decoding.spelling import Spelling
from heedful.errors import RequestError
from heedful.models.registry import build_model
from heedful.nn.layout import Tokens
from heedful.tasks.generation.generator import Generator, score_targets

# Few tokens may be written, so that some hypotheses end and some are cut.
FORBIDDEN = [0, START, *range(11, V_TARGET)]
ATTENTIVE = [name for name in DECODED if model_of(name).alignment_taps]


def run(
    model, config, sources, *, prefixes=None, forbidden=FORBIDDEN, ordinals=None, most=None, constraints=()
):
    """Decode as a task does."""
    source = source_of(model, [[*s, END] for s in sources])
    start = Tokens.of(prefixes or [[START]] * len(sources))
    generator = Generator(model, attention=isinstance(config, BeamSettings) and config.coverage > 0)
    first = generator.prefill(source, start)
    request = Request(
        first,
        generator.step,
        end=END,
        max_lengths=most or [config.max_length.of(len(s)) for s in sources],
        forbidden=forbidden,
        source_lengths=[0] * len(sources) if source is None else source.layout.lengths,
        ordinals=ordinals,
        constraints=constraints,
    )
    return decode(config, request)


def pairs(sources, answers):
    return [(s, h) for s, hypotheses in zip(sources, answers, strict=True) for h in hypotheses]


def agree(actual, expected):
    scale = max(1.0, *(abs(e) for e in expected)) if expected else 1.0
    assert actual == pytest.approx(expected, rel=0, abs=TOLERANCE * scale)


def score_of(config, log_probs, coverage):
    """From the equations of Wu et al. 2016 and Vaswani et al. 2017; without penalties, the sum."""
    divisor = 1.0
    if isinstance(config, BeamSettings):
        assert config.length_penalty == GnmtLength(alpha=0.6)
        divisor = ((5 + len(log_probs)) / 6) ** 0.6
    return sum(log_probs) / divisor + coverage


@every_decoder
@every_decoded
@torch.no_grad()
def test_a_score_is_recomputable_from_a_forced_pass(name, decoder):
    model, config = model_of(name), DECODERS[decoder]
    beta = getattr(config, "coverage", 0.0)
    if beta and name not in ATTENTIVE:
        with pytest.raises(RequestError, match="attention"):
            run(model, config, SOURCES)
        return
    found = pairs(SOURCES, run(model, config, SOURCES))
    batch = batch_for(model, [s for s, _ in found], [h.ids for _, h in found])
    results = score_targets(model, batch, attention=beta > 0)
    for (_, hypothesis), result in zip(found, results, strict=True):
        n = len(hypothesis.ids) + hypothesis.finished
        assert len(hypothesis.log_probs) == n
        assert not {*hypothesis.ids} & {*FORBIDDEN, END}
        log_probs = result.log_probs[:n].tolist()
        agree(list(hypothesis.log_probs), log_probs)
        coverage = 0.0
        if beta:
            attended = result.attention[-1, :, :n].mean(0).sum(0)
            coverage = beta * attended.clamp(max=1).log().sum().item()
            agree([hypothesis.coverage_penalty], [coverage])
        agree([hypothesis.score], [score_of(config, log_probs, coverage)])


@every_decoder
def test_decoders_finish_some_hypotheses_and_cut_others(decoder):
    """Otherwise the law above would have been tested for one kind alone."""
    answers = [
        h for name in ATTENTIVE for _, h in pairs(SOURCES, run(model_of(name), DECODERS[decoder], SOURCES))
    ]
    assert {h.finished for h in answers} == {False, True}


@every_decoder
@every_decoded
def test_batched_equals_single(name, decoder):
    if decoder == "beam, coverage" and name not in ATTENTIVE:
        return
    model, config = model_of(name), DECODERS[decoder]
    together = run(model, config, SOURCES)
    for i, source in enumerate(SOURCES):
        (alone,) = run(model, config, [source], ordinals=[i])
        assert [h.ids for h in alone] == [h.ids for h in together[i]]
        agree([h.score for h in alone], [h.score for h in together[i]])


@every_decoded
@torch.no_grad()
def test_prefixes_of_different_lengths_are_continued(name):
    model, prefixes = model_of(name), [[START, 5, 6, 7], [START], [START, 9]]
    answers = run(model, BeamConfig(beam=3), SOURCES, prefixes=prefixes, most=[5, 7, 3])
    targets = [prefix[1:] + list(h[0].ids) for prefix, h in zip(prefixes, answers, strict=True)]
    results = score_targets(model, batch_for(model, SOURCES, targets))
    for prefix, (hypothesis,), result in zip(prefixes, answers, results, strict=True):
        written = result.log_probs[len(prefix) - 1 :][: len(hypothesis.log_probs)]
        agree(list(hypothesis.log_probs), written.tolist())


@every_decoded
def test_a_beam_of_one_equals_greedy(name):
    model = model_of(name)
    greedy = run(model, GreedyConfig(), SOURCES, most=[11, 5, 7])
    beam = run(model, BeamConfig(beam=1), SOURCES, most=[11, 5, 7])
    assert [h.ids for (h,) in beam] == [h.ids for (h,) in greedy]
    assert [h.finished for (h,) in beam] == [h.finished for (h,) in greedy]
    for (one,), (other,) in zip(beam, greedy, strict=True):
        agree(list(one.log_probs), list(other.log_probs))


@every_decoded
@torch.no_grad()
def test_greedy_takes_the_most_probable_token_of_a_forced_pass(name):
    model = model_of(name)
    for source, (hypothesis,) in zip(SOURCES, run(model, DECODERS["greedy"], SOURCES), strict=True):
        ids = [*hypothesis.ids, *([END] if hypothesis.finished else [])]
        batch = batch_for(model, [source], [ids[:-1]])
        logits = model.heads["token"](model(batch.inputs, batch.source))
        logits[:, FORBIDDEN] = float("-inf")
        assert logits.argmax(-1).tolist() == ids


def every_hypothesis(size, most):
    """All sequences there are: (ids, finished)."""
    tokens = [i for i in range(size) if i != END]
    for n in range(most + 1):
        yield from ((ids, n < most) for ids in itertools.product(tokens, repeat=n))


@pytest.mark.parametrize("name", ["pre-norm", "bahdanau", "luong, fed", "plain", "language model"])
@torch.no_grad()
def test_an_exhaustive_beam_equals_brute_force(name):
    torch.manual_seed(7)
    size, most, n_best, source = 5, 3, 11, [3, 4, 0, 3]
    model = build_model(configuration(name), *(size for _ in vocabularies(configuration(name)))).eval()
    config = BeamConfig(beam=size**most, n_best=n_best)
    (answer,) = run(model, config, [source], forbidden=[], most=[most])
    hypotheses = list(every_hypothesis(size, most))
    batch = batch_for(model, [source] * len(hypotheses), [ids for ids, _ in hypotheses])
    scored = []
    for (ids, finished), result in zip(hypotheses, score_targets(model, batch), strict=True):
        log_probs = result.log_probs[: len(ids) + finished].tolist()
        scored.append((not finished, -score_of(config, log_probs, 0.0), ids))
    best = sorted(scored)[:n_best]
    assert [(not h.finished, h.ids) for h in answer] == [(unfinished, ids) for unfinished, _, ids in best]
    agree([-h.score for h in answer], [score for _, score, _ in best])


PIECES = [b"a", b"", b"", b"b", b"ab"]
"""What the five tokens of a tiny vocabulary spell; 2 is the end token."""

SPELLING = Spelling(PIECES)
CONSTRAINED = {
    "min_length": (MinLength(2), lambda ids, text: len(ids) >= 2),
    "no_repeat_ngram": (NoRepeatedNgram(1), lambda ids, text: len({*ids}) == len(ids)),
    "must": (RequiredPhrase(SPELLING, b"ba", [[3, 0]], "must"), lambda ids, text: b"ba" in text),
    "must_not": (
        BlockedPhrases(SPELLING, [b"ab", b"bb"], "must_not"),
        lambda ids, text: b"ab" not in text and b"bb" not in text,
    ),
    "prefix": (ForcedPrefix(SPELLING, b"aba", "prefix"), lambda ids, text: text.startswith(b"aba")),
}
"""Constraints, each with its definition on the tokens and the text of an output."""


@pytest.mark.parametrize(
    "constraints", [[one] for one in CONSTRAINED] + [["must", "no_repeat_ngram"]], ids=str
)
@pytest.mark.parametrize("name", ["pre-norm", "bahdanau", "language model"])
@torch.no_grad()
def test_an_exhaustive_beam_equals_brute_force_over_outputs_that_hold_constraints(name, constraints):
    torch.manual_seed(7)
    size, most, n_best, source = 5, 4, 9, [3, 4, 0, 3]
    model = build_model(configuration(name), *(size for _ in vocabularies(configuration(name)))).eval()
    config = BeamConfig(beam=size**most, n_best=n_best)
    own = [CONSTRAINED[each][0] for each in constraints]
    (answer,) = run(model, config, [source], forbidden=[1], most=[most], constraints=[own])
    held = [
        (ids, finished)
        for ids, finished in every_hypothesis(size, most)
        if 1 not in ids
        and all(CONSTRAINED[each][1](ids, b"".join(PIECES[i] for i in ids)) for each in constraints)
    ]
    batch = batch_for(model, [source] * len(held), [ids for ids, _ in held])
    scored = []
    for (ids, finished), result in zip(held, score_targets(model, batch), strict=True):
        log_probs = result.log_probs[: len(ids) + finished].tolist()
        scored.append((not finished, -score_of(config, log_probs, 0.0), ids))
    best = sorted(scored)[:n_best]
    found = [h for h in answer if not h.violated]
    assert [(not h.finished, h.ids) for h in found] == [(unfinished, ids) for unfinished, _, ids in best]
    agree([-h.score for h in found], [score for _, score, _ in best])


@every_decoded
def test_one_seed_gives_one_sample(name):
    model, config = model_of(name), DECODERS["sample"]
    one, again = run(model, config, SOURCES), run(model, config, SOURCES)
    assert one == again
    assert run(model, config.model_copy(update={"seed": 6}), SOURCES) != one
