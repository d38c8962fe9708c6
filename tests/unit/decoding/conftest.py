"""A toy model whose predictions depend on the sentence and on every token before, in order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch

from heedful.decoding.protocol import Request, StepOutput
from heedful.nn.layout import Tokens
from heedful.nn.state import KeyValueCache, State


@dataclass(frozen=True)
class ToyState:
    """The whole history of each hypothesis, written down by the step function alone."""

    keys: tuple[int, ...]
    prefixes: tuple[tuple[int, ...], ...]
    width: int = 1

    def expand(self, width):
        prefixes = tuple(p for p in self.prefixes for _ in range(width))
        return ToyState(self.keys, prefixes, self.width * width)

    def select(self, rows):
        rows = rows.tolist()
        assert [r // self.width for r in rows] == [n // self.width for n in range(len(self.prefixes))]
        return replace(self, prefixes=tuple(self.prefixes[r] for r in rows))

    def keep(self, sentences):
        w = self.width
        prefixes = tuple(p for i in sentences for p in self.prefixes[i * w : i * w + w])
        return ToyState(tuple(self.keys[i] for i in sentences), prefixes, w)


class Toy:
    """Random logits and attention for each (sentence, prefix).

    Args:
        size: of the vocabulary; its last token is the end token.
        impossible: the share of logits that are minus infinity (never of token 0).
        bias: added to the logit of the end token.
        attends: whether the model gives attention.
    """

    def __init__(self, size, seed=0, impossible=0.0, bias=0.0, attends=True):
        self.size, self.end, self.seed, self.attends = size, size - 1, seed, attends
        self.impossible, self.bias = impossible, bias
        self.rows = []  # hypotheses continued by each call of `step`
        self.logits_of = cache(self.logits_of)
        self.log_probs_of = cache(self.log_probs_of)
        self.attention_of = cache(self.attention_of)

    def source_length(self, key):
        return (2, 5, 3, 7)[key % 4]

    def logits_of(self, key, prefix):
        rng = np.random.default_rng([self.seed, key, len(prefix), *prefix])
        logits = (2 * rng.standard_normal(self.size)).astype(np.float32)
        hidden = rng.random(self.size) < self.impossible
        hidden[0] = False
        logits[hidden] = -np.inf
        logits[self.end] += self.bias
        return logits

    def log_probs_of(self, key, prefix):
        x = self.logits_of(key, prefix).astype(np.float64)
        return x - x.max() - np.log(np.exp(x - x.max()).sum())

    def attention_of(self, key, prefix):
        rng = np.random.default_rng([self.seed, key, 99, len(prefix), *prefix])
        return rng.dirichlet(np.full(self.source_length(key), 0.5))

    def start(self, keys: Sequence[int]):
        state = ToyState(tuple(keys), tuple(() for _ in keys))
        return self._output(state)

    def step(self, ids, state, parents):
        assert len(ids) == len(state.prefixes) == len(state.keys) * state.width
        state = state if parents is None else state.select(parents)
        self.rows.append(len(ids))
        prefixes = tuple((*p, i) for p, i in zip(state.prefixes, ids.tolist(), strict=True))
        return self._output(replace(state, prefixes=prefixes))

    def _output(self, state):
        pairs = [(state.keys[n // state.width], p) for n, p in enumerate(state.prefixes)]
        logits = np.array([self.logits_of(*pair) for pair in pairs], dtype=np.float32)
        logits = torch.from_numpy(logits.reshape(-1, self.size))
        if not self.attends:
            return StepOutput(logits, state, None)
        longest = max((self.source_length(key) for key in state.keys), default=0)
        attention = torch.zeros(len(pairs), longest)
        for n, pair in enumerate(pairs):
            weights = torch.from_numpy(self.attention_of(*pair))
            attention[n, : len(weights)] = weights
        return StepOutput(logits, state, attention)

    def request(self, keys, max_lengths, **others):
        """What every decoder is given."""
        lengths = [self.source_length(key) for key in keys]
        asked = {"end": self.end, "max_lengths": max_lengths, "source_lengths": lengths, **others}
        return Request(self.start(keys), self.step, **asked)


@pytest.fixture(scope="session")
def toy():
    return Toy


class _Memory:
    """The key of each sentence, as the source half of a real state."""

    def __init__(self, keys):
        self.keys = keys

    def select(self, sentences):
        return _Memory(self.keys[sentences])


def _with_real_state(model, keys, max_lengths):
    """The toy model over `State` and `KeyValueCache`: the prefix is read back from the cache."""

    def output(state):
        cache, lengths = state.caches[0], state.lengths
        rows = [] if cache.keys is None else cache.keys[:, 0, :, 0].long().tolist()
        prefixes = [tuple(rows[n][:t]) if t else () for n, t in enumerate(lengths)]
        pairs = [(int(state.memories[0].keys[n // state.width]), p) for n, p in enumerate(prefixes)]
        return StepOutput(torch.from_numpy(np.stack([model.logits_of(*pair) for pair in pairs])), state)

    def step(ids, state, parents):
        state = state if parents is None else state.select(parents)
        tokens = Tokens(ids, state.next_layout([1] * len(ids)))
        written = ids.view(-1, 1, 1, 1).float()
        state.caches[0].append(written, written, tokens.layout)
        return output(state.advanced([1] * len(ids)))

    state = State([_Memory(torch.tensor(keys))], [KeyValueCache()], (0,) * len(keys))
    return Request(output(state), step, end=model.end, max_lengths=max_lengths)


@pytest.fixture(scope="session")
def with_real_state():
    return _with_real_state
