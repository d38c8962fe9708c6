"""An input as a model reads it, what the run answered, and what the model says of that answer.

Whatever the task, an explanation needs three things, and a `Reading` is all of them: the batch of the one
input, the sides that stand along the axes, and the `Questions` that were answered at some of its places
(which token comes next, which class it is, where the answer begins).

| task | sides | questions |
|---|---|---|
| translation, summarisation | source, target, prefix | every token of the target, and its end |
| the same by a language model | input: ``<s> x <sep> y </s>`` | every token of y, and the end |
| language modelling | input: prompt and completion | every token but the first; the prompt's are *given* |
| masked language modelling | input: ``<cls> x <sep>`` | what stands in each gap |
| classification, of pairs too | input: ``<cls> a <sep> b <sep>`` | the class |
| regression | the same | the number (no probability) |
| tagging | the same | the tag of each word, at its first token |
| question answering | the same | the answer's first and last token |
| picture classification | input: squares | the class |
| captioning | source: squares, target, prefix | every token of the caption, and its end |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.data.pictures import Picture
from heedful.errors import DataError, RequestError, nearest
from heedful.explain.points import INPUT, PREFIX, SOURCE, TARGET
from heedful.explain.sides import squares_side, text_side, words_side
from heedful.explain.view import Side
from heedful.nn.layout import Tokens
from heedful.nn.patches import Pictures
from heedful.objectives.answering import answer_log_probs
from heedful.objectives.classification import class_logits
from heedful.objectives.regression import values
from heedful.objectives.tagging import TAG
from heedful.tasks.forced import CHUNK
from heedful.tasks.pairing import OneAfterTheOther
from heedful.tasks.prediction import Prediction
from heedful.tasks.tagging import split, stretches
from heedful.tasks.texts import N_SPECIALS, fitted
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import spelled, word_ids

if TYPE_CHECKING:
    from heedful.runs.run import Run

GIVEN = "given, not written by the model"
"""The note of an answer that was given as the target."""


@dataclass(frozen=True)
class Asked:
    """How an input is to be answered.

    Args:
        decoding: instead of the recipe's, or None.
        target: an answer that is given: a text where the run writes one, a label of a classifier; or None.
        alternative: which of the run's answers, the best being 0.
    """

    decoding: Any = None
    target: str | None = None
    alternative: int = 0


@dataclass(frozen=True)
class Questions:
    """n questions that were answered at places of a side, each with C possible answers.

    Args:
        side: where they stand.
        places: the token of that side that each is about; ``()`` where they are about the whole input.
        answers: the number of each answer, ``[n]``.
        logits: hidden states ``[T, d]`` to logits of all questions in order, in pieces ``[m, C]``.
        name: how answer number c of question i is shown: ``name(i, c)``.
        given: so many of the first are about what was not answered, but given (a prompt).
        are_tokens: whether the answers are the tokens of the side, or stand in their place (gaps).
        numbers: hidden states to the answers ``[n]`` where they are numbers, which have no probability.
    """

    side: str
    places: tuple[int, ...]
    answers: Int[Tensor, " n"]
    logits: Callable[[Tensor], Iterator[Tensor]]
    name: Callable[[int, int], str]
    given: int = 0
    are_tokens: bool = False
    numbers: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def names(self) -> list[str]:
        """The answers, as they are shown."""
        return [self.name(i, answer) for i, answer in enumerate(self.answers.tolist())]

    def scores(self, hidden: Float[Tensor, "T d"]) -> Float[Tensor, " n"]:
        """The natural log-probability of each answer; of numbers, the numbers themselves."""
        if self.numbers is not None:
            return self.numbers(hidden)
        found, at = [], 0
        for logits in self.logits(hidden):
            wanted = self.answers[at : at + len(logits)].to(logits.device)
            found.append(logits.float().log_softmax(-1).gather(1, wanted[:, None])[:, 0])
            at += len(logits)
        return torch.cat(found)


@dataclass(frozen=True)
class Reading:
    """See above.

    Args:
        batch: one sequence, on the model's device.
        sides: by their names.
        answer: of the run; where it was given, without probabilities.
        questions: what was answered.
        is_given: whether the answer is the target that was given.
    """

    batch: Batch
    sides: Mapping[str, Side]
    answer: Prediction
    questions: Questions
    is_given: bool = field(default=False)


def read(
    run: "Run",
    input: Any,
    *,
    decoding: Any = None,
    target: str | None = None,
    alternative: int = 0,
) -> Reading:
    """Read one input, and answer it; see `heedful.explain.look.look`.

    Raises:
        RequestError: the input is empty, too long or of another kind than the run reads, or there is no such
            answer.
    """
    asked = Asked(decoding, target, alternative)
    reading = READERS[run.recipe.task.kind](run, input, asked)
    device = next(run.model.parameters()).device
    return replace(reading, batch=reading.batch.to(device))


# What they share -------------------------------------------------------------------------------------------


def _text(run: "Run", given: Any) -> str:
    if not isinstance(given, str):
        raise RequestError(f"a run of the task {run.recipe.task.kind} reads a text, not {_kind(given)}")
    return given


def _texts(run: "Run", given: Any) -> list[str]:
    """The text, or the texts that are read together."""
    keys = run.kind.inputs(run.recipe)
    if len(keys) == 1:
        return [_text(run, given)]
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    if not is_list or len(given) != len(keys) or not all(isinstance(text, str) for text in given):
        raise RequestError(
            f"a run of the task {run.recipe.task.kind} reads {len(keys)} texts together here "
            f"({', '.join(keys)}), not {_kind(given)}: give them with a tab between, or as a pair"
        )
    return list(given)


def _kind(given: Any) -> str:
    return "one text" if isinstance(given, str) else f"a {type(given).__name__}"


def _ids_in(batch: Batch) -> list[int]:
    """The ids of the one sequence that the model reads."""
    assert isinstance(batch.inputs, Tokens)
    return batch.inputs.ids.tolist()


def _refuse_empty(*ids: Sequence[int]) -> None:
    if not any(map(len, ids)):
        raise RequestError("the input is empty: there is nothing to look at; give some text")


def _refuse_target(run: "Run", asked: Asked, instead: str) -> None:
    if asked.target is not None:
        raise RequestError(
            f"a run of the task {run.recipe.task.kind} writes no text that could be given: {instead}"
        )


def _predicted(run: "Run", given: Any, asked: Asked, **options: Any) -> Prediction:
    """The run's own answer, as `Run.predict` gives it."""
    has_several = "n_best" in run.kind.options or run.recipe.decoding is not None
    if asked.alternative and has_several:
        options["n_best"] = asked.alternative + 1
    (first,) = run.predict([given], decoding=asked.decoding, **options)
    if first.error:
        raise DataError(first.error)
    answers = [first, *first.alternatives]
    if asked.alternative >= len(answers):
        raise RequestError(f"there is no alternative {asked.alternative}: the run has {len(answers)} answers")
    return answers[asked.alternative]


