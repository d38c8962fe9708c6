"""Windows with hidden tokens, pairs, and gaps that are filled."""

import re
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from small_tasks import task_of

from heedful.data.masking import Draw, Masking, SpanLengths
from heedful.data.windows import Windows
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.models.encoder import EncoderConfig, build
from heedful.nn.layout import Tokens
from heedful.nn.output import BoundaryHead, MaskedHead
from heedful.objectives.cross_entropy import MaskedToken, SpanBoundary
from heedful.objectives.terms import CombinedObjective
from heedful.tasks.masked_language_modelling.masking import (
    FOLLOWS,
    UNRELATED,
    MaskedBatches,
    MaskFiller,
    word_beginnings,
)
from heedful.tasks.prediction import BATCH_TOKENS, PredictOptions
from heedful.tasks.running_text import TextProcessor
from heedful.text.configuration import CharacterConfig, TokenizerConfig, WordConfig
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_tokenizer

MASK, FIRST, LAST = SPECIALS.mask, len(SPECIALS), 203
CLS, SEP = SPECIALS.classify, SPECIALS.separate
STREAM = np.arange(FIRST, LAST)  # every token once, so that its place is known
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]


def maskings(pairs=False, **options):
    signs = SentenceSigns.synthetic(LAST) if pairs else None
    return MaskedBatches(STREAM, 23, Masking(MASK, FIRST, LAST, **options), signs=signs, seed=3)


def originals(batch):
    ids = batch.inputs.ids.clone()
    ids[batch.rows] = batch.targets
    return [row.tolist() for row in ids.split(list(batch.inputs.layout.lengths))]


