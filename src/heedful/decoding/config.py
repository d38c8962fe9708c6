"""Choice of the decoder: the section ``decoding`` of recipes and requests, and `decode`, which applies it."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from heedful.decoding.beam import BeamConfig, BeamSettings, beam_search
from heedful.decoding.diverse_beam import DiverseBeamConfig, diverse_beam_search
from heedful.decoding.greedy import GreedyConfig, greedy
from heedful.decoding.protocol import Hypothesis, MaxLength, Request
from heedful.decoding.sampling import MbrConfig, SampleConfig, SampleSettings, sample
from heedful.errors import RequestError

__all__ = [
    "BeamConfig",
    "BeamSettings",
    "DecodingConfig",
    "DiverseBeamConfig",
    "GreedyConfig",
    "MaxLength",
    "MbrConfig",
    "SampleConfig",
    "SampleSettings",
    "check_streaming",
    "decode",
    "n_answers",
    "with_spares",
]

DecodingConfig = Annotated[
    GreedyConfig | BeamConfig | DiverseBeamConfig | SampleConfig | MbrConfig, Field(discriminator="kind")
]


def decode(config: DecodingConfig, request: Request) -> list[list[Hypothesis]]:
    """Decode as configured; used by validation, prediction and serving.

    ``request.max_lengths`` must be at most ``config.max_length.of`` for each sentence. The settings
    ``min_length``, ``repetition_penalty`` and ``no_repeat_ngram`` are added to ``request.constraints``.

    Returns:
        The hypotheses of each sentence, in the order of the sentences; at least one each. For minimum Bayes
        risk decoding, they are the samples, as they were drawn.

    Raises:
        WorkError: the logits are not a distribution, or only forbidden tokens are possible.
        RequestError: the model or the request does not support the configuration.
    """
    if request.on_token is not None:
        check_streaming(config)
    if rules := config.constraints():
        constraints = request.constraints or [()] * len(request.max_lengths)
        request = replace(request, constraints=[[*rules, *own] for own in constraints])
    match config:
        case GreedyConfig():
            return [[hypothesis] for hypothesis in greedy(request)]
        case BeamConfig():
            return beam_search(request, config)
        case DiverseBeamConfig():
            return diverse_beam_search(request, config)
        case SampleConfig() | MbrConfig():
            return sample(request, config)


def n_answers(config: DecodingConfig) -> int:
    """Return the most answers to an input."""
    match config:
        case GreedyConfig():
            return 1
        case BeamConfig() | DiverseBeamConfig() | MbrConfig():
            return config.n_best
        case SampleConfig():
            return config.n


def with_spares(config: DecodingConfig) -> DecodingConfig:
    """Return a configuration that returns all hypotheses of a beam from which several answers are taken.

    Different tokens may spell the same text; further hypotheses then take the place of the repeated ones. The
    first ``n_best`` hypotheses are the same.
    """
    if isinstance(config, BeamSettings) and config.n_best > 1:
        return config.model_copy(update={"n_best": config.beam})
    return config


def check_streaming(config: DecodingConfig) -> None:
    """Check that tokens are final as soon as they are chosen, so that they can be streamed.

    Raises:
        RequestError: the result is only known at the end.
    """
    if isinstance(config, BeamSettings) and config.beam > 1:
        raise RequestError(
            f"streaming requires beam 1, got {config.beam}: a beam search has no final token before its end; "
            "set beam to 1, or the kind of decoding to greedy or sample"
        )
    if isinstance(config, MbrConfig):
        raise RequestError(
            "streaming is not supported by minimum Bayes risk decoding, which compares whole texts; set the "
            "kind of decoding to greedy or sample"
        )
    if isinstance(config, SampleConfig) and config.n > 1:
        raise RequestError(f"streaming supports only one sample, got n={config.n}; set 'n' to 1")
