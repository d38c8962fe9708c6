"""Input of language modelling: the prompt and its completion, as one text."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.explain.attention_sites import INPUT
from heedful.explain.reading.questions import AnswerOptions, ModelInput
from heedful.explain.reading.shared import given_answer, predicted, text_of, tokens_of
from heedful.explain.sides import text_side
from heedful.nn.layout import Tokens
from heedful.tasks.continuing import Stops
from heedful.tasks.prediction import Prediction
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from heedful.runs.run import Run


def read_prompt(run: "Run", given: Any, asked: AnswerOptions) -> ModelInput:
    """Prepare the prompt with its completion, including the end token if the model generated it.

    After a stop text generation always ends, so the end token is omitted. An empty prompt is replaced by the
    end token, as in `heedful.tasks.language_modelling.Completer`.
    """
    tokenizer, context = run.processor.text, run.recipe.model.context
    prompt = tokenizer.encode(text_of(run, given)) or [SPECIALS.end]
    room = context - len(prompt)
    if room < 1:
        raise RequestError(
            f"the prompt must have at most {context - 1:,} tokens (context {context:,}), got "
            f"{len(prompt):,}; shorten it"
        )
    if asked.target is not None:
        return _given_completion(run, given, prompt, asked)
    limits = run.recipe.completion.limits
    answer = predicted(run, given, asked, max_new_tokens=min(limits.max_new_tokens, room))
    written = list(answer.ids)
    if len(answer.log_probs) > len(written):
        if not Stops(tokenizer, tuple(limits.stop)).reached(written, begun=bool(prompt)):
            written = [*written, SPECIALS.end]
    elif room < limits.max_new_tokens:
        note = f"cut after {room} tokens, the rest of the model's context"
        answer = replace(answer, note=note)
    return continued(run, tokenizer, [*prompt, *written], 1, len(prompt), answer, asked)


def _given_completion(run: "Run", given: str, prompt: list[int], asked: AnswerOptions) -> ModelInput:
    """Prepare a prompt with a given completion, encoded as one text.

    A token with characters of both counts as part of the completion.
    """
    tokenizer, context = run.processor.text, run.recipe.model.context
    assert asked.target is not None
    whole = tokenizer.encode(given + asked.target)
    if not given:
        whole = [*prompt, *whole]
    pairs = zip(prompt, whole, strict=False)
    shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(whole)))
    first = max(1, shared)
    if len(whole) <= first:
        raise RequestError(
            "the target must add at least one token to the prompt; to explain a text without a prompt, use "
            'an empty prompt: explain RUN "" --target TEXT'
        )
    if len(whole) > context:
        raise RequestError(
            f"prompt and target must have at most {context:,} tokens (the context), got {len(whole):,}; "
            "shorten them"
        )
    answer = given_answer(tokenizer, asked.target, whole[first:], asked)
    return continued(run, tokenizer, whole, 1, first, answer, asked)


def continued(
    run: "Run",
    tokenizer: Tokenizer,
    text: Sequence[int],
    first: int,
    first_answer: int,
    answer: Prediction,
    asked: AnswerOptions,
) -> ModelInput:
    """Prepare a text for a language model; the questions are its tokens from ``first`` on."""
    places = range(first, len(text))
    batch = Batch(
        Tokens.of([text]),
        torch.tensor([text[place] for place in places], dtype=torch.int64),
        rows=torch.tensor([place - 1 for place in places], dtype=torch.int64),
    )
    questions = tokens_of(run, tokenizer, batch, INPUT, places, given=first_answer - first)
    return ModelInput(batch, {INPUT: text_side(tokenizer, text)}, answer, questions, asked.target is not None)
