"""Completion: a language model continues prompts; its context slides, and stop strings end the text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.config import BeamSettings, DecodingConfig, decode, with_spares
from heedful.decoding.protocol import DecodingState, Hypothesis, Request, StepOutput
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.files import is_unicode
from heedful.models.base import Model
from heedful.nn.layout import Tokens
from heedful.nn.modes import evaluating
from heedful.nn.state import State
from heedful.tasks.generation.generator import n_hypotheses
from heedful.tasks.generation.minimum_bayes_risk import answers
from heedful.tasks.generation.output_constraints import (
    NO_CONSTRAINTS,
    ConstraintBuilder,
    OutputConstraints,
    grammar_of,
    separated,
)
from heedful.tasks.generation.streaming import Detokenizer, OnText, Streaming, streamed
from heedful.tasks.inputs.texts import cut_output_note, group_by_length, join_notes, unknown_note
from heedful.tasks.prediction import (
    DEFAULT_OPTIONS,
    Prediction,
    PredictOptions,
    TaskInput,
    as_text,
    check_inputs,
)
from heedful.text.parts import encode_long
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Stops:
    """Texts at which generation ends.

    Args:
        tokenizer: spells the tokens.
        texts: none of them empty.
    """

    tokenizer: Tokenizer
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "" in self.texts:
            raise ValueError("stop strings must not be empty")

    @cached_property
    def max_tokens(self) -> int:
        """The most tokens of a stop string, since every generated token is at least one byte."""
        return max((len(text.encode()) for text in self.texts), default=0)

    def reached(self, ids: Sequence[int], *, is_continuation: bool = True) -> bool:
        """Return whether the last of the generated tokens completes a stop string.

        Args:
            ids: the generated tokens.
            is_continuation: whether they follow a prompt.
        """
        if not self.texts or not ids:
            return False
        max_tokens = self.max_tokens
        utf8 = b"".join(
            self.tokenizer.token_bytes(
                ids[-max_tokens:], is_continuation=is_continuation or len(ids) > max_tokens
            )
        )
        return any(text.encode() in utf8 for text in self.texts)

    def before(self, text: str) -> str:
        """Return the text before its first stop string."""
        positions = [position for stop in self.texts if (position := text.find(stop)) >= 0]
        return text[: min(positions)] if positions else text

    def stable_prefix(self, text: str) -> str:
        """Return the part of ``before(text + more)`` that is the same for any continuation ``more``."""
        prefix_lengths = [n for stop in self.texts for n in range(1, len(stop)) if text.endswith(stop[:n])]
        return self.before(text)[: len(text) - max(prefix_lengths, default=0)]


@dataclass(frozen=True)
class SequenceTail:
    """The end of a sequence that is being generated: the tokens that are still needed.

    Args:
        ids: the last tokens of the prompt and the generated text.
        n_prompt: how many of them are the prompt's.
        start: index of the first one that the model reads now.
        has_prompt: whether there is a prompt.
    """

    ids: tuple[int, ...]
    n_prompt: int
    start: int = 0
    has_prompt: bool = True

    @classmethod
    def of(cls, prompt: Sequence[int], context: int, end: int) -> "SequenceTail":
        """Return the tail of a prompt, which is not empty; of a long one, the last ``context`` tokens."""
        # An empty prompt is encoded as an end token, which no other has.
        return cls(tuple(prompt[-context:]), min(len(prompt), context), has_prompt=tuple(prompt) != (end,))

    @property
    def visible(self) -> tuple[int, ...]:
        """The tokens that the model reads."""
        return self.ids[self.start :]

    @property
    def n_visible(self) -> int:
        """The number of tokens that the model reads."""
        return len(self.ids) - self.start

    @property
    def generated(self) -> tuple[int, ...]:
        """The tokens that were generated after the prompt."""
        return self.ids[self.n_prompt :]

    def slid(self, context: int) -> "SequenceTail":
        """Return the tail of which the model reads only the newer half of a context."""
        return replace(self, start=len(self.ids) - max(1, context // 2))

    def with_token(self, token: int, n_kept: int) -> "SequenceTail":
        """Return the tail with one more token.

        Tokens that the model no longer reads are dropped, so that the cost of a step does not grow with the
        sequence.

        Args:
            token: its id.
            n_kept: how many of the last tokens are kept, even if the model does not read them.
        """
        n_dropped = max(0, min(self.start, len(self.ids) - n_kept))
        # Not `replace`, which takes twice as long.
        return SequenceTail(
            (*self.ids[n_dropped:], token),
            max(0, self.n_prompt - n_dropped),
            self.start - n_dropped,
            self.has_prompt,
        )


@dataclass(frozen=True)
class ContinuedState:
    """The model's state, and the tails of the sequences (`heedful.decoding.protocol.DecodingState`)."""

    model_state: State
    tails: tuple[SequenceTail, ...]

    def select(self, rows: Int[Tensor, " M"]) -> "ContinuedState":
        """Return the hypotheses ``rows``, in that order."""
        return ContinuedState(self.model_state.select(rows), tuple(self.tails[i] for i in rows.tolist()))

    def expand(self, width: int) -> "ContinuedState":
        """Repeat every hypothesis ``width`` times, side by side."""
        return ContinuedState(
            self.model_state.expand(width), tuple(tail for tail in self.tails for _ in range(width))
        )

    def keep(self, sentences: Sequence[int]) -> "ContinuedState":
        """Drop all prompts but these, with their hypotheses."""
        width = self.model_state.width
        tails = tuple(self.tails[s * width + k] for s in sentences for k in range(width))
        return ContinuedState(self.model_state.keep(sentences), tails)


