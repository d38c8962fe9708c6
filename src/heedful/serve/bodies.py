"""The bodies of requests: inputs, and the options of each verb, as in the commands of the same names.

The types are checked here; the engine checks the values, and which options a run supports.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
Phrases = list[str] | list[list[str] | None]
Decoding = Annotated[
    dict[str, Any] | None,
    Field(description="Settings of decoding, with its kind, instead of those of the recipe."),
]


class RequestBody(BaseModel):
    """Inputs: texts, lists of texts (a pair, or words), or objects with the columns of an input."""

    model_config = ConfigDict(extra="allow", strict=True)

    inputs: Annotated[list[str | list[str] | dict[str, Any]], Field(min_length=1)]


class StreamBody(RequestBody):
    """One input, and the options of a text that is generated."""

    beam: Annotated[Count | None, Field(description="Number of hypotheses of beam search.")] = None
    n_best: Annotated[Count | None, Field(description="Number of answers to each input.")] = None
    decoding: Decoding = None
    alignment: Annotated[bool | None, Field(description="Align words of source and output.")] = None
    attention: Annotated[bool | None, Field(description="Return attention over the source.")] = None
    max_new_tokens: Annotated[Count | None, Field(description="Maximum length of a continuation.")] = None
    stop: Annotated[list[str] | None, Field(description="A continuation ends before any of these.")] = None
    prefix: Annotated[str | None, Field(description="Text before every input, such as examples.")] = None
    regex: Annotated[str | None, Field(description="What the whole output matches.")] = None
    json_schema: Annotated[dict[str, Any] | None, Field(description="What the output is valid by.")] = None
    gap: Annotated[str | None, Field(description="What a masked language model replaces.")] = None
    words: Annotated[str | None, Field(description="How a tagger finds words in a text.")] = None
    must: Annotated[Phrases | None, Field(description="What the outputs contain.")] = None
    must_not: Annotated[Phrases | None, Field(description="What they do not contain.")] = None
    target_prefix: Annotated[str | list[str | None] | None, Field(description="How they begin.")] = None
    terminology: Annotated[dict[str, str] | None, Field(description="Translations, by term.")] = None


class PredictBody(StreamBody):
    """Inputs, and the options of predictions."""

    threshold: Annotated[
        float | None, Field(ge=0, le=1, description="Least probability of an answer that is given.")
    ] = None
    otherwise: Annotated[str | None, Field(description="The output in place of any other.")] = None


class CompleteBody(RequestBody):
    """Prompts, as of OpenAI's interface (`heedful.serve.openai`)."""

    max_new_tokens: Index | None = None
    decoding: Decoding = None
    stop: list[str] | None = None
    echo: bool = False
    n_candidates: Index | None = None


class EmbedBody(RequestBody):
    """Inputs, and how their vectors are made."""

    pooling: Annotated[
        Literal["mean", "first", "last", "max"] | None,
        Field(description="How the vectors of tokens become one."),
    ] = None
    layer: Annotated[int | None, Field(description="Index of the layer; by default the last.")] = None


class ExplainBody(RequestBody):
    """One input, and what to show."""

    views: Annotated[list[str] | None, Field(description="Names of `heedful explain --view`.")] = None
    layers: Annotated[Index | list[Index] | None, Field(description="Indices of layers, from 0.")] = None
    heads: Annotated[Index | list[Index] | None, Field(description="Indices of heads, from 0.")] = None
    kinds: Annotated[
        list[Literal["self", "causal", "cross"]] | None, Field(description="Kinds of attention.")
    ] = None
    target: Annotated[str | None, Field(description="Explain this answer, not the predicted one.")] = None
    alternative: Annotated[Index | None, Field(description="Rank of the answer to explain.")] = None
    decoding: Decoding = None


BODIES: Mapping[str, type[RequestBody]] = {
    "predict": PredictBody,
    "stream": StreamBody,
    "complete": CompleteBody,
    "score": RequestBody,
    "embed": EmbedBody,
    "explain": ExplainBody,
}
"""By verb."""
