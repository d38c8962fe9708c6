"""Where sentences begin in a stream of tokens: against regular expressions on the text that they spell."""

import re
from collections import Counter

import numpy as np
import pytest
from pydantic import TypeAdapter

from heedful.data.masking import Draw
from heedful.data.windows import Sentences, document_beginnings
from heedful.text.configuration import TokenizerConfig
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer

END = SPECIALS.end
KINDS = {
    "bpe": {"kind": "bpe", "vocab_size": 420},
    "bpe of characters": {"kind": "bpe", "vocab_size": 160, "byte_fallback": False},
    "byte-bpe": {"kind": "byte-bpe", "vocab_size": 420, "split": "gpt2"},
    "unigram": {"kind": "unigram", "vocab_size": 420},
    "wordpiece": {"kind": "wordpiece", "vocab_size": 300},
    "word": {"kind": "word"},
    "character": {"kind": "character"},
    "byte": {"kind": "byte"},
}
PATTERNS = [
    " = The {} = \n \n The {} was old ( and {} ) . It fell in 1 @.@ 5 days . \n",
    ' He said " {} , no . " Then the {} went . \n \n = = On {} = = \n \n What {} ? ! Nothing . . . \n',
    " The {} was old (and {}). \"Why?\" asked the {}. It was so\nlong. 'Go!' she said.)  And so on.\n\n",
    " \n = {} = \n \n ... It was a {} , and the {} ; but ( the {} fell . ) And that 's that",
    '"{}" is 3.5 miles away. [No {}.] {}! {}',
]
WORDS = ["cat", "dog", "old mat", "bird", "House", "Tree", "U.S. ship", "river", "stone"]


def documents(n=23, seed=1):
    """Texts of one to nine patterns, with other words in them."""
    draw = np.random.default_rng(seed)

    def filled(pattern):
        return pattern.format(*draw.choice(WORDS, 4))

    return ["".join(filled(draw.choice(PATTERNS)) for _ in range(draw.integers(1, 10))) for _ in range(n)]


def stream(kind, texts):
    tokenizer = train_tokenizer(TypeAdapter(TokenizerConfig).validate_python(KINDS[kind]), texts)
    return tokenizer, np.array([i for text in texts for i in [*tokenizer.encode(text), END]])


def beginnings_in_text(tokenizer, ids):
    """By the text around each token: what the tokens before it in its document spell, and what it spells."""
    found, before = [], b""
    for place, i in enumerate(ids):
        piece = tokenizer.model.pieces[i]
        body = piece.strip()
        apart = re.search(rb"\s$", before) or re.match(rb"\s", piece)
        closes = not body.strip(b".!?)]") or (not body.strip(b"\"'") and not apart)
        ended = re.search(rb"[.!?]([\"']|\s*[.!?)\]])*\s*$", before) and apart
        broken = re.search(rb"\n[\s.!?)\]]*$", before)
        if not before or (before.strip(b" \n.!?)]") and not closes and (ended or broken) and i != END):
            found.append(place)
        before = b"" if i == END else before + (piece or b"\0")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_begin_where_they_do_in_the_text(kind):
    tokenizer, ids = stream(kind, documents())
    found = Sentences(ids, SentenceSigns.of(tokenizer))
    assert found.starts.tolist() == beginnings_in_text(tokenizer, ids.tolist())
    assert len(found.documents) == 23
    assert len(found.starts) > 150


@pytest.mark.parametrize("kind", ["bpe", "character", "unigram"])
def test_the_sentences_of_a_text(kind):
    text = 'The U.S. is 3.5 big. "Why?" he asked… (So he\ndid.) \n\nEnd! 他走了。她说。'
    tokenizer, ids = stream(kind, [text] * 2)
    ids = ids[: len(ids) // 2]
    found = Sentences(ids, SentenceSigns.of(tokenizer))
    cut = [tokenizer.surface(part).strip() for part in np.split(ids, found.starts[1:])]
    assert cut == [
        "The U.S.",  # no abbreviation is known
        "is 3.5 big.",
        '"Why?"',
        "he asked…",
        "(So he",
        "did.)",
        "End!",
        "他走了。",
        "她说。",
    ]


# The stream as a ring ---------------------------------------------------------------------------------------


def made(text):
    """Of letters and stops: ``a`` begins a sentence after ``.``, and ``|`` is an end token."""
    signs = SentenceSigns.synthetic(41)  # 20 and 40 end a sentence
    return Sentences(np.array([{"|": END, ".": 20}.get(sign, 9) for sign in text]), signs)


@pytest.mark.parametrize(
    ("text", "documents", "sentences"),
    [
        ("ab.cd.|e.f|", [0, 7], [0, 3, 7, 9]),
        ("|ab|||c|", [1, 6], [1, 6]),  # what is empty begins nothing
        ("a.b.c", [0], [0, 2, 4]),  # cut off at the end
        ("||", [0], [0]),
        (".", [0], [0]),
    ],
)
def test_documents_and_sentences_by_hand(text, documents, sentences):
    found = made(text)
    assert found.documents.tolist() == documents
    assert found.starts.tolist() == sentences
    assert document_beginnings(np.array([9, END], dtype=np.uint16)).tolist() == [0]


def test_places_are_found_by_plain_loops():
    draw = np.random.default_rng(3)
    for _ in range(60):
        size = int(draw.integers(1, 40))
        found = made("".join(draw.choice(list("aaa.|"), size)))
        begins = set(found.starts.tolist())
        for place in range(size):
            assert found.distance_to_next(place) == next(
                n for n in range(size) if (place + n) % size in begins
            )
            assert found.start_of(place) == next(
                (place - n) % size for n in range(size) if (place - n) % size in begins
            )
            for length in {1, size // 2 + 1, size}:
                inside = [n for n in range(1, length) if (place + n) % size in begins]
                firsts = set(found.documents.tolist())
                within = [n for n in inside if (place + n) % size not in firsts]
                assert found.starts_within(place, length).tolist() == (within or inside)


@pytest.mark.parametrize("text", ["ab.cd.e|f.g|hijklm.n|o|", "|a.bcd||e.f|"])
def test_elsewhere_draws_uniformly_over_tokens_of_other_documents(text):
    found = made(text)
    # Of each place the document, the tokens before the first belong to the last.
    owners = [np.searchsorted(found.documents, place, side="right") - 1 for place in range(len(text))]
    owners = [owner % len(found.documents) for owner in owners]
    for place in (0, 3, 8, len(text) - 1):
        others = [found.start_of(p) for p in range(len(text)) if owners[p] != owners[place]]
        wanted = Counter(others)
        n = 2000
        seen = Counter(found.draw_from_other_document(place, Draw(place, k)) for k in range(n))
        assert set(seen) == set(wanted)
        for start, times in wanted.items():
            share = times / len(others)
            assert abs(seen[start] - n * share) <= 5 * np.sqrt(n * share * (1 - share))


def test_in_one_document_elsewhere_is_anywhere():
    found = made("ab.cd.e|")
    assert {found.draw_from_other_document(1, Draw(k)) for k in range(200)} == {0, 3, 6}
