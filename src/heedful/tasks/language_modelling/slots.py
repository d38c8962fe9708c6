"""Continuous batching: completions join and leave a decoding between two steps.

`Slots` decodes `Generation`s, each with its own settings, on the native engine; `Completion` makes one of a
prompt, and a prediction of its result. The tokens and log-probabilities of each are bit for bit those that
`Completer.predict` returns for it alone, since the engine computes each row independently of the others.

Axes: N generations, V the vocabulary.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.decoding.config import DecodingConfig
from heedful.decoding.constraints import ConstrainedRows, Constraint
from heedful.decoding.greedy import Chosen, Draft, GreedyConfig
from heedful.decoding.probabilities import log_probabilities, ranked
from heedful.decoding.protocol import Hypothesis
from heedful.decoding.sampling import SampleConfig, Uniforms, choose_randomly
from heedful.engine.compiled import CompiledModel, Hypotheses
from heedful.errors import WorkError
from heedful.nn.layout import Tokens
from heedful.tasks.generation.output_constraints import NO_CONSTRAINTS, OutputConstraints
from heedful.tasks.generation.streaming import IncrementalText, OnText
from heedful.tasks.language_modelling.continuing import Completer, SequenceTail, Stops, allow_only
from heedful.tasks.prediction import Prediction

READ_TOGETHER = 4096
"""Maximum number of tokens of prompts that are read in one step, if more than one prompt is waiting."""


def fits(decoding: DecodingConfig) -> bool:
    """Return whether slots support a decoding: greedy, or one sample."""
    return isinstance(decoding, GreedyConfig) or (isinstance(decoding, SampleConfig) and decoding.n == 1)


class Generation:
    """A sequence to be decoded in slots.

    Args:
        prompt: its ids; of an empty prompt, the end token.
        max_length: maximum number of generated tokens, the end token included; at least 1.
        decoding: how it is decoded; `fits` must hold.
        stops: texts at which it ends.
        ordinal: its number; sampling draws for each number independently.
        constraints: those of its output, in addition to those of ``decoding``.
        on_token: called with every token as soon as it is chosen; not for the end token. If it raises, only
            this generation ends, with that ``error``.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        max_length: int,
        decoding: DecodingConfig,
        stops: Stops,
        *,
        ordinal: int = 0,
        constraints: Sequence[Constraint] = (),
        on_token: Callable[[int], None] | None = None,
    ) -> None:
        if not prompt or max_length < 1 or not fits(decoding):
            raise ValueError(
                "expected a prompt, a positive maximum length, and greedy decoding or one sample"
            )
        self.prompt, self.stops, self.on_token = tuple(prompt), stops, on_token
        self.end = stops.tokenizer.specials.end
        self.error: Exception | None = None
        """Why it ended early: the error of its callback, or of its logits."""
        self.removed = False
        self.tail = SequenceTail((), 0)
        """What the model reads; set when it is added."""
        self._draft = Draft(max_length)
        self._sampling = decoding if isinstance(decoding, SampleConfig) and decoding.temperature else None
        self._noise = Uniforms(self._sampling.seed, [ordinal], 1) if self._sampling else None
        rules = [*decoding.constraints(), *constraints]
        self._constrained = ConstrainedRows([rules], self.end) if rules else None
        own = self._sampling
        self.group: Hashable = (bool(rules), own and own.model_copy(update={"seed": 0}).model_dump_json())
        """Equal for generations whose tokens can be chosen together, whatever their seeds.

        Those with constraints are separate, since other code ranks their tokens, which rounds differently.
        """

    @property
    def running(self) -> bool:
        """Whether it has a next token."""
        return self._draft.running and self.error is None and not self.removed

    @property
    def hypothesis(self) -> Hypothesis:
        """The result, or what is generated so far."""
        return self._draft.hypothesis

    @property
    def position(self) -> int:
        """The number of chosen tokens."""
        return len(self._draft.log_probs)

    def most_positions(self, context: int) -> int:
        """Return how many positions of a cache it uses at most."""
        return min(len(self.prompt) + self._draft.max_length - 1, context)

    @property
    def is_stopped(self) -> bool:
        """Whether the last token completes a stop string, so that only the end token is possible."""
        tail = self.tail
        return bool(self.stops.texts) and self.stops.reached(tail.generated, is_continuation=tail.has_prompt)

    @staticmethod
    def choose(
        generations: Sequence["Generation"], logits: Float[Tensor, "N V"], forbidden: Tensor
    ) -> Chosen:
        """Choose the next token of generations of one `group`.

        Raises:
            WorkError: the logits of one of them are not a distribution.
        """
        first, blocked = generations[0], None
        if first._constrained is not None:
            constrained = (g._constrained for g in generations if g._constrained is not None)
            pairs = [own.restrict(logits[i : i + 1]) for i, own in enumerate(constrained)]
            logits, blocked = (torch.cat(tensors) for tensors in zip(*pairs, strict=True))
        if first._sampling is None:
            log_probs, ids = ranked(logits, forbidden, 1, first.position, blocked)
            return ids[:, 0], log_probs[:, 0]
        uniform = torch.cat([g._noise.at(g.position).flatten() for g in generations if g._noise is not None])
        model_log_probs = log_probabilities(logits, forbidden, first.position, blocked)
        return choose_randomly(model_log_probs, uniform, first._sampling)

    def add(self, token: int, log_prob: float) -> None:
        """Append a chosen token, and pass it on."""
        draft, constrained = self._draft, self._constrained
        try:
            is_text = draft.add(token, log_prob, self.end, constrained)
            if constrained is not None:
                constrained.advance([0], [token if is_text else self.end])
                if draft.is_cut:
                    draft.violated = constrained.unmet(0)
            if is_text:
                self.tail = self.tail.with_token(token, self.stops.max_tokens)
                if self.on_token is not None:
                    self.on_token(token)
        except Exception as error:  # of this generation alone; the others go on
            self.error = error