def _given(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> Prediction:
    """The answer that was given; what the model says of it is not known yet."""
    return Prediction(text, tokens=tokenizer.tokens(ids), note=GIVEN)


def _in_chunks(head: Any, batch: Batch) -> Callable[[Tensor], Iterator[Tensor]]:
    """The logits of the places at which an answer is wanted, so that few exist at one time."""
    return lambda hidden: (head(part) for part in batch.picked(hidden).split(CHUNK))


def _tokens_of(
    run: "Run", tokenizer: Tokenizer, batch: Batch, side: str, places: Sequence[int], given: int = 0
) -> Questions:
    """Which token stands at each of these places."""
    return Questions(
        side,
        tuple(places),
        batch.targets,
        _in_chunks(run.model.heads["token"], batch),
        lambda i, token: tokenizer.tokens([token])[0],
        given,
        are_tokens=True,
    )


# One text for another, or for a picture --------------------------------------------------------------------


def _pair(run: "Run", given: Any, asked: Asked) -> Reading:
    """Translation and summarisation, on two sides or one after the other."""
    source = run.codec.source.encode(_text(run, given))[: run.recipe.max_source]
    _refuse_empty(source)
    answer, target = _answered(run, given, asked, run.codec.target, len(source))
    if isinstance(run.recipe.pairing, OneAfterTheOther):
        return _one_text(run, source, target, answer, asked)
    side = text_side(run.codec.source, [*source, SPECIALS.end])
    return _two_sides(run, source, target, answer, asked, side, run.codec.target)


def _caption(run: "Run", given: Any, asked: Asked) -> Reading:
    """Captioning: the source is the squares of a picture."""
    pairing = run.recipe.pairing
    pixels = pairing.reader.pixels(Picture.of(given))
    tokenizer = run.codec.tokenizer
    answer, target = _answered(run, given, asked, tokenizer, pairing.n_tokens)
    side = squares_side(pairing.grid, 0, pixels)
    return _two_sides(run, pixels.reshape(-1), target, answer, asked, side, tokenizer)


def _answered(
    run: "Run", given: Any, asked: Asked, tokenizer: Tokenizer, n_source: int
) -> tuple[Prediction, list[int]]:
    """The answer and its ids: the run's own, or the one that was given."""
    if asked.target is None:
        answer = _predicted(run, given, asked)
        return answer, list(answer.ids)
    ids = tokenizer.encode(asked.target)
    room = run.recipe.pairing.room(n_source)
    if room is not None and len(ids) + 1 > room:
        raise RequestError(f"the target has {len(ids)} tokens, and the model has room for {room - 1}")
    return _given(tokenizer, asked.target, ids), ids


def _two_sides(
    run: "Run",
    source: Any,
    target: Sequence[int],
    answer: Prediction,
    asked: Asked,
    source_side: Side,
    tokenizer: Tokenizer,
) -> Reading:
    batch = run.recipe.pairing.scored([source], [target])
    sides = {
        SOURCE: source_side,
        TARGET: text_side(tokenizer, [*target, SPECIALS.end]),
        PREFIX: text_side(tokenizer, [SPECIALS.start, *target]),
    }
    questions = _tokens_of(run, tokenizer, batch, TARGET, range(len(target) + 1))
    return Reading(batch, sides, answer, questions, asked.target is not None)


def _one_text(
    run: "Run", source: Sequence[int], target: Sequence[int], answer: Prediction, asked: Asked
) -> Reading:
    """``<s> x <sep> y </s>``; where that fills the context, the end token, which is never read, is left out.

    What x is foretold by is asked only where the model was trained for it.
    """
    text = [SPECIALS.start, *source, SPECIALS.separate, *target, SPECIALS.end][: run.recipe.model.context]
    first_answer = len(source) + 2
    first = first_answer if run.recipe.pairing.answers_only else 1
    return _continued(run, run.codec.target, text, first, first_answer, answer, asked)


def _continued(
    run: "Run",
    tokenizer: Tokenizer,
    text: Sequence[int],
    first: int,
    first_answer: int,
    answer: Prediction,
    asked: Asked,
) -> Reading:
    """A text that a language model reads: its tokens from ``first`` on are asked for."""
    places = range(first, len(text))
    batch = Batch(
        Tokens.of([text]),
        torch.tensor([text[place] for place in places], dtype=torch.int64),
        rows=torch.tensor([place - 1 for place in places], dtype=torch.int64),
    )
    questions = _tokens_of(run, tokenizer, batch, INPUT, places, given=first_answer - first)
    return Reading(batch, {INPUT: text_side(tokenizer, text)}, answer, questions, asked.target is not None)


def _prompt(run: "Run", given: Any, asked: Asked) -> Reading:
    """Language modelling: the prompt with its completion, the end token too where the model wrote it.

    An empty prompt is begun with the end token, as `heedful.tasks.language_modelling.Completer` does.
    """
    tokenizer, context = run.codec.text, run.recipe.model.context
    prompt = tokenizer.encode(_text(run, given)) or [SPECIALS.end]
    room = context - len(prompt)
    if room < 1:
        raise RequestError(
            f"the prompt has {len(prompt):,} tokens, and with a completion the model reads {context:,} at "
            f"once: shorten it to {context - 1:,} at most"
        )
    if asked.target is not None:
        return _given_completion(run, given, prompt, asked)
    wanted = run.recipe.completion.limits.max_new_tokens
    answer = _predicted(run, given, asked, max_new_tokens=min(wanted, room))
    written = list(answer.ids)
    if len(answer.log_probs) > len(written):
        written = [*written, SPECIALS.end]
    elif room < wanted:
        note = f"cut after {room} tokens, so that the model reads prompt and completion at once"
        answer = replace(answer, note=note)
    return _continued(run, tokenizer, [*prompt, *written], 1, len(prompt), answer, asked)


def _given_completion(run: "Run", given: str, prompt: list[int], asked: Asked) -> Reading:
    """Prompt and completion are encoded as one text: a token that has characters of both is the latter's."""
    tokenizer, context = run.codec.text, run.recipe.model.context
    assert asked.target is not None
    whole = tokenizer.encode(given + asked.target)
    if not given:
        whole = [*prompt, *whole]
    pairs = zip(prompt, whole, strict=False)
    shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(whole)))
    first = max(1, shared)
    if len(whole) <= first:
        raise RequestError("the target adds no token to the prompt: give a text that goes on")
    if len(whole) > context:
        raise RequestError(
            f"prompt and target have {len(whole):,} tokens, and the model reads {context:,} at once"
        )
    answer = _given(tokenizer, asked.target, whole[first:])
    return _continued(run, tokenizer, whole, 1, first, answer, asked)


