"""The step function of a language model: its context slides, and stop strings end what it writes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.protocol import StepOutput
from heedful.nn.layout import Tokens
from heedful.nn.state import State
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Stops:
    """Texts at which writing ends.

    Args:
        tokenizer: spells the tokens.
        texts: none of them empty.
    """

    tokenizer: Tokenizer
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "" in self.texts:
            raise ValueError("an empty stop string would end everything at once")

    @cached_property
    def reach(self) -> int:
        """The most tokens that spell a stop string: every token that is written spells at least one byte."""
        return max((len(text.encode()) for text in self.texts), default=0)

    def reached(self, ids: Sequence[int], *, begun: bool = True) -> bool:
        """Whether the last of the written tokens completes one of the texts; ``begun``: after a prompt."""
        if not self.texts or not ids:
            return False
        reach = self.reach
        spelled = b"".join(self.tokenizer.spelled(ids[-reach:], begun=begun or len(ids) > reach))
        return any(text.encode() in spelled for text in self.texts)

    def before(self, text: str) -> str:
        """The text up to the first of the stop strings in it."""
        places = [place for stop in self.texts if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else text

    def certain(self, text: str) -> str:
        """The beginning of ``before(text + more)`` that is the same whatever more is."""
        ends = [n for stop in self.texts for n in range(1, len(stop)) if text.endswith(stop[:n])]
        return self.before(text)[: len(text) - max(ends, default=0)]


@dataclass(frozen=True)
class Line:
    """The end of a sequence that is being written: as much as is still needed.

    Args:
        ids: the last tokens of the prompt and of what was written.
        prompt: how many of them are the prompt's.
        begin: the first of them that the model sees now.
        begun: whether there is a prompt.
    """

    ids: tuple[int, ...]
    prompt: int
    begin: int = 0
    begun: bool = True

    @property
    def seen(self) -> tuple[int, ...]:
        """What the model sees."""
        return self.ids[self.begin :]

    @property
    def written(self) -> tuple[int, ...]:
        """What was written after the prompt."""
        return self.ids[self.prompt :]

    def followed_by(self, token: int, reach: int) -> "Line":
        """The line with one more token.

        Tokens that the model no longer sees are dropped, so that a step costs the same however long the
        sequence is.

        Args:
            token: its id.
            reach: how many of the last tokens are needed, even if the model does not see them.
        """
        drop = max(0, min(self.begin, len(self.ids) - reach))
        return replace(
            self,
            ids=(*self.ids[drop:], token),
            prompt=max(0, self.prompt - drop),
            begin=self.begin - drop,
        )


@dataclass(frozen=True)
class ContinuedState:
    """The model's state, with the sequences themselves (`heedful.decoding.protocol.DecodingState`)."""

    inner: State
    lines: tuple[Line, ...]

    def select(self, rows: Int[Tensor, " M"]) -> "ContinuedState":
        """The hypotheses ``rows``, in that order."""
        return ContinuedState(self.inner.select(rows), tuple(self.lines[i] for i in rows.tolist()))

    def widen(self, width: int) -> "ContinuedState":
        """Repeat every hypothesis ``width`` times, side by side."""
        return ContinuedState(self.inner.widen(width), tuple(x for x in self.lines for _ in range(width)))

    def keep(self, sentences: Sequence[int]) -> "ContinuedState":
        """Drop all prompts but these, with their hypotheses."""
        width = self.inner.width
        lines = tuple(self.lines[s * width + k] for s in sentences for k in range(width))
        return ContinuedState(self.inner.keep(sentences), lines)


class Continuation:
    """Continues prompts, each as long as it is asked to, whatever the model's context.

    When a sequence fills the context, the model forgets all of it but the newer half, and reads that
    anew from the first position on. So what a token is chosen from depends on its own sequence alone, and
    half a context costs one more pass over half a context.

    Args:
        model: keeps the model contract, without a source; where it has a ``step`` for single tokens, that
            is taken.
        context: the most tokens that the model reads at once.
        stops: where a stop string is completed, the end token alone may follow.
        end: the end token.
        device: where the model is.
    """

    def __init__(
        self, model: Any, context: int, stops: Stops, end: int, device: torch.device | str = "cpu"
    ) -> None:
        self.model, self.head = model, model.heads["token"]
        self.context, self.stops, self.end, self.device = context, stops, end, device
        self._step = getattr(model, "step", None)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> StepOutput:
        """Read the prompts, or the last tokens of those that are too long; none may be empty."""
        # An empty prompt is read as an end token, which no other has.
        lines = [
            Line(tuple(p[-self.context :]), min(len(p), self.context), begun=tuple(p) != (self.end,))
            for p in prompts
        ]
        return self._read(lines, 1)

    def step(self, ids: Int[Tensor, " N"], state: Any, parents: Int[Tensor, " N"] | None) -> StepOutput:
        """Write one token for every hypothesis: row n continues row ``parents[n]``."""
        if parents is not None:
            state = state.select(parents)
        pairs = zip(state.lines, ids.tolist(), strict=True)
        lines = [line.followed_by(token, self.stops.reach) for line, token in pairs]
        full = [len(line.seen) > self.context for line in lines]
        if any(full):
            kept = [self._forget(line) if slides else line for line, slides in zip(lines, full, strict=True)]
            return self._read(kept, state.inner.width)
        if self._step is not None:
            logits, inner = self._step(ids, state.inner)
            return self._output(logits, inner, lines)
        tokens = Tokens(ids, state.inner.next_layout((1,) * len(ids)))
        hidden, inner = self.model.extend(tokens, state.inner)
        return self._output(self.head(hidden), inner, lines)

    def _forget(self, line: Line) -> Line:
        return replace(line, begin=len(line.ids) - max(1, self.context // 2))

    def _read(self, lines: Sequence[Line], width: int) -> StepOutput:
        """All that the sequences show, from the first position on."""
        tokens = Tokens.of([line.seen for line in lines], device=self.device)
        hidden, inner = self.model.extend(tokens, self.model.start(len(lines)))
        logits = self.head(hidden[tokens.layout.last])
        return self._output(logits, replace(inner, width=width), lines)

    def _output(self, logits: Float[Tensor, "N V"], inner: State, lines: Sequence[Line]) -> StepOutput:
        observed = enumerate(lines) if self.stops.texts else ()
        ended = [n for n, line in observed if self.stops.reached(line.written, begun=line.begun)]
        if ended:
            logits[ended] = float("-inf")
            logits[ended, self.end] = 0.0
        return StepOutput(torch.as_tensor(logits), ContinuedState(inner, tuple(lines)))
