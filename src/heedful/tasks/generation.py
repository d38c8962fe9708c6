"""Between a model, which gives hidden states, and the decoders, which want logits and a step."""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from heedful.decoding.protocol import StepOutput
from heedful.models.base import Model
from heedful.nn.layout import Layout, Tokens
from heedful.nn.patches import Images
from heedful.nn.state import State
from heedful.nn.taps import capture


class Generator:
    """The step function of a model.

    Args:
        model: keeps the model contract (``start``, ``extend``, ``heads``); where it has a ``step`` for
            single tokens, that is taken.
        attention: whether steps also give the weights over the source (mean over the heads of the last
            layer that reads it), which a coverage penalty needs.
    """

    def __init__(self, model: Model, *, attention: bool = False) -> None:
        self.model, self.head = model, model.heads["token"]
        self._step = getattr(model, "step", None)
        self.tap = model.alignment_taps[-1] if attention and model.alignment_taps else None

    def prefill(self, source: Tokens | Images | None, prefixes: Tokens) -> StepOutput:
        """Read the source, if there is one, and the prefixes; logits of the first new token, ``[B, V]``."""
        begun = prefixes.layout.n_sequences if source is None else source
        return self._extend(prefixes, self.model.start(begun))

    def step(self, ids: Int[Tensor, " N"], state: Any, parents: Int[Tensor, " N"] | None) -> StepOutput:
        """Write one token for every hypothesis: row n continues row ``parents[n]``."""
        if parents is not None:
            state = state.select(parents)
        if self._step is not None:
            logits, state = self._step(ids, state)
            return StepOutput(logits, state)
        return self._extend(Tokens(ids, state.next_layout((1,) * len(ids))), state)

    def _extend(self, tokens: Tokens, state: State) -> StepOutput:
        if self.tap is None:
            hidden, state = self.model.extend(tokens, state)
            return StepOutput(self._logits(hidden, tokens.layout), state, None)
        with capture(getattr(self.model, "model", self.model), {self.tap: None}) as seen:
            hidden, state = self.model.extend(tokens, state)
        weights = last_rows(seen[self.tap][-1], tokens.layout)
        return StepOutput(self._logits(hidden, tokens.layout), state, weights)

    def _logits(self, hidden: Tensor, layout: Layout) -> Float[Tensor, "N V"]:
        single = layout.n_tokens == layout.n_sequences
        return self.head(hidden if single else hidden[layout.last])


def last_rows(weights: Float[Tensor, "B H Q S"], layout: Layout) -> Float[Tensor, "N S"]:
    """Weights of each hypothesis' last token, averaged over heads.

    Row b of ``weights`` holds the queries of all hypotheses of sentence b, one after another.
    """
    mean = weights.mean(1)
    width = layout.n_sequences // mean.shape[0]
    return layout.merge(width).unpad(mean)[layout.last]


def n_hypotheses(decoding: GreedyConfig | BeamConfig | SampleConfig) -> int:
    """Hypotheses that run side by side for an input."""
    if isinstance(decoding, BeamConfig):
        return decoding.beam
    return decoding.n if isinstance(decoding, SampleConfig) else 1
