"""The recipe of a classifier of images."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from heedful.config import Config
from heedful.data.augmentation import Augmentation
from heedful.models.resnet import ResNetConfig
from heedful.models.vision import VisionConfig
from heedful.recipes import schema as recipe
from heedful.tasks.registry import ImageClassificationTask


class Filter(Config):
    """What to do with images that cannot be read.

    Args:
        unreadable: stop at the first, or leave them out and count them.
    """

    unreadable: Literal["error", "drop"] = "error"


class DataConfig(recipe.DataConfig):
    """Rows with an image and a label.

    Args:
        filter: what to do with those that cannot be read.
    """

    filter: Filter = Filter()


class ValidationConfig(Config):
    """Every validation measures loss and accuracy on all validation rows; there is nothing to choose."""


class DecodingConfig(Config):
    """Nothing is written, so nothing is decoded."""


class EvaluationConfig(Config):
    """``evaluate`` reports accuracy, macro and micro F1; there is nothing to choose."""


class ImageClassificationRecipe(recipe.Recipe):
    """A whole recipe. ``training.tokens_per_update`` counts ``model.n_tokens`` for each image.

    Args:
        augmentation: how training images are changed in every epoch.
    """

    task: ImageClassificationTask
    data: DataConfig
    augmentation: Augmentation = Augmentation()
    model: Annotated[VisionConfig | ResNetConfig, Field(discriminator="kind")]
    objective: recipe.ClassObjectiveConfig = recipe.ClassObjectiveConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig | None = None
    evaluation: EvaluationConfig = EvaluationConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metrics(self) -> set[str]:
        """What validation measures."""
        return {"loss", "accuracy"}