class Slots:
    """Decodes up to ``n`` generations together; each step chooses one token of each.

    Generations are added and removed between two steps, or by callbacks during one. If a step raises, `reset`
    must follow. They belong to the thread of the model, with which it may decode other
    things between two steps.

    Args:
        model: a language model on the native engine, with the weights that it had when it was prepared.
        context: the most tokens that the model reads at once.
        forbidden: tokens that are never chosen.
        n: maximum number of generations.
        max_bytes: limit of the memory of keys and values; None: none. It is exceeded by a generation that
            alone needs more, and, up to twice, while the caches are resized.
    """

    def __init__(
        self,
        model: CompiledModel,
        context: int,
        forbidden: Sequence[int],
        *,
        n: int = 64,
        max_bytes: int | None = None,
    ) -> None:
        self.model, self.context, self.n, self.max_bytes = model, context, n, max_bytes
        self._forbidden = torch.tensor(sorted(set(forbidden)), dtype=torch.int64)
        self._bytes = sum(4 * s.n_heads * (s.d_k + s.d_v) for s in model.engine.own_cache_shapes)
        self._state: Hypotheses = model.start(0)
        self._rows: list[Generation] = []
        """The generation of each row of the state."""
        self._waiting: deque[Generation] = deque()
        """Generations that are to be read: those whose context was full, and new ones."""
        self._in_step = False

    @classmethod
    def of(cls, completer: Completer, *, n: int = 64, max_bytes: int | None = None) -> "Slots | None":
        """Return slots for completions with the model of a completer; None if it is not on the engine."""
        model = completer.inference.ready()
        if not isinstance(model, CompiledModel):
            return None
        forbidden = completer.tokenizer.specials.never_generated
        return cls(model, completer.context, forbidden, n=n, max_bytes=max_bytes)

    @property
    def running(self) -> list[Generation]:
        """The generations that have not ended."""
        return [g for g in (*self._rows, *self._waiting) if g.running]

    @property
    def n_free(self) -> int:
        """How many generations can be added, if memory permits."""
        return self.n - len(self.running)

    @property
    def cache_bytes(self) -> int:
        """The memory of keys and values that is held."""
        caches = self._state.own_caches
        return caches.lines * caches.capacity * self._bytes

    def accepts(self, generation: Generation) -> bool:
        """Return whether there is a slot for a generation, and memory for its maximum length."""
        others = self.running
        if not others:
            return self.n > 0
        return len(others) < self.n and self._within(*self._least([*others, generation]))

    def add(self, generation: Generation) -> None:
        """Add a generation; the next step reads its prompt and chooses its first token.

        Raises:
            ValueError: `accepts` does not hold, or it was added before.
        """
        if generation.tail.ids or not generation.running or not self.accepts(generation):
            raise ValueError("expected a new generation, a free slot, and memory for it")
        generation.tail = SequenceTail.of(generation.prompt, self.context, generation.end)
        self._waiting.append(generation)

    def remove(self, generation: Generation) -> None:
        """End a generation as it is; its ``hypothesis`` is unfinished, unless it had ended before."""
        generation.removed = True
        if not self._in_step:
            self._drop_ended()

    def reset(self) -> None:
        """Forget all generations, those of a step that raised too."""
        self._rows, self._waiting, self._in_step = [], deque(), False
        self._state = self.model.start(0)

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """Choose the next token of all generations; return those that ended by it.

        Prompts are read in the order in which they were added. If they have more than `READ_TOGETHER`
        tokens, some wait for the next step.
        """
        entering = self._entering()
        if not self._rows and not entering:
            return []
        self._in_step = True
        logits = self._forward(entering)
        rows = self._rows = [*self._rows, *entering]
        allow_only(logits, [i for i, g in enumerate(rows) if g.is_stopped], rows[0].end)
        groups: dict[Hashable, list[int]] = {}
        for i, generation in enumerate(rows):
            groups.setdefault(generation.group, []).append(i)
        for own in groups.values():
            self._add_tokens([rows[i] for i in own], logits if len(own) == len(rows) else logits[own])
        ended = [g for g in rows if not g.running and not g.removed]
        self._in_step = False
        self._drop_ended()
        return ended

    def _add_tokens(self, generations: Sequence[Generation], logits: Float[Tensor, "N V"]) -> None:
        """Add a token to each generation; an error ends only the one that has it."""
        try:
            ids, log_probs = Generation.choose(generations, logits, self._forbidden)
        except WorkError as error:
            if len(generations) == 1:
                generations[0].error = error
                return
            for i, generation in enumerate(generations):
                self._add_tokens([generation], logits[i : i + 1])
            return
        for generation, token, log_prob in zip(generations, ids.tolist(), log_probs.tolist(), strict=True):
            if generation.running:  # a callback of another one may have removed it
                generation.add(token, log_prob)

    def _entering(self) -> list[Generation]:
        """Take the generations that are read in this step."""
        taken: list[Generation] = []
        n_tokens = 0
        while self._waiting:
            n_tokens += self._waiting[0].tail.n_visible
            if taken and n_tokens > READ_TOGETHER:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _forward(self, entering: Sequence[Generation]) -> Float[Tensor, "N V"]:
        """Compute the logits of the next token of all rows, and of those that enter, after them."""
        last = [g.tail.ids[-1] for g in self._rows]
        read = [g.tail.visible for g in entering]
        longest = max([self._state.longest + 1 if last else 0, *map(len, read)])
        self._make_room(len(last) + len(read), longest, [*self._rows, *entering])
        if not read:
            logits, self._state = self.model.step(torch.tensor(last), self._state)
            return logits
        # In one pass: a token of each row, and the whole prompts of those that enter.
        state = self._state.add(len(read))
        layout = state.next_layout([1] * len(last) + [len(ids) for ids in read])
        tokens = Tokens(torch.tensor([*last, *(i for ids in read for i in ids)]), layout)
        hidden, self._state = self.model.extend(tokens, state)
        return self.model.logits(hidden[layout.last])

    def _drop_ended(self) -> None:
        """Remove generations that have ended, and those whose context is full, which are read again."""
        is_full = [g.tail.n_visible > self.context for g in self._rows]
        full = [g for g, slides in zip(self._rows, is_full, strict=True) if slides and g.running]
        for generation in full:
            generation.tail = generation.tail.slid(self.context)
        self._waiting = deque([*full, *(g for g in self._waiting if g.running)])
        keep = [i for i, g in enumerate(self._rows) if g.running and not is_full[i]]
        if not keep and not self._waiting:
            self._rows, self._state = [], self.model.start(0)
        elif len(keep) < len(self._rows):
            self._rows, self._state = [self._rows[i] for i in keep], self._state.keep(keep)

    def _make_room(self, n: int, length: int, generations: Sequence[Generation]) -> None:
        """Resize the caches, if needed, for ``n`` rows and ``length`` positions."""
        caches = self._state.own_caches
        if n <= caches.lines and length <= caches.capacity:
            return
        lines, capacity = caches.lines, caches.capacity
        if n > lines:
            lines = max(n, min(2 * lines, self.n))
        if length > capacity:
            capacity = max(length, min(2 * capacity, self.context))
        if not self._within(lines, capacity):
            lines, capacity = self._least([*generations, *self._waiting])
        self._state = self._state.resized(lines, capacity)

    def _least(self, generations: Sequence[Generation]) -> tuple[int, int]:
        """Return the lines and positions that generations need until they end."""
        return len(generations), max(g.most_positions(self.context) for g in generations)

    def _within(self, lines: int, capacity: int) -> bool:
        return self.max_bytes is None or lines * capacity * self._bytes <= self.max_bytes