def test_windows_stand_between_class_token_and_separator():
    made = maskings()
    assert made.lengths.tolist() == [23] * (len(STREAM) // 21)
    batch = made([0, 4], 0)
    for row in originals(batch):
        assert (row[0], row[-1]) == (CLS, SEP)
        steps = np.diff(row[1:-1])
        assert set(steps.tolist()) <= {1, FIRST - LAST + 1}  # the stream is a ring
    assert batch.inputs.segments is batch.classes is None
    assert batch.samples == (0, 4)


def test_an_epoch_reads_every_token_at_most_once_and_the_next_elsewhere():
    made, n = maskings(), len(STREAM) // 21
    seen = [i for row in originals(made(range(n), 0)) for i in row[1:-1]]
    assert len(set(seen)) == len(seen)
    assert originals(made([0], 0)) != originals(made([0], 1))


def test_a_sample_is_the_same_in_any_batch_and_another_in_the_next_epoch():
    made = maskings(pairs=True)
    together, alone = made([5, 2, 7], 4), made([2], 4)
    length = alone.inputs.layout.n_tokens
    assert together.inputs.ids[length : 2 * length].tolist() == alone.inputs.ids.tolist()
    assert together.classes[1] == alone.classes[0]
    assert made([2], 5).inputs.ids.tolist() != alone.inputs.ids.tolist()


@pytest.mark.parametrize("epoch", [0, 2])
def test_without_pairs_a_sequence_is_a_window_as_it_is(epoch):
    made = maskings(rate=0.3)
    batch = made([4, 0], epoch)
    for row, sample, hidden in zip(
        Windows(STREAM, 21, 3).rows([4, 0], epoch),
        [4, 0],
        batch.inputs.ids.split(list(batch.inputs.layout.lengths)),
        strict=True,
    ):
        ids = np.array([CLS, *row[:-1], SEP])
        assert hidden.tolist() == made.masking.mask_tokens(ids, Draw(3, epoch, sample)).ids.tolist()


def test_without_pairs_nothing_ever_changes():
    """Written down before pairs began at sentences."""
    batch = maskings()([4, 0], 2)
    first = [CLS, 105, *range(174, 177), MASK, *range(178, 192), MASK, 193, SEP]
    second = [CLS, *range(89, 94), 24, *range(95, 103), MASK, *range(104, 109), MASK, SEP]
    assert batch.inputs.ids.tolist() == first + second
    assert batch.rows.tolist() == [1, 5, 20, 29, 38, 44]


def test_spans_lie_where_the_batch_says():
    made = maskings(begins_word=np.ones(LAST, bool), spans=SpanLengths())
    batch = made([1, 3, 5], 0)
    for place, before, after, within in zip(
        batch.rows, batch.spans.before, batch.spans.after, batch.spans.within, strict=True
    ):
        assert before < place < after
        assert within == place - before - 1


# Pairs -----------------------------------------------------------------------------------------------------

# Of each tokenizer, and the tokens of a sequence: enough for some sentences.
TOKENIZERS = {
    "bpe": ({"kind": "bpe", "vocab_size": 420}, 90),
    "unigram": ({"kind": "unigram", "vocab_size": 300, "byte_fallback": False}, 120),
    "wordpiece": ({"kind": "wordpiece", "vocab_size": 200}, 90),
    "word": ({"kind": "word"}, 60),
    "character": ({"kind": "character"}, 240),
    "byte": ({"kind": "byte"}, 240),
}
SENTENCES = [
    "The cat ( and the dog ) sat there for 2 days . ",
    "What did it want ? ",
    '" Nothing at all , " said the bird , " as it seems ! " ',
    "It was old and the house was too . ) \n",
    "\n = = The river = = \n \n ",
    "In a year the river goes from the old stone to the house by the tree and on to where the dog is . ",
]
ENDS_A_SENTENCE = re.compile(r"([.?!][ )]*|\n[ \n]*)$")


@dataclass
class Pairs:
    """The pairs of some epochs, as places in the stream of ``ids``, with their classes."""

    tokenizer: Tokenizer
    ids: np.ndarray
    made: MaskedBatches
    epochs: list[list[tuple[np.ndarray, np.ndarray, int]]]

    @property
    def found(self):
        return [pair for epoch in self.epochs for pair in epoch]

    @property
    def ends(self):
        return np.flatnonzero(self.ids == SPECIALS.end)

    def document(self, place):
        """The number of end tokens before it."""
        return int((self.ends < place).sum())

    def before(self, place):
        """What its document spells just before it; None where it is its first token."""
        start = max([0, *(self.ends + 1)[self.ends < place]])
        return self.shown(range(max(start, place - 20), place)) if place > start else None

    def shown(self, places):
        return self.tokenizer.surface([int(self.ids[place]) for place in places])


def texts_of_sentences(n, seed=5):
    draw = np.random.default_rng(seed)
    return [
        f" = The {WORDS[i % 7]} = \n \n " + "".join(draw.choice(SENTENCES, draw.integers(12, 60)))
        for i in range(n)
    ]


def pairs_of(kind, texts, n_epochs=20):
    """From batches of the same windows over tokens that are numbered, so that their places are known."""
    config, longest = TOKENIZERS[kind]
    tokenizer = train_tokenizer(TypeAdapter(TokenizerConfig).validate_python(config), texts * 2)
    ids = np.array([i for text in texts for i in [*tokenizer.encode(text), SPECIALS.end]])
    last = FIRST + len(ids)
    made = MaskedBatches(ids, longest, Masking(MASK, FIRST, last), signs=SentenceSigns.of(tokenizer), seed=3)
    made.windows = replace(made.windows, ids=np.arange(FIRST, last))
    return Pairs(tokenizer, ids, made, [list(pairs_in(made, epoch)) for epoch in range(n_epochs)])


def pairs_in(made, epoch):
    batch = made(range(len(made.lengths)), epoch)
    lengths = list(batch.inputs.layout.lengths)
    assert lengths == made.lengths.tolist()
    for row, segment, follows in zip(
        originals(batch), batch.inputs.segments.split(lengths), batch.classes, strict=True
    ):
        cut = row.index(SEP)
        assert (row[0], row[-1], row.count(SEP)) == (CLS, SEP, 2)
        assert segment.tolist() == [0] * (cut + 1) + [1] * (len(row) - cut - 1)
        yield np.array(row[1:cut]) - FIRST, np.array(row[cut + 1 : -1]) - FIRST, int(follows)


@pytest.fixture(scope="module", params=TOKENIZERS)
def pairs(request):
    return pairs_of(request.param, texts_of_sentences(13))


@pytest.mark.slow
def test_parts_are_stretches_that_fill_the_sequence_and_begin_at_places_of_their_own(pairs):
    for epoch in pairs.epochs:
        for first, second, _ in epoch:
            assert len(first) + len(second) + 3 == pairs.made.lengths[0]
            assert len(first) > 0 < len(second)
            for part in (first, second):
                assert ((part[1:] - part[:-1]) % len(pairs.ids) == 1).all()
        assert len({first[0] for first, _, _ in epoch}) == len(epoch) == len(pairs.made.lengths)


def test_both_parts_begin_a_sentence_and_the_first_ends_one(pairs):
    n_titles = 0
    for first, second, follows in pairs.found:
        assert ENDS_A_SENTENCE.search(pairs.shown(first))
        assert pairs.ids[first[-1]] != SPECIALS.end
        for part in (first, second):
            before = pairs.before(part[0])
            n_titles += before is None
            assert before is None or ENDS_A_SENTENCE.search(before)
        assert not (follows == FOLLOWS and pairs.before(second[0]) is None)
    assert n_titles  # documents' first sentences are sentences too


def test_what_follows_is_what_stands_there_and_what_does_not_is_of_another_document(pairs):
    for first, second, follows in pairs.found:
        if follows == FOLLOWS:
            assert second[0] == first[-1] + 1
        else:
            assert follows == UNRELATED
            assert pairs.document(second[0]) != pairs.document(first[-1])


def test_half_of_the_pairs_follow_each_other(pairs):
    n = len(pairs.found)
    n_follow = sum(follows == FOLLOWS for _, _, follows in pairs.found)
    assert n > 500
    assert abs(n_follow - n / 2) < 4.5 * np.sqrt(n) / 2


def test_strangers_come_from_documents_by_their_lengths(pairs):
    lengths = np.diff(np.concatenate([[0], pairs.ends + 1]))
    mean, variance, seen = np.zeros((3, len(lengths)))
    for first, second, follows in pairs.found:
        if follows == UNRELATED:
            shares = lengths.astype(float)
            shares[pairs.document(first[-1])] = 0
            shares /= shares.sum()
            mean, variance = mean + shares, variance + shares * (1 - shares)
            seen[pairs.document(second[0])] += 1
    assert (np.abs(seen - mean) < 4.5 * np.sqrt(variance)).all()
    # And all of them together: chi-square of 12 degrees has the mean 12 and the deviation 4.9.
    assert ((seen - mean) ** 2 / mean).sum() < 12 + 4.5 * 4.9


def test_strangers_lie_anywhere_in_the_other_documents(pairs):
    """Round the ring, as a share of the tokens of others: a quarter lie in each quarter."""
    bounds = np.concatenate([[0], pairs.ends + 1])
    shares = []
    for first, second, follows in pairs.found:
        if follows == UNRELATED:
            begin, end = bounds[pairs.document(first[-1]) :][:2]
            shares.append((second[0] - end) % len(pairs.ids) / (len(pairs.ids) - (end - begin)))
    n = len(shares)
    assert (np.abs(np.histogram(shares, 4, (0, 1))[0] - n / 4) < 4.5 * np.sqrt(n * 3 / 16)).all()


def test_a_window_begins_with_the_next_sentence_and_is_cut_where_any_begins():
    """In `STREAM` every twentieth token ends a sentence: 21, 41, ... begin one, and 7 the text."""
    signs = SentenceSigns.synthetic(LAST)
    made = MaskedBatches(STREAM, 73, Masking(MASK, FIRST, LAST), signs=signs, seed=3)
    cuts = Counter()
    begins = [FIRST, *range(21, LAST, 20)]
    for epoch in range(400):
        windows = Windows(STREAM, 70, 3).rows(range(2), epoch)[:, 0]
        for row, start in zip(originals(made(range(2), epoch)), windows.tolist(), strict=True):
            assert row[1] == min([b for b in begins if b >= start], default=FIRST)
            if 21 <= row[1] <= 121:
                cuts[row.index(SEP) - 1] += 1
    n = sum(cuts.values())
    assert set(cuts) == {20, 40, 60}
    assert all(abs(count - n / 3) < 4.5 * np.sqrt(n * 2 / 9) for count in cuts.values())


def test_where_no_sentence_begins_a_window_stays_and_is_cut_anywhere():
    stream = np.array([i for i in range(FIRST, FIRST + 20 * 9) if i % 20])
    made = MaskedBatches(stream, 23, Masking(MASK, FIRST, LAST), signs=SentenceSigns.synthetic(LAST), seed=3)
    cuts = set()
    for epoch in range(60):
        windows = Windows(stream, 20, 3).rows(range(8), epoch)
        for row, window in zip(originals(made(range(8), epoch)), windows, strict=True):
            if FIRST in window[:-1]:  # the text's beginning is a sentence's
                assert row[1] == FIRST
            else:
                assert row[1] == window[0]
                cuts.add(row.index(SEP) - 1)
    assert cuts == set(range(1, 20))


def test_a_text_of_one_document_has_its_strangers_from_anywhere_in_it():
    found = pairs_of("word", texts_of_sentences(1)).found
    strange = {int(second[0]) for _, second, follows in found if follows == UNRELATED}
    assert len(strange) > 9


def test_documents_of_one_sentence_follow_each_other():
    """Where nothing but documents begins in a window, it is cut there."""
    found = pairs_of("word", ["one two three four five six seven"] * 40, n_epochs=9)
    for first, second, follows in found.found:
        assert found.ids[first[-1]] == SPECIALS.end
        assert found.before(second[0]) is None
        assert follows == UNRELATED or second[0] == (first[-1] + 1) % len(found.ids)


# Objectives ------------------------------------------------------------------------------------------------


def encoder(n_tokens, **options):
    torch.manual_seed(3)
    config = EncoderConfig(
        d_model=14,
        n_layers=1,
        max_length=23,
        dropout=0.0,
        layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}},
    )
    model = build(config, n_tokens)
    model.heads["token"] = MaskedHead(model.embedding.weight)
    model.heads["boundary"] = BoundaryHead(model.embedding.weight, 10)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()


