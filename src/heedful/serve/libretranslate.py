"""The interface of LibreTranslate's clients: translations chosen by the codes of two languages.

| path | |
|---|---|
| ``POST /translate`` | ``q`` (a text or a list), ``source``, ``target``, as JSON or as a form |
| ``GET /languages`` | the languages, each with those into which it is translated |
| ``POST /detect`` | refused: there is no model that detects languages |

Each line of a text is translated by itself, and the breaks between lines stay as they are.

A run has codes from its recipe (``task.languages``) or from ``heedful serve RUN=en:ta``. The source ``auto``
is the only source language of the target, if there is only one.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from heedful.errors import nearest
from heedful.serve.admission import RefusedError, out_of_time
from heedful.serve.handlers import Asked, Handlers, json_response
from heedful.serve.openapi import refusals
from heedful.serve.protection import Keys
from heedful.serve.requests import GoneError, body_of, valid
from heedful.serve.service import Limits, Served
from heedful.typing import JsonObject

ERROR: JsonObject = {"type": "object", "required": ["error"]}
"""An error is a text; those of an address or a host are objects, as everywhere."""

AUTO = "auto"
"""The source language is not said."""

FORM = "application/x-www-form-urlencoded"

LINE_BREAK = re.compile(r"(\r\n|\r|\n)")

MOST_LINES = 4096
"""Maximum number of lines in a request, in all of its texts, with those that are blank."""

PART = 64
"""Maximum number of lines that are sent to an engine together; a request with more is answered in parts."""

NO_DETECTION = "no model of this service detects languages; give the source language"

NAMES = {
    "ar": "Arabic",
    "bn": "Bengali",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
"""English names of languages; of others the code is shown."""


class Translation(BaseModel):
    """The body of a request for translations."""

    model_config = ConfigDict(extra="allow", strict=True)

    q: str | Annotated[list[str], Field(min_length=1)]
    source: str = AUTO
    target: str
    format: str = "text"
    alternatives: Annotated[int | None, Field(ge=0)] = None
    api_key: str | None = None


class Lines:
    """The lines of a text, and the breaks between them.

    Attributes:
        texts: the lines that are not blank.
    """

    def __init__(self, text: str) -> None:
        self._parts = LINE_BREAK.split(text)  # lines and breaks take turns
        self.texts = [line for line in self._parts[::2] if line.strip()]

    def joined(self, answers: Sequence[Sequence[str]], rank: int) -> str:
        """Return the text with the answer of this rank to each line; the best one to a line with fewer."""
        return "".join(self._joined(iter(answers), rank))

    def _joined(self, answers: Iterator[Sequence[str]], rank: int) -> Iterator[str]:
        for i, part in enumerate(self._parts):
            if i % 2 == 0 and part.strip():
                own = next(answers)
                yield own[rank] if rank < len(own) else own[0]
            else:
                yield part


def _ranked(prediction: JsonObject) -> list[str]:
    """Return the translations of a line, the best first."""
    return [each.get("output") or "" for each in (prediction, *prediction.get("alternatives", ()))]


def _lines_of(texts: Sequence[str]) -> list[Lines]:
    """Return texts as lines.

    Raises:
        RefusedError: there are too many. They are counted first, since they may be millions.
    """
    n = sum(1 + max(text.count("\n"), text.count("\r")) for text in texts)
    if n > MOST_LINES:
        raise RefusedError(f"q: at most {MOST_LINES:,} lines, got {n:,}", 413, "inputs")
    return [Lines(text) for text in texts]


class LibreTranslate:
    """Translates requests of LibreTranslate's clients to those of heedful, and its answers back."""

    def __init__(self, handlers: Handlers, keys: Keys) -> None:
        self.handlers, self.keys = handlers, keys

    def languages(self) -> list[JsonObject]:
        """Return the source languages, and those into which each is translated."""
        targets: dict[str, list[str]] = {}
        for served in self.handlers.service.runs.values():
            if (pair := served.languages) is not None:
                targets.setdefault(pair[0], []).append(pair[1])
        return [
            {"code": code, "name": NAMES.get(code, code), "targets": [*dict.fromkeys(own)]}
            for code, own in targets.items()
        ]

    def find(self, source: str, target: str) -> Served:
        """Return the first run that translates between two languages.

        Raises:
            RefusedError: there is none, or the source is not said and there are several.
        """
        known = [(run.languages, run) for run in self.handlers.service.runs.values() if run.languages]
        found = [(pair, run) for pair, run in known if pair[1] == target and source in (AUTO, pair[0])]
        if len({pair for pair, _ in found}) == 1:
            return found[0][1]
        if found:
            raise RefusedError(f"source: {NO_DETECTION}", 400, "invalid")
        pairs = sorted({":".join(pair) for pair, _ in known})
        listed = ", ".join(pairs) or "none: give the languages of a run by RUN=en:ta, or in its recipe"
        raise RefusedError(f"this service does not translate so; it has {listed}", 400, "unknown")

    async def translate(self, request: Request) -> Response:
        """Answer a request for translations."""
        asked = Asked("", "predict")
        try:
            with self.handlers.noted(asked):
                body = await translation_of(request, self.handlers.service.limits)
                in_header = self.keys.admit_header(request.headers.get("authorization", "").encode())
                if not in_header and not self.keys.admit(body.api_key):
                    raise RefusedError("a key is needed: api_key", 403, "key")
                self.handlers.refuse_if_draining()
                _refuse_unsupported(body)
                served = self.find(body.source, body.target)
                asked.name = served.name
                is_one = isinstance(body.q, str)
                sources = _lines_of([body.q] if isinstance(body.q, str) else body.q)
                answers = await self._answers(asked, sources, body.alternatives or 0, request)
        except (RefusedError, GoneError) as error:
            return self.refusal(error)
        found = [[_ranked(line) for line in own] for own in answers]
        notes = [[*dict.fromkeys(note for line in own for note in line.get("notes", ()))] for own in answers]
        texts = [source.joined(own, 0) for source, own in zip(sources, found, strict=True)]
        others = [
            [source.joined(own, rank) for rank in range(1, max(map(len, own), default=1))]
            for source, own in zip(sources, found, strict=True)
        ]
        answer: JsonObject = {"translatedText": texts[0] if is_one else texts}
        if body.alternatives:
            answer["alternatives"] = others[0] if is_one else others
        if any(notes):  # LibreTranslate has none; its clients pass unknown entries by
            answer["notes"] = notes[0] if is_one else notes
        if body.source == AUTO:
            source = {"confidence": 0, "language": served.languages[0] if served.languages else AUTO}
            answer["detectedLanguage"] = source if is_one else [source] * len(texts)
        return json_response(answer)

    async def _answers(
        self, asked: Asked, sources: "Sequence[Lines]", n_others: int, request: Request
    ) -> list[list[JsonObject]]:
        """Return the predictions of the lines of each text.

        Raises:
            RefusedError: a line cannot be translated, or a part is not let in, or not in time.
            GoneError: the client left.
        """
        places = [(number, text) for number, source in enumerate(sources) for text in source.texts]
        answers: list[list[JsonObject]] = [[] for _ in sources]
        limits, tokens = self.handlers.service.limits, 0
        n = min(PART, limits.inputs)
        for part in (places[i : i + n] for i in range(0, len(places), n)):
            if time.perf_counter() - asked.begun > limits.seconds:
                raise out_of_time()
            content = {"inputs": [text for _, text in part], **({"n_best": n_others + 1} if n_others else {})}
            found = await self.handlers.ask(asked, content, request)
            tokens += asked.tokens
            for (number, _), each in zip(part, found["predictions"], strict=True):
                if "error" in each:
                    problem = re.sub(r"^inputs\[\d+\]", f"q[{number}]", each["error"])
                    raise RefusedError(problem, 422, "invalid")
                answers[number].append(each)
        asked.tokens = tokens
        return answers

    def refusal(self, error: RefusedError | GoneError) -> Response:
        """Return an error as LibreTranslate's clients read it: the message is the entry ``error``."""
        response = self.handlers.refusal(error)
        if isinstance(error, RefusedError):
            body = json.dumps({"error": str(error)}, ensure_ascii=False)
            kept = {k: v for k, v in response.headers.items() if k in ("retry-after", "connection")}
            return Response(body, response.status_code, kept, "application/json")
        return response


