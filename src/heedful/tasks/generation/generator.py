"""Models as decoders use them, step by step, and scores of given texts: teacher forced, or free-running."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.decoding.config import BeamSettings, DecodingConfig, SampleSettings
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


def n_hypotheses(decoding: DecodingConfig) -> int:
    """Return how many hypotheses of an input are decoded at a time."""
    if isinstance(decoding, BeamSettings):
        return decoding.beam
    return decoding.n if isinstance(decoding, SampleSettings) else 1


@dataclass(frozen=True)
class TargetScores:
    """The scores of one given target.

    Args:
        log_probs: of each target token and of the end token, ``[T]``.
        correct: whether no token is more probable.
        attention: weights over the source, ``[L, H, T, S]``, or None if not requested: those that the
            pass itself used, as captured at its taps (`heedful.nn.taps`).
    """

    log_probs: Float[Tensor, " T"]
    correct: Bool[Tensor, " T"]
    attention: Float[Tensor, "L H T S"] | None = None


@torch.no_grad()
def score_targets(model: Model, batch: Batch, *, attention: bool = False) -> list[TargetScores]:
    """Score the targets of ``batch``, teacher forced; return one result for each sequence."""
    taps = model.alignment_taps if attention else []
    with capture(model, dict.fromkeys(taps)) as activations:
        hidden = model(batch.inputs, batch.source)
    head = model.heads["token"]
    chunks = zip(batch.picked(hidden).split(CHUNK), batch.targets.split(CHUNK), strict=True)
    scores = [_scores(head(part), targets) for part, targets in chunks]
    lengths = batch.n_answers
    log_probs, correct = (torch.cat(parts).split(list(lengths)) for parts in zip(*scores, strict=True))
    if not taps:
        return [TargetScores(p, c) for p, c in zip(log_probs, correct, strict=True)]
    assert batch.source is not None
    layers = torch.stack([activations[tap][-1] for tap in taps])
    sources = batch.source.layout.lengths
    return [
        TargetScores(p, c, layers[:, i, :, :n, :s])
        for i, (p, c, n, s) in enumerate(zip(log_probs, correct, lengths, sources, strict=True))
    ]


@torch.no_grad()
def score_free_running(
    generator: Generator,
    prefix_output: StepOutput,
    targets: Sequence[Sequence[int]],
    unread: Sequence[int] = (),
) -> list[TargetScores]:
    """Score targets while the model reads its own greedy choices, instead of the targets before each token.

    At position t of a target, the model has read the prefix and its own t - 1 choices. Each choice is the
    most probable token that is not in ``unread``, so the same positions are predicted as with teacher
    forcing, even if the model would end earlier or go on.

    Args:
        generator: the step function of the model.
        prefix_output: of the source, with what precedes each target.
        targets: ids of each target, with its end token; not empty.
        unread: tokens that are never read (special tokens).
    """
    logits, state, _ = prefix_output
    lengths, running = [len(ids) for ids in targets], list(range(len(targets)))
    never = torch.tensor(list(unread), dtype=torch.int64, device=logits.device)
    log_probs = torch.zeros(len(targets), max(lengths, default=0), device=logits.device)
    correct = torch.zeros_like(log_probs, dtype=torch.bool)
    for position in range(log_probs.shape[1]):
        wanted = torch.tensor([targets[i][position] for i in running], device=logits.device)
        log_probs[running, position], correct[running, position] = _scores(logits, wanted)
        kept = [k for k, i in enumerate(running) if lengths[i] > position + 1]
        if not kept:
            break
        choices = logits.index_fill(1, never, float("-inf")).argmax(-1)
        if len(kept) < len(running):
            choices, state, running = choices[kept], state.keep(kept), [running[k] for k in kept]
        logits, state, _ = generator.step(choices, state, None)
    return [TargetScores(p[:n], c[:n]) for p, c, n in zip(log_probs, correct, lengths, strict=True)]


def _scores(
    logits: Float[Tensor, "n V"], targets: Int[Tensor, " n"]
) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
    """Return the log-probability of each target, and whether it is the most probable token."""
    rows = targets[:, None]
    log_probs = logits.float().log_softmax(-1).gather(1, rows)[:, 0]
    return log_probs, logits.gather(1, rows)[:, 0] >= logits.amax(-1)
