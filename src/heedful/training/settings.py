"""Training settings of a recipe, except optimizer and schedule."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from heedful.config import Config
from heedful.training.schedules import Direction

Count = Annotated[int, Field(ge=1, le=1024)]
"""Number of parallel processes or threads; the operating system refuses to start many more than 1024."""


class TrainingConfig(Config):
    """Training length, batch size, validation, and the checkpoints to keep.

    Args:
        seed: seed of dropout and of the sample order.
        max_updates: stop after this many updates.
        max_epochs: stop after this many passes over the data.
        max_minutes: stop after this many minutes of training, including earlier parts of a resumed run.
        tokens_per_update: the most tokens per update (for pairs: target tokens), over all ranks and
            micro-batches.
        sampling: the rows of an epoch: each once (``shuffled``), or as many of each label (``balanced``);
            rows with a rare label are repeated, those with a frequent one take several epochs until all were
            used. Only for tasks with one label for each row.
        accumulate: number of micro-batches into which a rank splits its part of an update.
        validate_every: updates between validations.
        save_every: updates between checkpoints; one is also saved after each validation and at the end.
        keep_last: number of newest checkpoints to keep.
        keep_best: number of best checkpoints of regular validations to keep in addition, at least one. If the
            validation at the end of training is better, its checkpoint is kept until training resumes.
        patience: stop after this many consecutive regular validations without improvement; null: never.
        metric: the validation metric that selects the best checkpoint: ``loss``, and by task ``perplexity``,
            ``accuracy``; ``bleu``, ``chrf``, ``rouge-l`` of what ``validation.decode`` sets; or a score of
            ``evaluate``, for which validations predict their rows (``macro-f1``, ``span-f1``,
            ``exact-match``, ``pearson`` and others).
        direction: whether a ``lower`` or ``higher`` metric is better; null: known from the metric. Only
            metrics of custom tasks that declare no direction need it.
        precision: precision of matrix products; ``auto`` uses bf16 if the hardware is faster in it
            (`heedful.training.fast_paths`).
        processes: number of processes that train together on a CPU, each on a part of every update; ``auto``
            uses one per core if the model is small and the training long (`heedful.training.fast_paths`). The
            run keeps the number: a different one on resume changes the last digits of the results. Several
            processes lose less speed beside other programs. Ignored under `torchrun`.
        threads: threads per process; null: all cores, divided among the processes. If it is set,
            ``processes: auto`` is 1.
        compile: whether to compile the blocks of the model; ``auto`` compiles if a compiler is found and the
            run is long enough to recover the half minute that compilation takes.
        clip_norm: the largest gradient norm; null: no clipping.
        average: number of checkpoints to average for the final weights; 0: no averaging.
        average_of: whether to average the ``last`` or the ``best`` checkpoints.
        keep_average: whether the average becomes the final weights only ``if-better`` than the best
            checkpoint in validation, or ``always``.
        log_every: updates between two records in ``metrics.jsonl`` (and TensorBoard).
    """

    seed: NonNegativeInt = 1
    max_updates: PositiveInt | None = None
    max_epochs: PositiveInt | None = None
    max_minutes: PositiveFloat | None = None
    tokens_per_update: PositiveInt = 4096
    sampling: Literal["shuffled", "balanced"] = "shuffled"
    accumulate: PositiveInt = 1
    validate_every: PositiveInt = 500
    save_every: PositiveInt = 500
    keep_last: PositiveInt = 2
    keep_best: NonNegativeInt = 1
    patience: PositiveInt | None = None
    metric: str = "loss"
    direction: Direction | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    processes: Count | Literal["auto"] = "auto"
    threads: Count | None = None
    compile: Literal["auto", "on", "off"] = "auto"
    clip_norm: PositiveFloat | None = 1.0
    average: NonNegativeInt = 0
    average_of: Literal["last", "best"] = "last"
    keep_average: Literal["if-better", "always"] = "if-better"
    log_every: PositiveInt = 1

    @model_validator(mode="after")
    def _ends(self) -> "TrainingConfig":
        if self.max_updates is self.max_epochs is self.max_minutes is self.patience is None:
            raise ValueError("set at least one of max_updates, max_epochs, max_minutes and patience")
        return self

    @model_validator(mode="after")
    def _has_tokens_for_all_micro_batches(self) -> "TrainingConfig":
        if self.accumulate > self.tokens_per_update:
            raise ValueError(
                f"accumulate={self.accumulate} must be at most tokens_per_update={self.tokens_per_update} (a "
                "micro-batch has at least one token)"
            )
        return self

    def n_tokens(self, epoch_tokens: int, update_tokens: int) -> int | None:
        """Return the most tokens that training reads, or None if neither updates nor epochs are limited.

        Args:
            epoch_tokens: number of tokens of all samples.
            update_tokens: number of tokens of the largest update.
        """
        limits = ((self.max_epochs, epoch_tokens), (self.max_updates, update_tokens))
        return min((n * tokens for n, tokens in limits if n is not None), default=None)

    @property
    def fewest_updates(self) -> int | None:
        """Return the minimum number of updates if only patience ends training, else None.

        The first validation always counts as an improvement.
        """
        only_patience = self.max_updates is self.max_epochs is self.max_minutes is None
        if not only_patience or self.patience is None:
            return None
        return (self.patience + 1) * self.validate_every

    @property
    def n_last(self) -> int:
        """Return the number of newest checkpoints to keep: ``keep_last``, or more for averaging."""
        return max(self.keep_last, self.average if self.average_of == "last" else 0)

    @property
    def n_best(self) -> int:
        """Return the number of best checkpoints to keep: at least one, or as many as averaging needs."""
        return max(self.keep_best, 1, self.average if self.average_of == "best" else 0)