async def translation_of(request: Request, limits: Limits) -> Translation:
    """Return the content of a body: JSON, or the fields of a form.

    Raises:
        RefusedError: it is too large, too slow, or not valid.
        GoneError: the client left before its end.
    """
    payload = await body_of(request, limits)
    is_form = request.headers.get("content-type", "").partition(";")[0].strip() == FORM
    if is_form and not payload.lstrip().startswith(b"{"):  # curl says so of all that it sends
        payload = json.dumps(_fields(payload)).encode()
    return valid(payload, Translation)


def _fields(payload: bytes) -> JsonObject:
    """Return the fields of a form; a text that is given several times is a list."""
    try:
        given = parse_qsl(payload.decode(), keep_blank_values=True, errors="strict", max_num_fields=4096)
    except ValueError:
        raise RefusedError("not a form in UTF-8", 422, "invalid") from None
    texts = [value for name, value in given if name == "q"]
    fields: JsonObject = dict(given)
    if texts:
        fields["q"] = texts if len(texts) > 1 else texts[0]
    if fields.get("alternatives", "").isdecimal():
        fields["alternatives"] = int(fields["alternatives"])
    return fields


def _refuse_unsupported(body: Translation) -> None:
    if body.format != "text":
        raise RefusedError("format: only text is supported", 400, "invalid")
    for name, value in (body.model_extra or {}).items():
        if value is not None:
            supported = [*Translation.model_fields]
            raise RefusedError(f"{name}: not supported{nearest(name, supported)}", 422, "invalid")


def add_libretranslate(app: FastAPI, handlers: Handlers, keys: Keys) -> None:
    """Add the routes of this interface."""
    libretranslate = LibreTranslate(handlers, keys)
    schema = {"schema": Translation.model_json_schema()}
    content: Mapping[str, Any] = {"application/json": schema, FORM: schema}

    @app.get("/languages", summary="The languages, as LibreTranslate's clients list them")
    async def languages() -> list[JsonObject]:
        return libretranslate.languages()

    @app.post("/detect", include_in_schema=False)
    async def detect() -> Response:
        return libretranslate.refusal(RefusedError(NO_DETECTION, 404, "unsupported"))

    app.add_api_route(
        "/translate",
        libretranslate.translate,
        methods=["POST"],
        summary="Translations, by the codes of two languages",
        responses={**refusals(ERROR), 200: {"content": {"application/json": {}}}},
        response_class=Response,
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