class Completion:
    """A prompt whose completion is decoded in slots, and its prediction.

    Args:
        completer: how prompts are completed; its decoding must fit (`fits`).
        text: the prompt.
        ordinal: its number; sampling draws for each number independently.
        on_text: called with each piece of the text, as in `Completer.predict`.
        constraints: of the output.

    Raises:
        RequestError: phrases are required, which needs a beam search.
    """

    def __init__(
        self,
        completer: Completer,
        text: str,
        *,
        ordinal: int = 0,
        on_text: OnText | None = None,
        constraints: OutputConstraints = NO_CONSTRAINTS,
    ) -> None:
        self.completer, self.text, self.constraints = completer, text, constraints
        limit = completer.limits.max_new_tokens
        (self.prompt,) = completer.tokenizer.encode_batch([completer.prefix + text])
        self.refused = completer.constraints.refused([constraints] if constraints else (), {0: limit}).get(0)
        """The prediction if no output can hold the constraints: there is nothing to decode."""
        self._incremental = on_text and IncrementalText(completer.detokenizer(self.prompt), on_text)
        self.generation = Generation(
            self.prompt or [completer.tokenizer.specials.end],
            limit,
            completer.decoding,
            completer.stops,
            ordinal=ordinal,
            constraints=completer.constraints.build(constraints, is_continuation=bool(self.prompt)),
            on_token=self._pass_on if on_text else None,
        )

    def _pass_on(self, token: int) -> None:
        assert self._incremental is not None
        self._incremental(0, token)

    def prediction(self) -> Prediction:
        """Return the prediction, after passing on the rest of the text; to be called once, at the end.

        Raises:
            Exception: the error with which the generation ended.
        """
        if self.refused is not None:
            return self.refused
        if self.generation.error is not None:
            raise self.generation.error
        if self._incremental is not None:
            self._incremental.end()
        return self.completer.prediction(
            self.text, self.prompt, [self.generation.hypothesis], self.constraints
        )
