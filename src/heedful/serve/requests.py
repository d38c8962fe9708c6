"""Requests as clients send them: read with a bound, checked, and their cost counted. Nothing is computed."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from heedful.serve.admission import RefusedError
from heedful.serve.service import Limits, Served


class RequestBody(BaseModel):
    """The body of a request: inputs, and the options of the verb."""

    model_config = ConfigDict(extra="allow", strict=True)

    inputs: Annotated[list[str | list[str] | dict[str, Any]], Field(min_length=1)]


async def body_of(request: Request, limit: int) -> bytes:
    """Return the body.

    Raises:
        RefusedError: it is larger than the limit; the rest is not read.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise RefusedError(f"the body has more than {limit:,} bytes", 413, "body", closes=True)
        parts.append(part)
    return b"".join(parts)


def parsed(payload: bytes) -> RequestBody:
    """Return the content of a body.

    Raises:
        RefusedError: it is not such a JSON object. The message has nothing of its content.
    """
    try:
        found = from_json(payload, allow_inf_nan=False)
    except ValueError as error:
        raise RefusedError(f"not JSON: {error}", 422, "invalid") from None
    if not _is_finite(found):
        raise RefusedError("not JSON: a number is infinite", 422, "invalid")
    try:
        return RequestBody.model_validate(found)
    except ValidationError as error:
        where = [".".join(str(part) for part in problem["loc"][:2]) for problem in error.errors()]
        message = "expected texts, lists of texts, or objects"
        raise RefusedError(f"{where[0] or 'body'}: {message}", 422, "invalid") from None


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, list) else True


def cost_of(served: Served, body: RequestBody, limits: Limits) -> int:
    """Return the tokens of a request: of its inputs, times the hypotheses of each.

    Raises:
        RefusedError: it exceeds a limit.
    """
    if len(body.inputs) > limits.inputs:
        raise RefusedError(f"inputs: at most {limits.inputs:,}, got {len(body.inputs):,}", 413, "inputs")
    texts = [text for value in body.inputs for text in _texts(value)]
    tokenizer = served.tokenizer
    is_image = bool(served.engines.description.get("images"))
    n = len(texts) if tokenizer is None or is_image else sum(map(len, tokenizer.encode_batch(texts)))
    options = body.model_extra or {}
    hypotheses = _number(options, "beam", "n_best", *_decoding_numbers(options, served))
    cost = max(1, (n + len(texts)) * hypotheses)
    if new := options.get("max_new_tokens"):
        cost += new * hypotheses * len(body.inputs) if isinstance(new, int) else 0
    if cost > limits.tokens:
        message = f"at most {limits.tokens:,} tokens with all hypotheses, got {cost:,}"
        raise RefusedError(message, 413, "tokens")
    return cost


def _decoding_numbers(options: Mapping[str, Any], served: Served) -> list[int]:
    own = served.engines.description.get("decoding") or {}
    given = options.get("decoding")
    settings = {**own, **given} if isinstance(given, dict) else own
    return [settings[name] for name in ("beam", "n") if isinstance(settings.get(name), int)]


def _number(options: Mapping[str, Any], *names: "str | int") -> int:
    values = [options.get(name) if isinstance(name, str) else name for name in names]
    return max([1, *(value for value in values if isinstance(value, int))])


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for part in value.values() for text in _texts(part)]
    return [text for part in value for text in _texts(part)] if isinstance(value, list) else []
