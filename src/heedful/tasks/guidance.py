"""Guided attention in recipes: which head learns word alignments, and which models have one to guide."""

from typing import Any

from pydantic import Field, PositiveInt

from heedful.config import Config
from heedful.models.recurrent import RecurrentConfig
from heedful.models.transformer import TransformerConfig
from heedful.objectives.guided import DecoderStep


class GuidedConfig(Config):
    """One head of the attention over the source also learns word alignments (`heedful.objectives.guided`).

    Rows of the training data then have a column ``alignment`` (``0-0 1-2``: source-target, words between
    blanks counted from 0).

    Args:
        weight: of the term; 0: it is only reported.
        layer: of those that read the source, from 1; null: the last but one, or the only one.
        head: of the layer, from 1.
        step: the decoder step at which the head attends to the words that a word is aligned with: ``output``,
            the step that predicts it; ``input``, the next one, which reads it.
    """

    weight: float = Field(default=0.05, ge=0)
    layer: PositiveInt | None = None
    head: PositiveInt = 1
    step: DecoderStep = "output"

    def place(self, n_layers: int) -> int:
        """The layer, from 0, of a model of which so many layers read the source."""
        return max(n_layers - 2, 0) if self.layer is None else self.layer - 1

    def check(self, model: Config) -> None:
        """Refuse a model without the head.

        Raises:
            ValueError: with the key.
        """
        n_layers, n_heads = heads_over_source(model)
        if not n_layers:
            raise ValueError(
                "objective.guided: this model has no attention over a source that could be guided"
            )
        for key, given, most in (("layer", self.layer, n_layers), ("head", self.head, n_heads)):
            if given is not None and given > most:
                raise ValueError(f"objective.guided.{key}={given}: the model has {most}, counted from 1")


def heads_over_source(model: Any) -> tuple[int, int]:
    """How many layers of a configured model read the source with attention, and the heads of each."""
    if isinstance(model, TransformerConfig):
        layers: Any = model.decoder_layers
        return len(layers), (model.cross_attention or layers[0].mixer).n_heads
    if isinstance(model, RecurrentConfig) and model.decoder != "plain" and model.attention is not None:
        return 1, getattr(model.attention, "n_heads", 1)
    return 0, 0
