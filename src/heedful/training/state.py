"""Training state: everything besides weights and optimizer state that a resumed run needs."""

from dataclasses import asdict, dataclass, field, fields
from typing import Self

from heedful.typing import JsonObject


@dataclass(frozen=True)
class Scored:
    """A checkpoint and its validation metric.

    Args:
        update: number of the update.
        metric: the validation metric after it.
        in_turn: whether the validation was a regular one, which an uninterrupted run also makes.
    """

    update: int
    metric: float
    in_turn: bool = True


@dataclass
class TrainingState:
    """The training state saved as ``state.json`` in every checkpoint.

    Args:
        update: number of updates made; also the number of the last one, since they count from 1.
        cursor: the position in the data after them, in the format of the training data.
        validated: the update after which validation last ran; 0 before the first.
        best: the best validated updates, best first: the kept regular ones, and the last update if training
            ended there out of turn.
        best_in_turn: the best metric of a regular validation so far.
        bad_validations: number of consecutive regular validations without improvement.
        schedule: the state of a schedule that observes metrics.
        seconds: training time, including earlier parts of a resumed run.
        tokens: number of tokens the model has processed, on both sides.
        samples: number of samples it has processed.
    """

    update: int = 0
    cursor: JsonObject | None = None
    validated: int = 0
    best: list[Scored] = field(default_factory=list)
    best_in_turn: float | None = None
    bad_validations: int = 0
    schedule: JsonObject = field(default_factory=dict)
    seconds: float = 0.0
    tokens: int = 0
    samples: int = 0

    def to_json(self) -> JsonObject:
        """Return the state as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: JsonObject) -> Self:
        """Build a state from the result of `to_json`; raise `ValueError` if keys are missing or unknown."""
        names = {f.name for f in fields(cls)}
        if set(values) != names:
            raise ValueError(f"missing or unknown keys: {sorted(set(values) ^ names)}")
        return cls(**{**values, "best": [Scored(**scored) for scored in values["best"]]})

    @property
    def epoch(self) -> int:
        """Return the number of completed passes over the data."""
        return 0 if self.cursor is None else int(self.cursor["epoch"])