def test_terms_are_sums_over_hidden_tokens():
    model = encoder(LAST)
    batch = maskings(begins_word=np.ones(LAST, bool), spans=SpanLengths())([1, 3, 5], 0)
    hidden = model(batch.inputs)
    objective = CombinedObjective(MaskedToken(chunk=3), SpanBoundary(chunk=4))
    terms = {term.name: term for term in objective(hidden, model.heads, batch)}
    token = boundary = 0.0
    for i, (place, wanted) in enumerate(zip(batch.rows.tolist(), batch.targets.tolist(), strict=True)):
        token -= model.heads["token"](hidden[place]).log_softmax(-1)[wanted].item()
        head, spans = model.heads["boundary"], batch.spans
        y = head.transform(*(x[i : i + 1] for x in (hidden[spans.before], hidden[spans.after], spans.within)))
        boundary -= head.out(y)[0].log_softmax(-1)[wanted].item()
    assert terms["token"].sum.item() == pytest.approx(token, rel=1e-4)
    assert terms["boundary"].sum.item() == pytest.approx(boundary, rel=1e-4)
    assert objective.counts(batch) == dict.fromkeys(("token", "nll", "boundary"), len(batch.targets))


# Gaps ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processor():
    return TextProcessor(train_tokenizer(WordConfig(kind="word"), [" ".join(WORDS)] * 2))