# Texts that are read, and answered -------------------------------------------------------------------------


def _gaps(run: "Run", given: Any, asked: Asked) -> Reading:
    """Masked language modelling: what stands in the gaps; the side shows them as gaps."""
    _refuse_target(run, asked, "write the words into the gaps instead")
    tokenizer = run.codec.text
    filler: Any = run.predictor()
    gapped = filler.gapped(_text(run, given))
    _refuse_empty(gapped.ids)
    answer = _predicted(run, given, asked)
    ids = [SPECIALS.classify, *gapped.ids, SPECIALS.separate]
    places = [gap + 1 for gap in gapped.gaps]
    batch = Batch(
        Tokens.of([ids]),
        torch.tensor(answer.ids, dtype=torch.int64),
        rows=torch.tensor(places, dtype=torch.int64),
    )
    questions = _tokens_of(run, tokenizer, batch, INPUT, places)
    return Reading(batch, {INPUT: text_side(tokenizer, ids)}, answer, questions)


def _framed(run: "Run", given: Any) -> tuple[Batch, dict[str, Side]]:
    """A text or a pair as classifiers and regressions read it, cut where it is too long."""
    tokenizer = run.codec.tokenizer
    ids = tokenizer.encode_batch(_texts(run, given))
    _refuse_empty(*ids)
    kept = fitted(ids, run.recipe.model.max_length)
    batch = Batch.framed([kept], classify=SPECIALS.classify, separate=SPECIALS.separate)
    return batch, {INPUT: text_side(tokenizer, _ids_in(batch))}


