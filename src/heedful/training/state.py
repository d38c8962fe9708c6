"""Where a training stands: everything beside weights and optimizer that a resumed run must know."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True)
class Scored:
    """A checkpoint and the metric that it reached.

    Args:
        update: its number.
        metric: of the validation after it.
        in_turn: whether that validation was a regular one, which a training that goes on makes too.
    """

    update: int
    metric: float
    in_turn: bool = True


@dataclass
class TrainingState:
    """What is saved as ``state.json`` in every checkpoint.

    Args:
        update: how many updates were made; the number of the last one, for they count from 1.
        cursor: the place in the data after them, as the data describes it.
        validated: the update at which validation last ran; 0 before the first.
        best: the best validated updates, best first: as many in turn as are kept, and the last update where
            the training ends there out of turn.
        best_in_turn: the best metric of a regular validation, against which the next one is held.
        bad_validations: how many regular validations in a row brought nothing better.
        schedule: the state of a schedule that observes metrics.
        seconds: time spent training, over all resumed parts.
        tokens: tokens the model read, both sides.
        samples: samples it read.
    """

    update: int = 0
    cursor: dict[str, Any] | None = None
    validated: int = 0
    best: list[Scored] = field(default_factory=list)
    best_in_turn: float | None = None
    bad_validations: int = 0
    schedule: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    tokens: int = 0
    samples: int = 0

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_json`; `ValueError` where keys are missing or unknown."""
        names = {f.name for f in fields(cls)}
        if set(values) != names:
            raise ValueError(f"the keys {sorted(set(values) ^ names)} are missing or unknown")
        return cls(**{**values, "best": [Scored(**scored) for scored in values["best"]]})

    @property
    def epoch(self) -> int:
        """How many times the data was gone through."""
        return 0 if self.cursor is None else int(self.cursor["epoch"])
