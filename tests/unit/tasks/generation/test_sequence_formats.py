"""Source and target in one text, for a language model: batches, loss, decoding."""

import pytest
import torch

from heedful.data.batch import Batch
from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength
from heedful.errors import RequestError
from heedful.models.language_model import LanguageModelConfig, build
from heedful.nn.layout import Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.tasks.generation.generator import score_targets
from heedful.tasks.generation.sequence_formats import ConcatenatedFormat, EncoderDecoderFormat
from heedful.tasks.generation.text_generation import Translator
from heedful.tasks.inputs.processor import Tokenizers
from heedful.tasks.prediction import PredictOptions
from heedful.text.configuration import WordConfig
from heedful.text.training import train_tokenizer

START, END, SEP = 1, 2, 5
SOURCES, TARGETS = [[7, 8, 9], [], [10]], [[11, 12], [13], []]
CONTEXT = 17


def test_both_stand_in_one_text():
    whole = ConcatenatedFormat(CONTEXT, answers_only=False).collate(SOURCES, TARGETS, samples=[4, 5, 6])
    assert whole.inputs.split() == [[START, 7, 8, 9, SEP, 11, 12], [START, SEP, 13], [START, 10, SEP]]
    wanted = [[7, 8, 9, SEP, 11, 12, END], [SEP, 13, END], [10, SEP, END]]
    assert whole.targets.tolist() == [i for row in wanted for i in row]
    assert whole.samples == (4, 5, 6)
    assert whole.source is whole.rows is None
    assert whole.n_answers == (7, 3, 3)


def test_the_answer_begins_at_the_separator():
    batch = ConcatenatedFormat(CONTEXT).collate(SOURCES, TARGETS)
    assert batch.targets.tolist() == [11, 12, END, 13, END, END]
    assert batch.inputs.ids[batch.rows].tolist() == [SEP, 11, 12, SEP, 13, SEP]
    assert batch.n_answers == (3, 2, 1)


def test_an_empty_batch_has_no_answers():
    batch = ConcatenatedFormat(CONTEXT).collate([], [])
    assert batch.targets.tolist() == batch.rows.tolist() == []


def model():
    torch.manual_seed(1)
    config = LanguageModelConfig(
        d_model=14,
        n_layers=2,
        context=CONTEXT,
        dropout=0.0,
        layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}},
    )
    made = build(config, 23)
    for parameter in made.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return made.eval()


@pytest.mark.parametrize("answers_only", [True, False])
def test_the_loss_is_the_sum_over_what_is_wanted(answers_only):
    made, pairing = model(), ConcatenatedFormat(CONTEXT, answers_only)
    batch = pairing.collate(SOURCES, TARGETS)
    objective = NextToken(chunk=2)
    terms = {term.name: term for term in objective(made(batch.inputs), made.heads, batch)}
    expected, n = 0.0, 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        text = [START, *source, SEP, *target, END]
        first = len(source) + 2 if answers_only else 1
        for place in range(first, len(text)):
            logits = made.heads["token"](made(Tokens.of([text[:place]])))[-1]
            expected -= logits.log_softmax(-1)[text[place]].item()
            n += 1
    assert terms["token"].sum.item() == pytest.approx(expected, rel=1e-5)
    assert objective.counts(batch) == {"token": n, "nll": n}


def test_forced_scores_are_of_the_targets_alone():
    made = model()
    results = score_targets(
        made, ConcatenatedFormat(CONTEXT, answers_only=False).collate_scored(SOURCES, TARGETS)
    )
    assert [len(r.log_probs) for r in results] == [3, 2, 1]
    logits = made.heads["token"](made(Tokens.of([[START, 7, 8, 9, SEP, 11]])))
    torch.testing.assert_close(results[0].log_probs[1], logits[-1].log_softmax(-1)[12])


@pytest.mark.parametrize(
    "pairing, room",
    [(ConcatenatedFormat(9), 5), (EncoderDecoderFormat(9), 9), (EncoderDecoderFormat(), None)],
)
def test_there_is_room_for_the_rest_of_the_context(pairing, room):
    assert pairing.max_target_length(3) == room


@pytest.fixture(scope="module")
def translator():
    numbers = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    words = [*numbers, "eleven", "twelve", *"xyzu"]
    tokenizer = train_tokenizer(WordConfig(kind="word"), [" ".join(words)] * 2)
    assert tokenizer.vocab_size == 23

    def make(decoding, **options):
        pairing = ConcatenatedFormat(CONTEXT)
        return Translator(
            model(), Tokenizers(tokenizer, tokenizer), decoding, sequence_format=pairing, **options
        )

    return make


LONG = MaxLength(ratio=0, extra=99)
TEXTS = ["one two three", "four", "five six seven eight nine ten one two", "x"]


@pytest.mark.parametrize("decoding", [GreedyConfig(max_length=LONG), BeamConfig(max_length=LONG, beam=3)])
def test_translations_are_the_same_in_any_batch_and_never_longer_than_the_context(translator, decoding):
    together = translator(decoding).predict(TEXTS)
    for text, prediction in zip(TEXTS, together, strict=True):
        (alone,) = translator(decoding).predict([text])
        assert alone.text == prediction.text
        assert alone.log_probs == pytest.approx(prediction.log_probs, abs=1e-4)
        assert len(prediction.log_probs) <= CONTEXT - len(text.split()) - 1


def test_log_probabilities_are_the_models_own(translator):
    it = translator(GreedyConfig(max_length=MaxLength(ratio=0, extra=6)))
    (prediction,) = it.predict(["one two three"])
    tokenizer = it.tokenizer
    source, ids = tokenizer.encode("one two three"), tokenizer.encode(prediction.text)
    wanted = score_targets(it.model, it.sequence_format.collate_scored([source], [ids]))[0].log_probs
    assert prediction.log_probs == pytest.approx(wanted[: len(prediction.log_probs)].tolist(), abs=1e-4)


def test_there_is_no_attention_to_show(translator):
    with pytest.raises(RequestError, match="no attention from target to source"):
        translator(GreedyConfig(), options=PredictOptions(attention=True)).predict(["one"])


def test_all_batches_of_pairs_are_ragged_to_a_compiler():
    assert ConcatenatedFormat(CONTEXT).collate(SOURCES, TARGETS).ragged
    assert EncoderDecoderFormat().collate(SOURCES, TARGETS).ragged
    assert not Batch.windows(torch.arange(12).view(2, 6).numpy()).ragged
