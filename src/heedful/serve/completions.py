"""Completions with the log-probability of each token, and of the tokens that could have come instead.

They come from one pass over the prompt and its completion, as those of `Run.score` do.
"""

from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from heedful.errors import RequestError
from heedful.tasks.language_modelling.task import LanguageModelling
from heedful.tasks.model_input import running_text_input
from heedful.tasks.prediction import Prediction
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.api.run import Run


def writer_of(run: "Run") -> LanguageModelling:
    """Return the task of a run that continues texts.

    Raises:
        RequestError: the run does not.
    """
    if not isinstance(run.task, LanguageModelling):
        raise RequestError(f"task {run.recipe.task.kind}: it does not continue texts")
    return run.task


def completion(
    run: "Run", prompt: str, prediction: Prediction, *, echo: bool, n_candidates: int | None
) -> JsonObject:
    """Return a completion in JSON.

    Args:
        run: of a language model.
        prompt: what was continued.
        prediction: the continuation.
        echo: whether the prompt is a part of the text.
        n_candidates: the number of most probable tokens at each position; None: no log-probabilities.
    """
    tokenizer = writer_of(run).processor.text
    read = tokenizer.encode(prompt)
    found: JsonObject = {
        "text": (prompt if echo else "") + prediction.text,
        "finished": bool(prediction.finished),
        "prompt_tokens": len(read),
        "completion_tokens": len(prediction.ids),
    }
    if prediction.notes:
        found["notes"] = [*prediction.notes]
    if n_candidates is not None:
        found["logprobs"] = _log_probs(run, read, prediction.ids, echo=echo, n_candidates=n_candidates)
    return found


def _log_probs(
    run: "Run", read: Sequence[int], written: Sequence[int], *, echo: bool, n_candidates: int
) -> JsonObject:
    """Return tokens, their log-probabilities, candidates and offsets, each a list over the positions.

    The prompt is scored as by `Run.score`, after the end token of another text, and the completion as it was
    written, after the prompt.
    """
    tokenizer = writer_of(run).processor.text
    parts = [([SPECIALS.end], read)] if echo else []
    parts.append(([*read] or [SPECIALS.end], written))
    found = [each for before, ids in parts for each in _positions(run, before, ids, n_candidates)]
    shown = [token for _, ids in parts for token in ids]
    tokens = pieces_of(tokenizer, shown, is_continuation=bool(read) and not echo)
    return {
        "tokens": tokens,
        "token_logprobs": [log_prob for log_prob, _ in found],
        "top_logprobs": [top for _, top in found] if found and n_candidates else None,
        "text_offset": [0, *accumulate(map(len, tokens))][: len(tokens)],
    }


@torch.inference_mode()
def _positions(
    run: "Run", before: Sequence[int], ids: Sequence[int], n_candidates: int
) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield the log-probability of each token after those before it, and the most probable ones there.

    Raises:
        RequestError: the text is longer than the context.
    """
    if not ids:
        return
    task = writer_of(run)
    tokenizer, context = task.processor.text, task.recipe.model.context
    text, first = [*before, *ids], len(before)
    if len(text) > context:
        raise RequestError(f"logprobs: at most {context:,} tokens (the context), got {len(text):,}")
    prepared = running_text_input(run.model, tokenizer, text, first, first, Prediction(""))
    batch = prepared.batch.to(next(run.model.parameters()).device)
    wanted = iter(ids)
    for logits in prepared.targets.logits(run.model(batch.inputs, batch.source), batch):
        for row in logits.float().log_softmax(-1):
            yield row[next(wanted)].item(), _candidates(tokenizer, row, n_candidates)


def _candidates(tokenizer: Tokenizer, row: torch.Tensor, n: int) -> dict[str, float]:
    """Return the log-probabilities of the most probable tokens by their texts; of equal texts the largest."""
    best = row.topk(min(n, len(row)))
    texts = [
        text_of(*tokenizer.token_bytes([token], is_continuation=True)) for token in best.indices.tolist()
    ]
    found: dict[str, float] = {}
    for text, log_prob in zip(texts, best.values.tolist(), strict=True):
        found.setdefault(text, log_prob)
    return found


def text_of(token: bytes) -> str:
    """Return a token as text; one that is only a part of a character as its bytes."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int], *, is_continuation: bool) -> list[str]:
    """Return the text that each token adds; one that does not end a character adds none."""
    decoder = getincrementaldecoder("utf-8")("replace")
    pieces = [decoder.decode(token) for token in tokenizer.token_bytes(ids, is_continuation=is_continuation)]
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    return pieces