def _class(run: "Run", given: Any, asked: Asked) -> Reading:
    """Classification; the target may be another label than the run's own answer."""
    batch, sides = _framed(run, given)
    answer = _predicted(run, given, asked)
    return Reading(batch, sides, answer, _class_of(run, batch, answer, asked))


def _class_of(run: "Run", batch: Batch, answer: Prediction, asked: Asked) -> Questions:
    labels: tuple[str, ...] = run.codec.labels
    label = answer.text if asked.target is None else asked.target
    if label not in labels:
        raise RequestError(
            f"unknown label {label!r}{nearest(label, labels)}; there are {', '.join(map(str, labels))}"
        )
    heads, layout = run.model.heads, batch.inputs.layout
    return Questions(
        INPUT,
        (),
        torch.tensor([labels.index(label)]),
        lambda hidden: iter([class_logits(hidden, heads, layout.to(hidden.device))]),
        lambda i, number: labels[number],
    )


def _number(run: "Run", given: Any, asked: Asked) -> Reading:
    """Regression."""
    _refuse_target(run, asked, "its answer is a number")
    batch, sides = _framed(run, given)
    answer, codec = _predicted(run, given, asked), run.codec
    heads, layout = run.model.heads, batch.inputs.layout
    questions = Questions(
        INPUT,
        (),
        torch.zeros(1, dtype=torch.int64),
        lambda hidden: iter([]),
        lambda i, number: answer.text,
        numbers=lambda hidden: codec.mean + codec.deviation * values(hidden, heads, layout.to(hidden.device)),
    )
    return Reading(batch, sides, answer, questions)


