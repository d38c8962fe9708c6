"""Completion: a language model continues prompts; its context slides, and stop strings end the text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.config import BeamConfig, DecodingConfig, decode
from heedful.decoding.protocol import DecodingState, Hypothesis, Request, StepOutput
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.files import is_unicode
from heedful.models.base import Model
from heedful.nn.layout import Tokens
from heedful.nn.state import State
from heedful.tasks.generation.generator import n_hypotheses
from heedful.tasks.generation.streaming import Detokenizer, OnText, Streaming, streamed
from heedful.tasks.inputs.texts import group_by_length, join_notes, unknown_note
from heedful.tasks.prediction import DEFAULT_OPTIONS, Prediction, PredictOptions, TaskInput, as_text
from heedful.text.parts import encode_long
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

    def expand(self, width: int) -> "ContinuedState":
        """Repeat every hypothesis ``width`` times, side by side."""
        return ContinuedState(self.inner.expand(width), tuple(x for x in self.lines for _ in range(width)))

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
        self, model: Model, context: int, stops: Stops, end: int, device: torch.device | str = "cpu"
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

    def step(
        self, ids: Int[Tensor, " N"], state: DecodingState, parents: Int[Tensor, " N"] | None
    ) -> StepOutput:
        """Write one token for every hypothesis: row n continues row ``parents[n]``."""
        if parents is not None:
            state = state.select(parents)
        assert isinstance(state, ContinuedState)
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


# Prompts that are continued together: so many tokens of the rectangle [prompts, hypotheses, longest].
DECODING_BUDGET = 16384


@dataclass(frozen=True)
class Limits:
    """Where a completion ends, if the model does not end it.

    Args:
        max_new_tokens: the most tokens to write, the end token included.
        stop: texts at which it ends; they are not part of it.

    Raises:
        RequestError: no token may be written, or a stop string is empty.
    """

    max_new_tokens: int = 200
    stop: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise RequestError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        if isinstance(self.stop, str) or "" in self.stop:
            raise RequestError("stop: give a list of texts, none of them empty")

    def changed(self, options: PredictOptions) -> "Limits":
        """Return these limits with those of the options, if they have any."""
        n, stop = options.max_new_tokens, options.stop
        return Limits(self.max_new_tokens if n is None else n, self.stop if stop is None else stop)


class Completer(Streaming):
    """A language model with its tokenizer: prompts in, their continuations out, as many and in order.

    An empty prompt is replaced by the end token, which precedes every document in training. Of a prompt that
    is longer than the model's context, the last tokens are read, and the prediction notes it; the completion
    may be longer than the context (see `Continuation`).

    Args:
        model: keeps the model contract, without a source; put into evaluation mode here.
        tokenizer: of the text.
        decoding: how to decode.
        context: the most tokens that the model reads at once.
        options: the ``prefix``, which is read as one text with each prompt (a task with examples, say), and
            ``progress``; ``max_new_tokens`` and ``stop`` take precedence over ``limits``.
        limits: where a completion ends.
        budget: maximum number of tokens of a batch, with padding and all hypotheses.
        inference: the model made ready for decoding; by default it is made so here.

    Raises:
        RequestError: if the decoding refers to a source, or the prefix fills the context.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        *,
        context: int,
        options: PredictOptions = DEFAULT_OPTIONS,
        limits: Limits = Limits(),
        budget: int = DECODING_BUDGET,
        inference: Inference | None = None,
    ) -> None:
        self.model, self.tokenizer, self.decoding = model.eval(), tokenizer, decoding
        self.context, self.options, self.budget = context, options, budget
        self.limits = limits.changed(options)
        self.stops = Stops(tokenizer, tuple(self.limits.stop))
        refuse_source(decoding)
        self.prefix = "" if options.prefix is None else self._checked(options.prefix)
        self.inference = inference or Inference(self.model)

    def _checked(self, prefix: str) -> str:
        """A prefix that leaves room for a prompt."""
        if not isinstance(prefix, str) or not is_unicode(prefix):
            raise RequestError(f"prefix: a text is wanted, not {prefix!r}")
        n = sum(map(len, encode_long(self.tokenizer, prefix)))
        if n >= self.context:
            raise RequestError(
                f"prefix: has {n:,} tokens, and the model reads {self.context:,} at once, "
                "those of the prompt among them: make it shorter"
            )
        return prefix

    @torch.inference_mode()
    def predict(
        self, inputs: Sequence[TaskInput], *, first: int = 0, on_text: OnText | None = None
    ) -> list[Prediction]:
        """Continue prompts; the answers do not repeat them. See `Streaming.predict`."""
        if self.options.alignment:
            raise RequestError("a language model has no source, so there is no alignment")
        texts = [as_text(task_input) for task_input in inputs]
        prompts = self.tokenizer.encode_batch([self.prefix + text for text in texts])
        results: list[Prediction] = [Prediction("") for _ in texts]
        for group in self._groups(prompts):
            answers = self._decode([prompts[i] for i in group], [first + i for i in group], on_text)
            for i, hypotheses in zip(group, answers, strict=True):
                results[i] = self._prediction(texts[i], prompts[i], hypotheses)
            self.options.progress(len(group))
        return results

    def _groups(self, prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of prompts, longest first, cut into groups of bounded size."""
        width, new = n_hypotheses(self.decoding), self.limits.max_new_tokens
        lengths = {i: len(prompt) for i, prompt in enumerate(prompts)}
        return group_by_length(lengths, self.budget, lambda n: min(max(n, 1) + new, self.context) * width)

    def _decode(
        self,
        prompts: Sequence[Sequence[int]],
        ordinals: Sequence[int],
        on_text: OnText | None,
    ) -> list[list[Hypothesis]]:
        specials = self.tokenizer.specials
        device = next(self.model.parameters()).device
        step = Continuation(self.inference.ready(), self.context, self.stops, specials.end, device)
        first = step.prefill([prompt or [specials.end] for prompt in prompts])
        with streamed(self._detokenizer(prompts[0]), on_text) as on_token:
            request = Request(
                first,
                step.step,
                end=specials.end,
                max_lengths=[self.limits.max_new_tokens] * len(prompts),
                forbidden=specials.never_written,
                ordinals=ordinals,
                on_token=on_token,
            )
            return decode(self.decoding, request)

    def _detokenizer(self, prompt: Sequence[int]) -> Detokenizer:
        """Of the answer to a prompt."""
        stops = self.stops
        return Detokenizer(self.tokenizer, stops.before, stops.certain, begun=bool(prompt), is_local=True)

    def _prediction(self, text: str, prompt: Sequence[int], hypotheses: Sequence[Hypothesis]) -> Prediction:
        first, *others = [self._detokenizer(prompt).prediction(h) for h in hypotheses]
        unknown = unknown_note(self.tokenizer, [self.prefix + text], [prompt])
        note, cut = join_notes(self._cut_note(len(prompt)), unknown), max(0, len(prompt) - self.context)
        return replace(first, alternatives=others, note=note, cut=cut)

    def _cut_note(self, n: int) -> str | None:
        """Note that a prompt of ``n`` tokens was truncated."""
        if n <= self.context:
            return None
        whole = f"the {n} tokens of prefix and prompt" if self.prefix else f"the prompt's {n} tokens"
        return f"of {whole}, the last {self.context} were read"


def refuse_source(decoding: DecodingConfig) -> None:
    """Refuse a decoding that refers to a source, which a language model does not have.

    Raises:
        RequestError: naming the key.
    """
    if decoding.max_length != type(decoding).model_fields["max_length"].default:
        raise RequestError(
            "decoding.max_length is not supported here (a completion has no source to measure by); set "
            "completion.max_new_tokens"
        )
    if isinstance(decoding, BeamConfig) and decoding.coverage:
        raise RequestError(
            "decoding.coverage is not supported here (a language model has no source); remove it"
        )
