"""Pseudo-log-likelihood of texts under a masked language model.

    PLL(x) = sum_t log p(x_t | x without x_t)

Every token is masked once, alone, and predicted from all others (Salazar et al. 2020, "Masked Language Model
Scoring", equation 1). A text of n tokens takes n sequences of n + 2 tokens.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from heedful.models.base import Model
from heedful.nn.layout import Tokens
from heedful.tasks.inputs.texts import CLASS_TEMPLATE, group_by_length
from heedful.tasks.prediction import BATCH_TOKENS
from heedful.text.specials import SPECIALS


class _MaskedToken(NamedTuple):
    """A token to predict: the index of its text, its window in the text, and its position there."""

    text: int
    begin: int
    end: int
    position: int


@torch.inference_mode()
def pseudo_log_probs(
    model: Model, texts: Sequence[Sequence[int]], longest: int, budget: int = BATCH_TOKENS
) -> list[list[float]]:
    """Return the log-probability of each token of each text, given all other tokens of its window.

    Args:
        model: has a head ``token``.
        texts: ids without special tokens.
        longest: the most tokens of a sequence, with both special ones. A longer text is divided into windows
            that do not overlap, all but the last as long as possible.
        budget: maximum number of tokens of a batch, with padding.
    """
    device = next(model.parameters()).device
    masked = [token for i, ids in enumerate(texts) for token in _masked_tokens(i, len(ids), longest - 2)]
    log_probs = [np.zeros(len(ids)) for ids in texts]
    for group in group_by_length({n: token.end - token.begin + 2 for n, token in enumerate(masked)}, budget):
        tokens = [masked[n] for n in group]
        inputs = CLASS_TEMPLATE([[_with_mask(texts[token.text], token)] for token in tokens]).inputs
        assert isinstance(inputs, Tokens)
        inputs = inputs.to(device)
        logits = model.heads["token"](model(inputs)[inputs.ids == SPECIALS.mask])
        targets = torch.tensor([texts[token.text][token.position] for token in tokens], device=device)
        predicted = logits.float().log_softmax(-1).gather(1, targets[:, None])[:, 0]
        for token, value in zip(tokens, predicted.double().tolist(), strict=True):
            log_probs[token.text][token.position] = value
    return [values.tolist() for values in log_probs]


def _masked_tokens(text: int, n: int, window: int) -> Iterator[_MaskedToken]:
    for begin in range(0, n, window):
        end = min(begin + window, n)
        yield from (_MaskedToken(text, begin, end, position) for position in range(begin, end))


def _with_mask(ids: Sequence[int], token: _MaskedToken) -> list[int]:
    window = list(ids[token.begin : token.end])
    window[token.position - token.begin] = SPECIALS.mask
    return window
