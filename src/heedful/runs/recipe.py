"""The schema of a recipe: everything a run is made from. Blocks never see any of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from heedful.config import Config
from heedful.data.report import Filter
from heedful.data.sources import SourceConfig
from heedful.decoding.config import BeamConfig, DecodingConfig, GreedyConfig
from heedful.models.registry import EncoderDecoderConfig, preset_trees
from heedful.runs.problems import validate
from heedful.runs.resolve import resolve
from heedful.runs.trees import Tree, preset_table
from heedful.tasks.registry import TaskConfig
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig
from heedful.training.optimizers import AdamConfig, OptimizerConfig
from heedful.training.schedules import InverseSqrtConfig, ScheduleConfig
from heedful.training.settings import TrainingConfig


class DataConfig(Config):
    """Where the rows come from. ``test`` may name several sets; ``evaluate`` takes one or all."""

    train: SourceConfig
    valid: SourceConfig
    test: dict[str, SourceConfig] = Field(default_factory=dict)
    filter: Filter = Filter()


class Tokenization(Config):
    """The subword model, and what is done to the text of each side before it.

    Args:
        subwords: which model, and how large.
        shared: one model for both sides, which three-way tying needs; or one for each.
        source, target: lower-casing, Moses tokenisation, normalisation.
    """

    subwords: TokenizerConfig
    shared: bool = True
    source: PreprocessingConfig = PreprocessingConfig()
    target: PreprocessingConfig = PreprocessingConfig()


class ObjectiveConfig(Config):
    """Cross-entropy on the next token. ``chunk``: tokens whose logits exist at one time."""

    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    chunk: PositiveInt = 1024


class ValidationConfig(Config):
    """What a validation measures besides loss and perplexity.

    Args:
        decode: of how many validation sentences to compute BLEU and chrF (0: none; null: all).
        decoding: how; greedy by default, for it is fast.
    """

    decode: NonNegativeInt | None = 0
    decoding: DecodingConfig | None = None


class EvaluationConfig(Config):
    """What ``evaluate`` reports besides sacreBLEU's scores.

    Args:
        tokenised_bleu: the language code whose Moses tokenisation a published score used: reports the
            lower-cased, tokenised BLEU under that name, beside sacreBLEU's and never instead.
    """

    tokenised_bleu: str | None = None


class PretrainedConfig(Config):
    """Word vectors (word2vec text or binary, or GloVe) that fill rows of the embeddings at the start."""

    source: str | None = None
    target: str | None = None


class Expected(Config):
    """What a shipped recipe reaches, as measured.

    Args:
        scores: metric to value, on the split that ``note`` names.
        minutes: of training on two CPU cores.
        note: how it was measured, or why nothing stands here.
    """

    scores: dict[str, float] = Field(default_factory=dict)
    minutes: PositiveFloat | None = None
    note: str = ""


class Recipe(Config):
    """A whole recipe."""

    description: str = ""
    root: str | None = None
    task: TaskConfig
    data: DataConfig
    tokenizer: Tokenization
    model: EncoderDecoderConfig
    pretrained: PretrainedConfig = PretrainedConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = AdamConfig()
    schedule: ScheduleConfig = InverseSqrtConfig()
    training: TrainingConfig
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig = BeamConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    expected: Expected = Expected()

    @model_validator(mode="after")
    def _fits_together(self) -> "Recipe":
        if getattr(self.model, "tie", None) == "three-way" and not self.tokenizer.shared:
            raise ValueError("model.tie=three-way needs tokenizer.shared=true: one vocabulary for both sides")
        known = {"loss", "perplexity"} | ({"bleu", "chrf"} if self.validation.decode != 0 else set())
        if self.training.metric not in known:
            raise ValueError(
                f"training.metric={self.training.metric} is not measured by validation, which gives "
                f"{', '.join(sorted(known))}; bleu and chrf need validation.decode"
            )
        if self.training.metric in {"bleu", "chrf"} and self.training.direction != "higher":
            raise ValueError(
                f"training.metric={self.training.metric} improves upwards: set training.direction=higher"
            )
        return self

    @model_validator(mode="after")
    def _leaves_the_warm_up_of_its_norm(self) -> "Recipe":
        """Power normalisation warms up on the batch's own statistics; a run must outlast that."""
        most = self.training.max_updates
        if getattr(self.model, "norm", None) != "power" or most is None:
            return self
        batches, warmup = most * self.training.accumulate, self.model.norm_warmup  # type: ignore[union-attr]
        if 2 * warmup > batches:
            raise ValueError(
                f"model.norm_warmup={warmup} is more than half of the run's {batches} batches: power "
                f"normalisation would hardly leave its warm-up; set it to at most {batches // 2}"
            )
        return self

    @model_validator(mode="after")
    def _has_positions_for_all(self) -> "Recipe":
        """A table of positions ends somewhere, and no sentence may be longer; found now, not hours later."""
        model: Any = self.model
        if model.longest is None:
            return self
        table = f"model.positions={model.positions} ends after model.max_length={model.longest} tokens"
        most = model.longest - 1
        for column in ("source", "target"):
            limit = self.data.filter.limit(column)
            if limit is None or limit > most:
                raise ValueError(f"{table}: set data.filter.max_length to at most {most}")
        for key, decoding in self._decodings().items():
            if decoding.max_length.cap > most:
                raise ValueError(f"{table}: set {key}.max_length.cap to at most {most}")
        return self

    def _decodings(self) -> dict[str, Any]:
        """Every decoding that the run will do, by its key."""
        if self.validation.decode == 0:
            return {"decoding": self.decoding}
        return {"decoding": self.decoding, "validation.decoding": self.validation.decoding or GreedyConfig()}


def read_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> tuple[Recipe, Tree]:
    """The validated recipe, and the merged tree it was made of.

    Relative paths of the data start at the folder of the recipe's file; those of a shipped recipe at
    the current folder; unless ``root`` says otherwise.

    Raises:
        RequestError: with file and line of every problem.
    """
    tree = resolve(name_or_path, overrides, presets=preset_table({"model": preset_trees()}))
    recipe = validate(tree, Recipe)
    if recipe.root is None:
        path = Path(name_or_path)
        root = path.resolve().parent if path.suffix in {".yaml", ".yml"} else Path.cwd()
        recipe = recipe.model_copy(update={"root": str(root)})
    return recipe, tree
