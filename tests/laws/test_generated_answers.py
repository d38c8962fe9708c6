"""What a task that generates text returns: a cut text is marked, whatever cut it; a text is returned once.

Models × decoders × paths (the native engine, the plain path, streaming).
"""

from dataclasses import dataclass

import pytest
import torch
from predictors import (
    DECODERS,
    LONG,
    SHORT,
    completer,
    every_path,
    every_predictor,
    made,
    streamed,
    tokenizer,
    translator,
)
from torch import nn

from heedful.data.report import Tally
from heedful.data.sources import LocatedRow
from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength, SampleConfig
from heedful.tasks.evaluation import PredictedRows
from heedful.tasks.generation.sequence_formats import (
    EncoderDecoderFormat,
)
from heedful.tasks.generation.text_generation import Translator
from heedful.tasks.inputs.processor import Tokenizers
from heedful.tasks.language_modelling.continuing import Completer, Limits
from heedful.text.specials import SPECIALS

# Cut texts ---------------------------------------------------------------------------------------------


@every_predictor
@every_path
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_text_is_marked_if_and_only_if_the_model_did_not_end_it(make, path, decoder):
    for max_length in (SHORT, LONG):
        predictor, inputs = made(make, DECODERS[decoder], path, max_length=max_length)
        for prediction in predictor.predict(inputs):
            for answer in (prediction, *prediction.alternatives):
                assert answer.finished == (len(answer.log_probs) == len(answer.tokens) + 1)
            noted = "output cut at" in "; ".join(prediction.notes)
            assert noted == (prediction.to_dict()["finished"] is False)
            cut = f"output cut at {len(prediction.tokens)} tokens ("
            assert not noted or any(note.startswith(cut) for note in prediction.notes)


@every_predictor
@every_path
def test_two_tokens_are_never_enough_for_texts_that_go_on(make, path, endless):
    """Every text is cut, on every path and when it is streamed."""
    for decoder in ("greedy", "sample", "beam"):
        predictor, inputs = made(make, DECODERS[decoder], path, max_length=SHORT)
        predictions = predictor.predict(inputs)
        assert [p.finished for p in predictions] == [False] * len(inputs)
        assert all("output cut at 2 tokens (" in "; ".join(p.notes) for p in predictions)
        if decoder != "beam":
            for n, (given, whole) in enumerate(zip(inputs, predictions, strict=True)):
                shown = streamed(predictor, given, n)
                assert (shown.ids, shown.finished, shown.notes) == (whole.ids, False, whole.notes)
        rows = [LocatedRow({"source": n}, f"file:{n}") for n in range(len(inputs))]
        notes = PredictedRows(rows, predictions, {"empty": Tally()}).notes
        assert notes == [
            f"{len(inputs)} of {len(inputs)} outputs were cut at their maximum length (decoding.max_length), "
            "the first for file:0"
        ]


@pytest.fixture
def endless(monkeypatch):
    """Make the end token impossible."""
    never = (*SPECIALS.never_generated, SPECIALS.end)
    monkeypatch.setattr(type(SPECIALS), "never_generated", never)


def test_the_note_names_what_cut_the_text(endless):
    for decoding, longest, reason in (
        (GreedyConfig(max_length=SHORT), None, "decoding.max_length.cap"),
        (GreedyConfig(max_length=MaxLength(ratio=0, extra=2)), None, "decoding.max_length.ratio and extra"),
        (GreedyConfig(), 2, "the most that the model has positions for"),
    ):
        predictor, inputs = made(translator, decoding)
        predictor.sequence_format = EncoderDecoderFormat(longest)
        assert predictor.predict(inputs[:1])[0].notes == (f"output cut at 2 tokens ({reason})",)


def test_a_stop_string_ends_a_completion_even_at_the_last_token(endless):
    predictor, inputs = made(completer, GreedyConfig(max_length=LONG))
    (whole,) = predictor.predict(inputs[:1])
    stop = whole.text[4:6]
    n = next(n for n in range(60) if stop in predictor.tokenizer.decode(whole.ids[:n]))
    for most in (n, n + 1):
        stopped = Completer(
            predictor.model, predictor.tokenizer, GreedyConfig(), context=11, limits=Limits(most, [stop])
        )
        (prediction,) = stopped.predict(inputs[:1])
        assert (prediction.finished, prediction.notes) == (True, ())
        assert stop not in prediction.text


# The default maximum -----------------------------------------------------------------------------------


