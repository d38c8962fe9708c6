"""Windows with hidden tokens, pairs, and gaps that are filled."""

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from heedful.data.masking import Masking, SpanLengths
from heedful.errors import RequestError
from heedful.models.encoder import EncoderConfig, build
from heedful.nn.layout import Tokens
from heedful.nn.output import BoundaryHead, MaskedHead
from heedful.objectives.masked import MaskedToken, Several, SpanBoundary
from heedful.tasks.language_modelling import TextCodec
from heedful.tasks.masking import FOLLOWS, STRANGE, Filler, Maskings, word_beginnings
from heedful.text.configuration import CharacterConfig, TokenizerConfig, WordConfig
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer

MASK, FIRST, LAST = SPECIALS.mask, len(SPECIALS), 203
CLS, SEP = SPECIALS.classify, SPECIALS.separate
STREAM = np.arange(FIRST, LAST)  # every token once, so that its place is known
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]


def maskings(pairs=False, **options):
    return Maskings(STREAM, 23, Masking(MASK, FIRST, LAST, **options), pairs=pairs, seed=3)


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


def test_half_of_the_pairs_follow_each_other():
    made = maskings(pairs=True)
    classes = []
    for epoch in range(60):
        batch = made(range(10), epoch)
        for row, segments, kind in zip(
            originals(batch),
            batch.inputs.segments.split(list(batch.inputs.layout.lengths)),
            batch.classes,
            strict=True,
        ):
            cut = row.index(SEP)
            assert row[0] == CLS
            assert row[-1] == SEP
            assert segments.tolist() == [0] * (cut + 1) + [1] * (len(row) - cut - 1)
            follows = (row[cut + 1] - row[cut - 1]) % len(STREAM) == 1
            assert follows == (kind == FOLLOWS) or kind == STRANGE  # chance may find the very place
            classes.append(int(kind))
    assert 0.4 < np.mean(classes) < 0.6


def test_spans_lie_where_the_batch_says():
    made = maskings(begins_word=np.ones(LAST, bool), spans=SpanLengths())
    batch = made([1, 3, 5], 0)
    for place, before, after, within in zip(
        batch.rows, batch.spans.before, batch.spans.after, batch.spans.within, strict=True
    ):
        assert before < place < after
        assert within == place - before - 1


# Objectives ------------------------------------------------------------------------------------------------


def encoder(n_tokens, **options):
    torch.manual_seed(3)
    config = EncoderConfig(d_model=14, d_ff=19, n_heads=2, n_layers=1, max_length=23, dropout=0.0)
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
    objective = Several(MaskedToken(chunk=3), SpanBoundary(chunk=4))
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
def codec():
    return TextCodec(train_tokenizer(WordConfig(kind="word"), [" ".join(WORDS)] * 2))


def test_gaps_are_filled_with_what_the_model_finds_likeliest(codec):
    model = encoder(codec.text.vocab_size)
    texts = ["one [MASK] three", "two", "", "[MASK] [MASK] six", "[MASK]"]
    predictions = Filler(model, codec, longest=23, n_best=3, budget=9).predict(texts)
    assert len(predictions) == len(texts)
    for text, prediction in zip(texts, predictions, strict=True):
        n = text.count("[MASK]")
        if not n:
            assert prediction.text == text
            assert prediction.note == "there is no [MASK] to fill"
            continue
        words = text.split()
        ids = [MASK if word == "[MASK]" else codec.text.encode(word)[0] for word in words]
        with torch.no_grad():
            log_probs = model.heads["token"](model(Tokens.of([[CLS, *ids, SEP]])))[1:-1].log_softmax(-1)
        best = {
            place: FIRST + int(log_probs[place, FIRST:].argmax()) for place, i in enumerate(ids) if i == MASK
        }
        assert prediction.text == codec.text.decode([best.get(place, i) for place, i in enumerate(ids)])
        assert prediction.tokens == codec.text.tokens(list(best.values()))
        expected = [log_probs[place, i].item() for place, i in best.items()]
        assert prediction.log_probs == pytest.approx(expected, abs=1e-5)
        scores = [prediction.score, *(p.score for p in prediction.alternatives)]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert prediction.score == pytest.approx(sum(expected), abs=1e-5)


def test_several_gaps_are_ranked_together(codec):
    model = encoder(codec.text.vocab_size)
    (prediction,) = Filler(model, codec, longest=23, n_best=7).predict(["[MASK] [MASK]"])
    with torch.no_grad():
        log_probs = model.heads["token"](model(Tokens.of([[CLS, MASK, MASK, SEP]])))[1:3].log_softmax(-1)
    sums = (
        (log_probs[0, FIRST:, None] + log_probs[1, None, FIRST:]).flatten().sort(descending=True).values[:7]
    )
    found = [prediction.score, *(p.score for p in prediction.alternatives)]
    assert found == pytest.approx(sums.tolist(), abs=1e-5)


def test_another_text_may_stand_for_a_gap(codec):
    model = encoder(codec.text.vocab_size)
    one, other = (Filler(model, codec, longest=23, gap=gap) for gap in ("[MASK]", "___"))
    assert one.predict(["one [MASK]"])[0].text == other.predict(["one ___"])[0].text
    with pytest.raises(RequestError, match="empty"):
        Filler(model, codec, longest=23, gap="")


def test_a_long_text_is_cut_and_says_so(codec):
    (prediction,) = Filler(encoder(codec.text.vocab_size), codec, longest=7).predict(["[MASK]" + " one" * 9])
    assert prediction.note == "cut by 5 tokens"


def test_words_cannot_be_told_from_characters():
    with pytest.raises(RequestError, match="whole words cannot be told"):
        word_beginnings(train_tokenizer(CharacterConfig(kind="character"), ["one two"]))


def test_a_gap_beyond_what_is_read_is_said_to_be_there(codec):
    (prediction,) = Filler(encoder(codec.text.vocab_size), codec, longest=7).predict(["one " * 9 + "[MASK]"])
    assert prediction.text == "one " * 9 + "[MASK]"
    assert prediction.note == "[MASK] lies beyond the 5 tokens that are read"


def test_there_are_no_more_answers_than_tokens(codec):
    model = encoder(codec.text.vocab_size)
    (prediction,) = Filler(model, codec, longest=23, n_best=99).predict(["one [MASK]"])
    assert 1 + len(prediction.alternatives) == len(WORDS)
    assert all(np.isfinite(each.score) for each in (prediction, *prediction.alternatives))


class Knowing(torch.nn.Module):
    """Answers each gap with the token that is told; likelier still is a piece that begins no word."""

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
def test_a_text_is_read_as_in_training_and_stays_as_it_is_around_its_gaps(kind):
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
            filler = Filler(model, TextCodec(tokenizer), longest=99)
            assert filler.predict([text.replace(word, "[MASK]", 1)])[0].text == text
            assert model.seen == [CLS, *whole[:place], MASK, *whole[place + 1 :], SEP]