def _tags(run: "Run", given: Any, asked: Asked) -> Reading:
    """Tagging; a list of words or a line of them."""
    _refuse_target(run, asked, "its answer is a tag for every word")
    codec, room = run.codec, run.recipe.model.max_length - N_SPECIALS
    words = split(given) if isinstance(given, str) else [_text(run, word) for word in given]
    ids = [own[:room] for own in word_ids(codec.tokenizer, words)]
    _refuse_empty(*ids)
    parts = stretches([len(own) for own in ids], room)
    if len(parts) > 1:
        raise RequestError(
            f"the input is read in {len(parts)} parts, and one at a time can be looked at: give as many "
            f"words as make {room} tokens, the first {parts[0][1]} say"
        )
    answer: Any = _predicted(run, given, asked)
    flat = [token for own in ids for token in own]
    marks = [int(i == 0) for own in ids for i in range(len(own))]
    framed = Batch.framed([[flat]], classify=SPECIALS.classify, separate=SPECIALS.separate)
    batch = framed.tagged([marks])
    assert batch.rows is not None
    questions = Questions(
        INPUT,
        tuple(batch.rows.tolist()),
        torch.tensor([codec.tags.index(tag) for tag in answer.tags]),
        _in_chunks(run.model.heads[TAG], batch),
        lambda i, number: codec.tags[number],
    )
    return Reading(batch, {INPUT: words_side(codec.tokenizer, words, ids)}, answer, questions)


def _answer(run: "Run", given: Any, asked: Asked) -> Reading:
    """Question answering; no answer is the class token at both ends."""
    _refuse_target(run, asked, "its answer is cut out of the passage")
    question, passage = _texts(run, given)
    tokenizer, windows = run.codec.tokenizer, run.recipe.cutting
    asked_ids, read = spelled(tokenizer, question).ids, spelled(tokenizer, passage)
    _refuse_empty(read.ids)
    n_windows = len(windows.of(len(asked_ids), len(read.ids)))
    if n_windows > 1:
        raise RequestError(
            f"the passage is read in {n_windows} windows, and one at a time can be looked at: give the part "
            "of the passage that the answer stands in"
        )
    answer: Any = _predicted(run, given, asked)
    asked_ids = asked_ids[: windows.longest_question]
    batch = Batch.framed([(asked_ids, read.ids)], classify=SPECIALS.classify, separate=SPECIALS.separate)
    ids = _ids_in(batch)
    covering = None if answer.start is None else read.covering((answer.start, answer.end))
    ends = (0, 0) if covering is None else tuple(len(asked_ids) + 2 + place for place in covering)
    heads, layout = run.model.heads, batch.inputs.layout
    labels = tokenizer.tokens(ids)
    questions = Questions(
        INPUT,
        ends,
        torch.tensor(ends),
        lambda hidden: iter([answer_log_probs(hidden, heads, layout.to(hidden.device))[0].mT]),
        lambda i, place: labels[place],
    )
    return Reading(batch, {INPUT: text_side(tokenizer, ids)}, answer, questions)


def _picture(run: "Run", given: Any, asked: Asked) -> Reading:
    """Classification of pictures; the squares are those that the model makes tokens of."""
    model = run.recipe.model
    pixels = run.codec.reader.pixels(Picture.of(given))
    answer = _predicted(run, given, asked)
    pictures = Pictures.of(run.codec.reader.normalised(np.stack([pixels])), model.n_tokens)
    batch = Batch.of_pictures(pictures, [0])
    before = model.n_tokens - int(np.prod(model.grid))
    sides = {INPUT: squares_side(model.grid, before, pixels)}
    return Reading(batch, sides, answer, _class_of(run, batch, answer, asked))


READERS: dict[str, Callable[["Run", Any, Asked], Reading]] = {
    "translation": _pair,
    "summarisation": _pair,
    "language-modelling": _prompt,
    "masked-language-modelling": _gaps,
    "classification": _class,
    "picture-classification": _picture,
    "tagging": _tags,
    "question-answering": _answer,
    "regression": _number,
    "captioning": _caption,
}
"""How the inputs of each task are read, by its kind."""