class Continuation:
    """The step function of a language model that continues prompts beyond the model's context.

    When a sequence fills the context, its older half is dropped, and the newer half is encoded again from the
    first position. So the logits of a token depend on its own sequence alone, and half a context costs one
    more pass over half a context.

    Args:
        model: follows the model contract, without a source; its ``step`` for single tokens is used, if it
            has one.
        context: the most tokens that the model reads at once.
        stops: after a completed stop string, only the end token is possible.
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
        """Encode the prompts, or the last tokens of those that are too long; none may be empty."""
        return self._read([SequenceTail.of(prompt, self.context, self.end) for prompt in prompts], 1)

    def step(
        self, ids: Int[Tensor, " N"], state: DecodingState, parents: Int[Tensor, " N"] | None
    ) -> StepOutput:
        """Append one token to every hypothesis: row n continues row ``parents[n]``."""
        if parents is not None:
            state = state.select(parents)
        assert isinstance(state, ContinuedState)
        pairs = zip(state.tails, ids.tolist(), strict=True)
        tails = [tail.with_token(token, self.stops.max_tokens) for tail, token in pairs]
        overflows = [tail.n_visible > self.context for tail in tails]
        if any(overflows):
            shortened = [
                tail.slid(self.context) if slides else tail
                for tail, slides in zip(tails, overflows, strict=True)
            ]
            return self._read(shortened, state.model_state.width)
        if self._step is not None:
            logits, model_state = self._step(ids, state.model_state)
            return self._output(logits, model_state, tails)
        tokens = Tokens(ids, state.model_state.next_layout((1,) * len(ids)))
        hidden, model_state = self.model.extend(tokens, state.model_state)
        return self._output(self.head(hidden), model_state, tails)

    def _read(self, tails: Sequence[SequenceTail], width: int) -> StepOutput:
        """Encode the visible tokens of the sequences, from the first position."""
        tokens = Tokens.of([tail.visible for tail in tails], device=self.device)
        hidden, model_state = self.model.extend(tokens, self.model.start(len(tails)))
        logits = self.head(hidden[tokens.layout.last])
        return self._output(logits, replace(model_state, width=width), tails)

    def _output(
        self, logits: Float[Tensor, "N V"], model_state: State, tails: Sequence[SequenceTail]
    ) -> StepOutput:
        candidates = enumerate(tails) if self.stops.texts else ()
        ended = [
            n for n, tail in candidates if self.stops.reached(tail.generated, is_continuation=tail.has_prompt)
        ]
        allow_only(logits, ended, self.end)
        return StepOutput(torch.as_tensor(logits), ContinuedState(model_state, tuple(tails)))


def allow_only(logits: Float[Tensor, "N V"], rows: Sequence[int], token: int) -> None:
    """Make a token the only possible one of these rows, in place."""
    if rows:
        logits[rows] = float("-inf")
        logits[rows, token] = 0.0


# Maximum number of tokens of the rectangle [prompts, hypotheses, longest] that is decoded together.
DECODING_BUDGET = 16384


@dataclass(frozen=True)
class Limits:
    """Where a completion ends, if the model does not end it.

    Args:
        max_new_tokens: the most tokens to generate, the end token included.
        stop: texts at which it ends; they are not part of it.

    Raises:
        RequestError: no token may be written, or a stop string is empty.
    """

    max_new_tokens: int = 200
    stop: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise RequestError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if isinstance(self.stop, str) or "" in self.stop:
            raise RequestError("stop: expected a list of texts that are not empty")

    def overridden_by(self, options: PredictOptions) -> "Limits":
        """Return these limits, replaced by those of the options that are set."""
        n, stop = options.max_new_tokens, options.stop
        return Limits(self.max_new_tokens if n is None else n, self.stop if stop is None else stop)


class Completer(Streaming):
    """The predictor of a language model: one continuation for each prompt, in order.

    An empty prompt is replaced by the end token, which precedes every document in training. Of a prompt that
    is longer than the model's context, the last tokens are read, and the prediction notes it; the completion
    may be longer than the context (see `Continuation`).

    Args:
        model: follows the model contract, without a source; in evaluation mode while it generates.
        tokenizer: of the text.
        decoding: how to decode.
        context: the most tokens that the model reads at once.
        options: the ``prefix``, which is read as one text with each prompt (a task with examples, say), the
            ``regex`` or ``json_schema`` that completions match, and ``progress``; ``max_new_tokens`` and
            ``stop`` take precedence over ``limits``.
        limits: where a completion ends.
        budget: maximum number of tokens of a batch, with padding and all hypotheses.
        inference: the model prepared for decoding; by default it is prepared here.

    Raises:
        RequestError: if the decoding refers to a source, the prefix fills the context, or the grammar is
            invalid.
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
        self.model, self.tokenizer, self.decoding = model, tokenizer, decoding
        self.context, self.options, self.budget = context, options, budget
        self.limits = limits.overridden_by(options)
        self.stops = Stops(tokenizer, tuple(self.limits.stop))
        refuse_source(decoding)
        check_min_length(decoding, self.limits.max_new_tokens)
        self.prefix = "" if options.prefix is None else self._checked_prefix(options.prefix)
        self.inference = inference or Inference(self.model)
        self.constraints = ConstraintBuilder(tokenizer, decoding, grammar_of(options))

    def _checked_prefix(self, prefix: str) -> str:
        """Return the prefix, after checking that it leaves room for a prompt."""
        if not isinstance(prefix, str) or not is_unicode(prefix):
            raise RequestError(f"prefix: expected a text, got {prefix!r}")
        n_tokens = sum(map(len, encode_long(self.tokenizer, prefix)))
        if n_tokens >= self.context:
            raise RequestError(
                f"prefix: must leave room for a prompt within the context of {self.context:,} tokens, got "
                f"{n_tokens:,} tokens; shorten it"
            )
        return prefix

    @torch.inference_mode()
    def predict(
        self,
        inputs: Sequence[TaskInput],
        *,
        first: int = 0,
        on_text: OnText | None = None,
        constraints: Sequence[OutputConstraints] = (),
    ) -> list[Prediction]:
        """Continue prompts; the answers do not repeat them. See `Streaming.predict`."""
        check_inputs(inputs)
        if self.options.attention:
            raise RequestError("a language model has no source, so there is no attention over one")
        texts = [as_text(task_input) for task_input in inputs]
        prompts = self.tokenizer.encode_batch([self.prefix + text for text in texts])
        results: list[Prediction] = [Prediction("") for _ in texts]
        wanted = constraints or [NO_CONSTRAINTS] * len(texts)
        lengths = {i: len(prompt) for i, prompt in enumerate(prompts)}
        limits = dict.fromkeys(lengths, self.limits.max_new_tokens)
        for i, refused in self.constraints.refused(constraints, limits).items():
            results[i] = refused
            del lengths[i]
        for group in self._groups(lengths, constraints):
            hypothesis_lists = self._decode(
                [prompts[i] for i in group], [first + i for i in group], on_text, [wanted[i] for i in group]
            )
            for i, hypotheses in zip(group, hypothesis_lists, strict=True):
                results[i] = self.prediction(texts[i], prompts[i], hypotheses, wanted[i])
            self.options.progress(len(group))
        return results

    def _groups(
        self, lengths: Mapping[int, int], constraints: Sequence[OutputConstraints]
    ) -> Iterator[list[int]]:
        """Yield the indices of prompts in groups of bounded size, longest first."""
        width, max_new_tokens = n_hypotheses(self.decoding), self.limits.max_new_tokens
        for part in separated(lengths, constraints):
            yield from group_by_length(
                part, self.budget, lambda n: min(max(n, 1) + max_new_tokens, self.context) * width
            )

    def _decode(
        self,
        prompts: Sequence[Sequence[int]],
        ordinals: Sequence[int],
        on_text: OnText | None,
        constraints: Sequence[OutputConstraints],
    ) -> list[list[Hypothesis]]:
        specials = self.tokenizer.specials
        device = next(self.model.parameters()).device
        continuation = Continuation(self.inference.ready(), self.context, self.stops, specials.end, device)
        with evaluating(self.model), streamed(self.detokenizer(prompts[0]), on_text) as on_token:
            first_output = continuation.prefill([prompt or [specials.end] for prompt in prompts])
            request = Request(
                first_output,
                continuation.step,
                end=specials.end,
                max_lengths=[self.limits.max_new_tokens] * len(prompts),
                forbidden=specials.never_generated,
                ordinals=ordinals,
                on_token=on_token,
                on_step=self.options.on_step,
                constraints=[
                    self.constraints.build(wanted, is_continuation=bool(prompt))
                    for wanted, prompt in zip(constraints, prompts, strict=True)
                ],
            )
            return decode(with_spares(self.decoding), request)

    def detokenizer(self, prompt: Sequence[int]) -> Detokenizer:
        """Return the detokenizer of the answer to a prompt."""
        stops = self.stops
        return Detokenizer(
            self.tokenizer,
            stops.before,
            stops.stable_prefix,
            is_continuation=bool(prompt),
            is_local=True,
            is_ended=lambda text: stops.before(text) != text,
        )

    def prediction(
        self,
        text: str,
        prompt: Sequence[int],
        hypotheses: Sequence[Hypothesis],
        constraints: OutputConstraints,
    ) -> Prediction:
        """Return the prediction of the decoded hypotheses of a prompt, best first.

        Args:
            text: the input.
            prompt: the tokens of prefix and input.
            hypotheses: as the decoder returned them.
            constraints: of this output.
        """
        found = answers(self.detokenizer(prompt), hypotheses, self.decoding)
        best, *alternatives = (self.constraints.checked(answer, constraints) for answer in found)
        unknown_words_note = unknown_note(self.tokenizer, [self.prefix + text], [prompt])
        limit = self.limits.max_new_tokens
        is_cut = not best.finished and len(best.ids) == limit
        limit_note = cut_output_note(limit, "max_new_tokens") if is_cut else None
        notes = join_notes(self._cut_note(len(prompt)), unknown_words_note, best.notes, limit_note)
        return replace(best, alternatives=alternatives, notes=notes, cut=max(0, len(prompt) - self.context))

    def _cut_note(self, n: int) -> str | None:
        """Note that a prompt of ``n`` tokens was truncated."""
        if n <= self.context:
            return None
        description = f"the {n} tokens of prefix and prompt" if self.prefix else f"the prompt's {n} tokens"
        return f"of {description}, the last {self.context} were read"


def refuse_source(decoding: DecodingConfig) -> None:
    """Check that a decoding does not refer to a source, which a language model does not have.

    Raises:
        RequestError: naming the key.
    """
    if decoding.max_length != type(decoding).model_fields["max_length"].default:
        raise RequestError(
            "decoding.max_length is not supported here (a completion has no source to measure by); set "
            "completion.max_new_tokens"
        )
    if isinstance(decoding, BeamSettings) and decoding.coverage:
        raise RequestError(
            "decoding.coverage is not supported here (a language model has no source); remove it"
        )


def check_min_length(decoding: DecodingConfig, max_new_tokens: int) -> None:
    """Check that a completion can have the minimum length.

    Raises:
        RequestError: naming the keys.
    """
    if decoding.min_length > max_new_tokens:
        raise RequestError(
            f"decoding.min_length must be at most max_new_tokens ({max_new_tokens}), got "
            f"{decoding.min_length}; raise max_new_tokens (in a recipe, completion.max_new_tokens)"
        )
