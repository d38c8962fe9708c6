import pytest
import torch

from heedful.decoding.protocol import Request, StepOutput
from heedful.nn.state import State


def request(most, forbidden=(), **others):
    """Two sentences over five tokens, the last of which is the end."""
    first = StepOutput(torch.zeros(2, 5), State([], [], (0, 0)))
    step = lambda ids, state, parents: first  # noqa: E731
    return Request(first, step, end=4, max_lengths=most, forbidden=forbidden, **others)


def test_requests_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="expected 2 maximum lengths, one per sentence, got 3"):
        request([1, 2, 3])
    with pytest.raises(ValueError, match="expected 2 source lengths, one per sentence, got 1"):
        request([1, 2], source_lengths=[7])
    with pytest.raises(ValueError, match="expected 2 ordinals, one per sentence, got 3"):
        request([1, 2], ordinals=[0, 1, 2])
    with pytest.raises(ValueError, match="must not be negative"):
        request([1, -2])
    with pytest.raises(ValueError, match="below the vocabulary size 5, got 5"):
        request([1, 2], [0, 5])


def test_a_token_is_banned_once():
    assert request([1, 2], [3, 0, 3]).banned.tolist() == [0, 3]


@pytest.mark.parametrize("most, begun", [([3, 1, 2], [0, 1, 2]), ([0, 3, 1], [1, 2]), ([2, 0, 0], [0])])
def test_only_sentences_with_room_begin(toy, most, begun):
    model, keys = toy(7), [4, 1, 6]
    sentences, (logits, state, attention) = model.request(keys, most).begin()
    assert sentences == begun
    expected = model.start([keys[b] for b in begun])
    assert state == expected.state
    assert torch.equal(logits, expected.logits)
    assert torch.equal(attention[:, : expected.attention.shape[1]], expected.attention)


def test_where_no_sentence_has_room_none_begins(toy):
    assert toy(7).request([4, 1], [0, 0]).begin()[0] == []