def filler(model, tokenizer, longest, budget=BATCH_TOKENS, **options):
    return MaskFiller(model, tokenizer, longest=longest, options=PredictOptions(**options), budget=budget)


def test_masks_are_filled_with_what_the_model_finds_likeliest(processor):
    model = encoder(processor.text.vocab_size)
    texts = ["one [MASK] three", "two", "", "[MASK] [MASK] six", "[MASK]"]
    predictions = filler(model, processor.text, longest=23, budget=9, n_best=3).predict(texts)
    assert len(predictions) == len(texts)
    for text, prediction in zip(texts, predictions, strict=True):
        n = text.count("[MASK]")
        if not n:
            assert prediction.text == text
            assert prediction.notes == (("there is no [MASK] to fill" if text else "the input is empty"),)
            continue
        words = text.split()
        ids = [MASK if word == "[MASK]" else processor.text.encode(word)[0] for word in words]
        with torch.no_grad():
            log_probs = model.heads["token"](model(Tokens.of([[CLS, *ids, SEP]])))[1:-1].log_softmax(-1)
        best = {
            place: FIRST + int(log_probs[place, FIRST:].argmax()) for place, i in enumerate(ids) if i == MASK
        }
        assert prediction.text == processor.text.decode([best.get(place, i) for place, i in enumerate(ids)])
        assert prediction.tokens == processor.text.tokens(list(best.values()))
        expected = [log_probs[place, i].item() for place, i in best.items()]
        assert prediction.log_probs == pytest.approx(expected, abs=1e-5)
        scores = [prediction.score, *(p.score for p in prediction.alternatives)]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert prediction.score == pytest.approx(sum(expected), abs=1e-5)


