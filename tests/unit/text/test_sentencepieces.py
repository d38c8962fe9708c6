"""Models of the sentencepiece library in heedful's tokenizer. (The same tokens as Marian's: tests/parity.)"""

import io

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from heedful.errors import DamagedError, RequestError
from heedful.text.configuration import SentencePieceConfig
from heedful.text.sentencepieces import Vocabulary, sentencepiece_data
from heedful.text.specials import SPECIALS
from heedful.text.subwords import build
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_tokenizer

KIND = SentencePieceConfig(kind="sentencepiece")
LINES = ["the red dog runs", "a blue cat sleeps, and the dogs sleep too", "birds sing"] * 7
CODE = ">>fra<<"


def learned(**options):
    """The library's file."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, minloglevel=2, hard_vocab_limit=False, **options
    )
    return model.getvalue()


def tokenizer_of(model, *more, drop=()):
    """With the pieces of the model in reverse order, and others behind them."""
    processor = SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(i) for i in range(3, len(processor))][::-1]
    names = ("</s>", "<unk>", *(piece for piece in pieces if piece not in drop), *more, "<pad>")
    specials = [None] * len(SPECIALS)
    specials[SPECIALS.end], specials[SPECIALS.unknown], specials[SPECIALS.start] = 0, 1, len(names) - 1
    return Tokenizer(build(KIND, sentencepiece_data(model, Vocabulary(names, tuple(specials)))))


def test_pieces_are_those_of_the_library():
    model = learned(vocab_size=60)
    tokenizer, processor = tokenizer_of(model), SentencePieceProcessor(model_proto=model)
    for line in [*LINES[:3], "dogs  sing ﬁne", ""]:
        assert tokenizer.tokens(tokenizer.encode(line)) == [
            piece if piece in tokenizer.model.labels else "<unk>"
            for piece in processor.encode(line, out_type=str)
        ]
        known = "".join(letter for letter in line if letter in " ".join(LINES))
        assert tokenizer.decode(tokenizer.encode(known)) == processor.decode(processor.encode(known))


def test_pieces_outside_the_vocabulary_are_unknown():
    model = learned(vocab_size=60)
    (first, *_) = tokenizer_of(model).tokens(tokenizer_of(model).encode("the red dog"))
    found = tokenizer_of(model, drop=(first,)).encode("the red dog")
    assert found[0] == SPECIALS.unknown
    assert SPECIALS.unknown not in found[1:]


def test_characters_without_a_piece_become_bytes():
    tokenizer = tokenizer_of(learned(vocab_size=330, byte_fallback=True))
    for text in ("dogs 🐈 sing", "நாய்"):
        ids = tokenizer.encode(text)
        assert SPECIALS.unknown not in ids
        assert tokenizer.decode(ids) == text


def test_a_language_code_is_a_token_only_at_the_beginning():
    tokenizer = tokenizer_of(learned(vocab_size=60), CODE)
    (code, *rest) = tokenizer.encode(f"{CODE} the dog")
    assert tokenizer.tokens([code]) == [CODE]
    assert rest == tokenizer.encode("the dog")
    place = tokenizer.encode(f"the {CODE} dog")
    assert code not in place
    assert code not in tokenizer.encode(">>deu<< the dog")


def test_it_is_saved_to_one_file(tmp_path):
    saved = tokenizer_of(learned(vocab_size=60), CODE)
    saved.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.fingerprint == saved.fingerprint
    assert loaded.encode_batch(LINES) == saved.encode_batch(LINES)
    assert not loaded.is_lossless_without_unknown


def test_a_damaged_model_is_an_error(tmp_path):
    saved = tokenizer_of(learned(vocab_size=60))
    saved.model.data["model"] = "bm90aGluZw=="
    saved.save(tmp_path / "tokenizer.json")
    with pytest.raises(DamagedError, match="cannot rebuild the tokenizer"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_it_is_not_trained():
    with pytest.raises(
        RequestError, match=r"cannot be trained, only imported \(heedful import\); use kind=unigram"
    ):
        train_tokenizer(KIND, LINES)
