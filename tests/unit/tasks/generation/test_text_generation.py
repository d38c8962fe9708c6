"""What generates texts: how long they may be, and the order of hypotheses."""

import torch

from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength, SampleConfig
from heedful.models.transformer import TransformerConfig, build
from heedful.tasks.generation.sequence_formats import ENCODER_DECODER, EncoderDecoderFormat
from heedful.tasks.generation.text_generation import Translator
from heedful.tasks.inputs.processor import Tokenizers
from heedful.text.configuration import WordConfig
from heedful.text.training import train_tokenizer


def generator(decoding, pairing=ENCODER_DECODER):
    tokenizer = train_tokenizer(WordConfig(kind="word"), ["one two three four five"])
    torch.manual_seed(3)
    config = TransformerConfig(
        d_model=12, n_layers=1, layer={"mixer": {"n_heads": 3}, "channels": {"d_ff": 17}}
    )
    model = build(config, tokenizer.vocab_size, tokenizer.vocab_size)
    return Translator(model, Tokenizers(tokenizer, tokenizer), decoding, pairing)


@torch.no_grad()
def test_lengths_and_the_pairings_room_bound_what_is_written():
    decoding = GreedyConfig(max_length=MaxLength(ratio=1.0, extra=1))
    sources = [[7, 8], [9], [7, 9, 8, 7]]
    for lengths, longest in (([2, 1, 4], None), ([6, 0, 3], None), ([6, 0, 3], 4)):
        answers = generator(decoding, EncoderDecoderFormat(longest)).generate(sources, lengths, [0, 1, 2])
        most = [n + 1 if longest is None else min(n + 1, longest) for n in lengths]
        for (hypothesis,), bound in zip(answers, most, strict=True):
            written = len(hypothesis.log_probs)
            assert written == bound or (hypothesis.finished and written < bound)


@torch.no_grad()
def test_the_best_answer_comes_first_and_the_others_are_its_alternatives():
    it = generator(BeamConfig(beam=4, n_best=3))
    (hypotheses,) = it.generate([[7, 8, 9]], [3], [0])
    assert len(hypotheses) == 4  # further ones, in case some spell the same text
    prediction = it.prediction([7, 8, 9], hypotheses)
    scores = [prediction.score, *(p.score for p in prediction.alternatives)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    assert [prediction.tokens, *(p.tokens for p in prediction.alternatives)] == [
        it.tokenizer.tokens(h.ids) for h in hypotheses[:3]
    ]


def test_hypotheses_that_run_side_by_side():
    decodings = (GreedyConfig(), BeamConfig(beam=5), SampleConfig(n=3))
    assert [generator(decoding).width for decoding in decodings] == [1, 5, 3]