def test_several_masks_are_ranked_together(processor):
    model = encoder(processor.text.vocab_size)
    (prediction,) = filler(model, processor.text, longest=23, n_best=7).predict(["[MASK] [MASK]"])
    with torch.no_grad():
        log_probs = model.heads["token"](model(Tokens.of([[CLS, MASK, MASK, SEP]])))[1:3].log_softmax(-1)
    sums = (
        (log_probs[0, FIRST:, None] + log_probs[1, None, FIRST:]).flatten().sort(descending=True).values[:7]
    )
    found = [prediction.score, *(p.score for p in prediction.alternatives)]
    assert found == pytest.approx(sums.tolist(), abs=1e-5)


def test_pairs_are_read_with_their_segments_whatever_else_is_read(processor):
    """Masks of both are filled, with the probability that the second follows; singles are as they were."""
    model, width = encoder(processor.text.vocab_size), 23
    model.heads["next"] = torch.nn.Linear(model.heads["token"].transform[0].in_features, 2)
    pair = ("one [MASK] three", "five [MASK]")
    inputs = [pair, "one [MASK]", ("two", "six seven"), "", ("", "")]
    found = filler(model, processor.text, longest=width, budget=9, n_best=2).predict(inputs)
    whole = [[CLS, *processor.text.encode("one"), MASK, *processor.text.encode("three"), SEP]]
    whole.append([*processor.text.encode("five"), MASK, SEP])
    segments = torch.tensor([0] * 5 + [1] * 3)
    tokens = replace(Tokens.of([whole[0] + whole[1]]), segments=segments)
    with torch.no_grad():
        hidden = model(tokens)
        best = FIRST + model.heads["token"](hidden)[:, FIRST:].argmax(-1)
        pooled = model.heads["pooled"](hidden, tokens.layout)
        follows = model.heads["next"](pooled).softmax(-1)[0, FOLLOWS].item()
    (second,), (fifth,) = processor.text.tokens([best[2]]), processor.text.tokens([best[6]])
    assert found[0].text == f"one {second} three\tfive {fifth}"
    assert found[0].follows == pytest.approx(follows, abs=1e-6)
    assert [each.follows is None for each in found] == [False, True, False, True, False]
    assert [found[1]] == filler(model, processor.text, longest=width, n_best=2).predict([inputs[1]])
    assert (found[2].text, found[2].notes) == ("two\tsix seven", ())


def test_a_pair_is_cut_where_it_is_longer(processor):
    (found,) = filler(encoder(processor.text.vocab_size), processor.text, longest=9).predict(
        [("[MASK] " + "one " * 9 + "[MASK]", "two [MASK]")]
    )
    assert found.notes == ("cut by 7 tokens",)  # 4 + 2 of 13 beside three special tokens
    assert len(found.tokens) == 2
    assert found.text.split("\t")[0].split()[1:] == ["one"] * 3
    assert found.follows is None  # it never learned that