@dataclass
class CopyState:
    """Sources, and the number of tokens written of each hypothesis."""

    sources: list[list[int]]
    position: int = 0
    width: int = 1

    def expand(self, width):
        return CopyState([s for s in self.sources for _ in range(width)], self.position, width)

    def select(self, rows):
        return CopyState([self.sources[row] for row in rows.tolist()], self.position, self.width)

    def keep(self, sentences):
        rows = [s * self.width + k for s in sentences for k in range(self.width)]
        return CopyState([self.sources[row] for row in rows], self.position, self.width)


class Copier(nn.Module):
    """Writes its source, whose last token is the end token."""

    alignment_taps = ()

    def __init__(self, size):
        super().__init__()
        self.size = nn.Parameter(torch.tensor(float(size)))
        self.heads = nn.ModuleDict({"token": nn.Identity()})

    def start(self, source):
        return CopyState([list(ids) for ids in source.split()])

    def extend(self, tokens, state):
        return self._logits(state), state

    def step(self, ids, state):
        state.position += 1
        return self._logits(state), state

    def _logits(self, state):
        logits = torch.full((len(state.sources), int(self.size)), -20.0)
        for row, source in enumerate(state.sources):
            logits[row, source[min(state.position, len(source) - 1)]] = 0.0
        return logits


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["byte", "character", "bpe"])
@pytest.mark.parametrize("decoder", ["greedy", "beam", "sample"])
def test_a_long_text_can_be_copied_with_the_default_maximum(kind, decoder):
    own = tokenizer(kind)
    it = Translator(Copier(own.vocab_size), Tokenizers(own, own), DECODERS[decoder])
    for text in ("ä€" * 150, "the cat " * 90, "", "a"):
        (prediction,) = it.predict([text])
        assert (prediction.text, prediction.finished) == (text, True)
        assert prediction.notes == (() if text else ("the input is empty",))


# A text once -------------------------------------------------------------------------------------------


@every_predictor
@every_path
@pytest.mark.parametrize(
    "decoding",
    [
        BeamConfig(beam=8, n_best=8, max_length=MaxLength(ratio=0.0, extra=6)),
        BeamConfig(beam=8, n_best=6, max_length=MaxLength(ratio=0.0, extra=6)),
        BeamConfig(beam=8, n_best=6, unfinished="keep", max_length=MaxLength(ratio=0.0, extra=6)),
        SampleConfig(n=8, seed=2, temperature=0.5, max_length=MaxLength(ratio=0.0, extra=3)),
    ],
    ids=["all", "few", "unfinished kept", "sample"],
)
def test_answers_hold_a_text_once_with_its_best_score(make, path, decoding):
    """The oracle: the texts of all hypotheses of the search, in their order, without repetitions."""
    n = decoding.n if decoding.kind == "sample" else decoding.n_best
    everything = decoding if decoding.kind == "sample" else decoding.model_copy(update={"n_best": 8})
    it, inputs = made(make, decoding, path)
    searched, _ = made(make, everything, path)
    for given, hypotheses in zip(inputs, hypotheses_of(searched, inputs), strict=True):
        (prediction,) = it.predict([given], first=inputs_index(inputs, given))
        answers = [prediction, *prediction.alternatives]
        texts = [it.tokenizer.decode(h.ids) for h in hypotheses]
        first = list(dict.fromkeys(texts))[:n]
        assert [answer.text.strip() for answer in answers] == [text.strip() for text in first]
        assert [answer.score for answer in answers] == pytest.approx(
            [hypotheses[texts.index(text)].score for text in first], abs=1e-5
        )
        assert [alternative["output"] for alternative in prediction.to_dict().get("alternatives", ())] == [
            answer.text for answer in answers[1:]
        ]


def inputs_index(inputs, given):
    return next(n for n, other in enumerate(inputs) if other is given)


def hypotheses_of(predictor, inputs):
    """All hypotheses of the search of each input."""
    found = []
    record = predictor._decode if isinstance(predictor, Completer) else predictor.generate

    def recording(*arguments):
        found.extend(record(*arguments))
        return found[-1:]

    setattr(predictor, "_decode" if isinstance(predictor, Completer) else "generate", recording)
    for n, given in enumerate(inputs):
        predictor.predict([given], first=n)
    return found


def test_the_vocabularies_spell_some_texts_in_several_ways():
    """Without this, the law above would say nothing."""
    decoding = BeamConfig(beam=8, n_best=8, max_length=MaxLength(ratio=0.0, extra=6))
    it, inputs = made(translator, decoding)
    texts = [[it.tokenizer.decode(h.ids) for h in group] for group in hypotheses_of(it, inputs)]
    assert any(len(set(group)) < len(group) for group in texts)
