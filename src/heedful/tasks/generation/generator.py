"""Models as decoders use them, step by step, and the scores of finished texts in one forward pass."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from heedful.decoding.protocol import DecodingState, StepOutput
from heedful.models.base import Model
from heedful.nn.layout import Layout, Tokens
from heedful.nn.patches import Images
from heedful.nn.state import State
from heedful.nn.taps import capture

CHUNK = 1024
"""Tokens whose logits exist at one time."""


class Generator:
    """The step function of a model.

    Args:
        model: follows the model contract (``start``, ``extend``, ``heads``); its ``step`` for single tokens
            is used, if it has one.
        attention: whether steps also return the weights over the source (mean over the heads of the last
            layer that reads it), which a coverage penalty needs.
    """

    def __init__(self, model: Model, *, attention: bool = False) -> None:
        self.model, self.head = model, model.heads["token"]
        self._step = getattr(model, "step", None)
        self.tap = model.alignment_taps[-1] if attention and model.alignment_taps else None

    def prefill(self, source: Tokens | Images | None, prefixes: Tokens) -> StepOutput:
        """Encode the source, if any, and the prefixes; return the logits of the next token, ``[B, V]``."""
        state = self.model.start(prefixes.layout.n_sequences if source is None else source)
        return self._extend(prefixes, state)

    def step(
        self, ids: Int[Tensor, " N"], state: DecodingState, parents: Int[Tensor, " N"] | None
    ) -> StepOutput:
        """Append one token to every hypothesis: row n continues row ``parents[n]``."""
        if parents is not None:
            state = state.select(parents)
        if self._step is not None:
            logits, state = self._step(ids, state)
            return StepOutput(logits, state)
        assert isinstance(state, State)
        return self._extend(Tokens(ids, state.next_layout((1,) * len(ids))), state)

    def _extend(self, tokens: Tokens, state: State) -> StepOutput:
        if self.tap is None:
            hidden, state = self.model.extend(tokens, state)
            return StepOutput(self._logits(hidden, tokens.layout), state, None)
        with capture(getattr(self.model, "model", self.model), {self.tap: None}) as activations:
            hidden, state = self.model.extend(tokens, state)
        weights = last_rows(activations[self.tap][-1], tokens.layout)
        return StepOutput(self._logits(hidden, tokens.layout), state, weights)

    def _logits(self, hidden: Tensor, layout: Layout) -> Float[Tensor, "N V"]:
        single = layout.n_tokens == layout.n_sequences
        return self.head(hidden if single else hidden[layout.last])


def last_rows(weights: Float[Tensor, "B H Q S"], layout: Layout) -> Float[Tensor, "N S"]:
    """Return the weights of each hypothesis' last token, averaged over heads.

    Row b of ``weights`` holds the queries of all hypotheses of sentence b, one after another.
    """
    mean = weights.mean(1)
    width = layout.n_sequences // mean.shape[0]
    return layout.merge(width).unpad(mean)[layout.last]


def n_hypotheses(decoding: GreedyConfig | BeamConfig | SampleConfig) -> int:
    """Return how many hypotheses of an input are decoded at a time."""
    if isinstance(decoding, BeamConfig):
        return decoding.beam
    return decoding.n if isinstance(decoding, SampleConfig) else 1


@dataclass(frozen=True)
class TargetScores:
    """The scores of one given target.

    Args:
        log_probs: of each target token and of the end token, ``[T]``.
        alignment: weights over the source, ``[L, H, T, S]``, or None if not requested: those that the
            pass itself used, as captured at its taps (`heedful.nn.taps`).
    """

    log_probs: Float[Tensor, " T"]
    alignment: Float[Tensor, "L H T S"] | None


@torch.no_grad()
def score_targets(model: Model, batch: Batch, *, alignment: bool = False) -> list[TargetScores]:
    """Score the targets of ``batch``, teacher forced; return one result for each sequence."""
    taps = model.alignment_taps if alignment else []
    with capture(model, dict.fromkeys(taps)) as activations:
        hidden = model(batch.inputs, batch.source)
    head = model.heads["token"]
    chunks = zip(batch.picked(hidden).split(CHUNK), batch.targets.split(CHUNK), strict=True)
    log_probs = torch.cat([_log_probs(head(part), targets) for part, targets in chunks])
    lengths = batch.n_answers
    sequences = log_probs.split(list(lengths))
    if not taps:
        return [TargetScores(p, None) for p in sequences]
    assert batch.source is not None
    layers = torch.stack([activations[tap][-1] for tap in taps])
    sources = batch.source.layout.lengths
    return [
        TargetScores(p, layers[:, i, :, :n, :s])
        for i, (p, n, s) in enumerate(zip(sequences, lengths, sources, strict=True))
    ]


def _log_probs(logits: Float[Tensor, "n V"], targets: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    return logits.float().log_softmax(-1).gather(1, targets[:, None])[:, 0]