def test_another_text_may_stand_for_a_mask(processor):
    model = encoder(processor.text.vocab_size)
    one, other = (filler(model, processor.text, longest=23, gap=gap) for gap in ("[MASK]", "___"))
    assert one.predict(["one [MASK]"])[0].text == other.predict(["one ___"])[0].text
    with pytest.raises(RequestError, match="empty"):
        filler(model, processor.text, longest=23, gap="")


def test_a_predictor_is_made_once_and_refuses_at_that_time(processor, monkeypatch):
    task = task_of("masked-language-modelling", processor, ["text"], model={"max_length": 23})
    model, made = encoder(processor.text.vocab_size), []
    init = MaskFiller.__init__
    monkeypatch.setattr(MaskFiller, "__init__", lambda *a, **k: made.append(1) or init(*a, **k))
    options = PredictOptions(n_best=2)
    predictor = task.predictor(Inference(model), options)
    found = [predictor.predict([text]) for text in ("one [MASK]", "two [MASK]")]
    assert len(made) == 1
    assert found == [task.predict(model, [text], options) for text in ("one [MASK]", "two [MASK]")]
    with pytest.raises(RequestError, match="attention over a source"):
        task.predictor(Inference(model), PredictOptions(attention=True)).predict(["one"])
    with pytest.raises(RequestError, match="empty"):
        task.predictor(Inference(model), PredictOptions(gap=""))


def test_a_long_text_is_cut_and_says_so(processor):
    (prediction,) = filler(encoder(processor.text.vocab_size), processor.text, longest=7).predict(
        ["[MASK]" + " one" * 9]
    )
    assert prediction.notes == ("cut by 5 tokens",)


def test_words_cannot_be_distinguished_from_characters():
    with pytest.raises(RequestError, match="do not show where words begin"):
        word_beginnings(train_tokenizer(CharacterConfig(kind="character"), ["one two"]))


def test_a_mask_beyond_what_is_read_is_said_to_be_there(processor):
    (prediction,) = filler(encoder(processor.text.vocab_size), processor.text, longest=7).predict(
        ["one " * 9 + "[MASK]"]
    )
    assert prediction.text == "one " * 9 + "[MASK]"
    assert prediction.notes == ("[MASK] lies beyond the 5 tokens that are read",)


def test_there_are_no_more_answers_than_tokens(processor):
    model = encoder(processor.text.vocab_size)
    (prediction,) = filler(model, processor.text, longest=23, n_best=99).predict(["one [MASK]"])
    assert 1 + len(prediction.alternatives) == len(WORDS)
    assert all(np.isfinite(each.score) for each in (prediction, *prediction.alternatives))


class Knowing(torch.nn.Module):
    """Answers each mask with the token that is wanted; likelier still is a piece that begins no word."""

    def __init__(self, n_tokens, wanted, tempting):
        super().__init__()
        self.n_tokens, self.wanted, self.tempting = n_tokens, wanted, tempting
        self.heads = {"token": lambda hidden: hidden}
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens):
        self.seen = tokens.ids.tolist()
        logits = torch.zeros(len(self.seen), self.n_tokens)
        logits[:, self.wanted] = 3.0
        logits[:, self.tempting] = 5.0
        return logits


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
def test_a_text_is_read_as_in_training_and_stays_as_it_is_around_its_masks(kind):
    text = "the old cat sat on the mat, and that's that."
    config = TypeAdapter(TokenizerConfig).validate_python({"kind": kind, "vocab_size": 330})
    tokenizer = train_tokenizer(config, [text] * 9)
    pieces, whole = tokenizer.model.pieces, tokenizer.encode(text)
    tempting = next(i for i, piece in enumerate(pieces) if piece and not piece.startswith(b" "))
    known = [word for word in ("the", "old", "cat", "sat", "on", "mat") if f" {word}".encode() in pieces]
    assert len(known) > 2
    for word in known:
        wanted = pieces.index(f" {word}".encode())
        for place in [n for n, i in enumerate(whole) if i == wanted][:1]:
            model = Knowing(len(pieces), wanted, tempting)
            masked = text.replace(word, "[MASK]", 1)
            assert filler(model, tokenizer, longest=99).predict([masked])[0].text == text
            assert model.seen == [CLS, *whole[:place], MASK, *whole[place + 1 :], SEP]
