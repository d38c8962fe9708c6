"""Requests as clients send them: read with a bound, checked, and their cost counted. Nothing is computed."""

import asyncio
import json
import math
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from heedful.serve.admission import RefusedError
from heedful.serve.bodies import BODIES, RequestBody
from heedful.serve.service import Limits, Served
from heedful.typing import JsonObject

OPTIONS = "options"
"""The part of a form with the options, a JSON object."""

WRITING = ("predict", "stream", "complete")
"""Verbs whose answers are written by models that write."""

SAMPLED, SHORTEST_SAMPLE = 4096, 64
"""Characters of a request that are tokenised to count its tokens, and of each text at least. A text with more
has as many tokens as its beginning has by the character."""

LARGEST = 1 << 40
"""Larger numbers in options count as this one: their products stay finite, and exceed every limit."""


ModelT = TypeVar("ModelT", bound=BaseModel)


class GoneError(Exception):
    """The client closed the connection."""


class Cost(NamedTuple):
    """The size of a request in tokens.

    Args:
        read: those of its inputs.
        expected: with outputs as long as the inputs, or as long as a continuation may be, for all hypotheses:
            the measure of the time that it takes.
        total: with the longest outputs, for all hypotheses. The caches of keys and values have no more
            positions.
    """

    read: int
    expected: int
    total: int


async def read(request: Request, verb: str, served: Served, limits: Limits) -> tuple[bytes, RequestBody]:
    """Return the body of a request as JSON, and its content.

    Raises:
        RefusedError: it is too large, too slow, or not valid.
        GoneError: the client left before its end.
    """
    payload = await body_of(request, limits)
    if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        payload = await json_of_form(payload, request.headers, served.engines.description, limits)
    return payload, parsed(payload, verb)


async def body_of(request: Request, limits: Limits) -> bytes:
    """Return the body.

    Raises:
        RefusedError: it is larger than the limit, or does not arrive in time; the rest is not read.
        GoneError: the client left before its end.
    """
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.receive_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise RefusedError(
                        f"the body has more than {limits.body:,} bytes", 413, "body", closes=True
                    )
                parts.append(part)
    except ClientDisconnect:
        raise GoneError from None
    except TimeoutError:
        raise RefusedError("the body did not arrive in time", 408, "slow", closes=True) from None
    return b"".join(parts)


async def json_of_form(payload: bytes, headers: Headers, description: JsonObject, limits: Limits) -> bytes:
    """Return the JSON that says the same as a form: parts for the columns of inputs, and one for the options.

    Parts of the same name belong to the inputs in their order. Images are files; the others are texts.

    Raises:
        RefusedError: it is not such a form.
    """

    async def stream() -> AsyncGenerator[bytes, None]:
        yield payload

    n_columns = len(columns := [*description.get("inputs", ()), *description.get("optional_inputs", ())])
    most = limits.inputs * max(1, n_columns) + 1
    parser = MultiPartParser(headers, stream(), max_files=most, max_fields=most, max_part_size=limits.body)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError, AssertionError):
        raise RefusedError(
            "not a form: multipart/form-data with its boundary is expected", 422, "invalid"
        ) from None
    values: dict[str, list[str]] = {}
    options: JsonObject = {}
    try:
        for name, part in form.multi_items():
            if name == OPTIONS and isinstance(part, str):
                options = _options(part)
            elif name not in columns or isinstance(part, str) == (name in description.get("images", ())):
                message = f"a part of the form: expected {', '.join((*columns, OPTIONS))}; images are files"
                raise RefusedError(message, 422, "invalid")
            else:
                text = part if isinstance(part, str) else b64encode(await part.read()).decode()
                values.setdefault(name, []).append(text)
    finally:
        await form.close()
    if len(numbers := {*map(len, values.values())}) > 1:
        raise RefusedError(f"inputs: different numbers of parts: {sorted(numbers)}", 422, "invalid")
    inputs = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return json.dumps({**options, "inputs": inputs}).encode()


def _options(text: str) -> JsonObject:
    try:
        found = from_json(text, allow_inf_nan=False)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RefusedError(f"{OPTIONS}: expected a JSON object", 422, "invalid")
    return found


async def content_of(request: Request, model: type[ModelT], limits: Limits) -> ModelT:
    """Return the content of a body in JSON that is not heedful's own.

    Raises:
        RefusedError: it is too large, too slow, or not valid.
        GoneError: the client left before its end.
    """
    return valid(await body_of(request, limits), model)


def parsed(payload: bytes, verb: str) -> RequestBody:
    """Return the content of a body in heedful's own format; see `valid`."""
    return valid(payload, BODIES[verb])


def valid(payload: bytes, model: type[ModelT]) -> ModelT:
    """Return JSON as a model.

    Raises:
        RefusedError: it is not such an object. The message has nothing of its content.
    """
    try:
        found = from_json(payload, allow_inf_nan=False)
    except ValueError as error:
        raise RefusedError(f"not JSON: {error}", 422, "invalid") from None
    if not _is_finite(found):
        raise RefusedError("not JSON: a number is infinite", 422, "invalid")
    try:
        return model.model_validate(found)
    except ValidationError as error:
        raise RefusedError(_first_problem(error), 422, "invalid") from None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_input=False, include_url=False)[0]
    if not problem["loc"]:
        return "the body: expected a JSON object"
    name = str(problem["loc"][0])
    if name == "inputs":
        return "inputs: expected a list with at least one text, list of texts, or object"
    message = problem["msg"]
    return f"{name}: {message[0].lower()}{message[1:]}"


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, list) else True


def cost_of(served: Served, verb: str, body: RequestBody, limits: Limits) -> Cost:
    """Return the tokens of a request.

    Raises:
        RefusedError: they exceed a limit.
    """
    if len(body.inputs) > limits.inputs:
        raise RefusedError(f"inputs: at most {limits.inputs:,}, got {len(body.inputs):,}", 413, "inputs")
    description = served.engines.description
    options = {name: value for name, value in body if value is not None}
    lengths = _lengths(served, body)
    read = expected = total = sum(lengths)
    if verb in WRITING and description.get("generates"):
        longest = [_longest_output(description, options, n) for n in lengths]
        is_continued = description.get("max_new_tokens") is not None
        written = sum(n if is_continued else min(n, own) for n, own in zip(longest, lengths, strict=True))
        n_hypotheses = _n_hypotheses(description, options)
        expected, total = n_hypotheses * (read + written), n_hypotheses * (read + sum(longest))
    what = f"{total:,} tokens, with the longest outputs of all hypotheses"
    if total > limits.tokens:
        raise RefusedError(f"at most {limits.tokens:,}, got {what}", 413, "tokens")
    memory = served.engines.cache_memory
    if memory is not None and total * served.cache_bytes > memory:
        raise RefusedError(f"{what}, do not fit in memory", 413, "memory")
    return Cost(read, expected, total)


def _lengths(served: Served, body: RequestBody) -> list[int]:
    """Return the tokens of each input, at least one; an image counts as one.

    Of much text only beginnings are tokenised: counting must not keep the other requests waiting.
    """
    texts = [_texts(value) for value in body.inputs]
    if served.tokenizer is None or served.engines.description.get("images"):
        return [max(1, len(own)) for own in texts]
    flat = [text for own in texts for text in own]
    longest = max(SHORTEST_SAMPLE, SAMPLED // max(1, len(flat)))
    counts = map(len, served.tokenizer.encode_batch([text[:longest] for text in flat]))
    lengths = (
        n if len(text) <= longest else math.ceil(n * len(text) / longest)
        for n, text in zip(counts, flat, strict=True)
    )
    return [max(1, sum(next(lengths) + 1 for _ in own)) for own in texts]


def _n_hypotheses(description: JsonObject, options: Mapping[str, Any]) -> int:
    decoding = _decoding(description, options)
    given = (options.get("beam", decoding.get("beam")), options.get("n_best"), decoding.get("n"))
    return max(1, *(int(_number(value, 1)) for value in given))


def _decoding(description: JsonObject, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the decoding settings of a request; those that it gives replace those of the recipe."""
    return _mapping(options.get("decoding")) or _mapping(description.get("decoding"))


def _longest_output(description: JsonObject, options: Mapping[str, Any], source: int) -> int:
    """Return the maximum number of tokens of an output (`heedful.decoding.protocol.MaxLength`)."""
    if (own := description.get("max_new_tokens")) is not None:
        return int(_number(options.get("max_new_tokens"), own))
    own = _mapping(_mapping(description.get("decoding")).get("max_length"))
    settings = {**own, **_mapping(_decoding(description, options).get("max_length"))}
    longest = int(_number(settings.get("ratio"), 0) * source + _number(settings.get("extra"), 0))
    return longest if settings.get("cap") is None else min(longest, int(_number(settings["cap"], longest)))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object, otherwise: float) -> float:
    """Return a value within bounds if it is a number; the engine refuses what is not valid."""
    return min(max(value, 0), LARGEST) if isinstance(value, int | float) else otherwise


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for part in value.values() for text in _texts(part)]
    return [text for part in value for text in _texts(part)] if isinstance(value, list) else []
