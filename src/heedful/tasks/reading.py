"""What predictors share that read and answer, and write nothing."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from heedful.errors import RequestError
from heedful.tasks.prediction import Prediction

Progress = Callable[[int], None]


class Reader(ABC):
    """Inputs in, answers out, as many and in the same order. Nothing is drawn, nothing could be aligned."""

    unaligned: ClassVar[str]
    """Why there is no alignment: "classification generates no text"."""

    def predict(
        self,
        texts: Sequence[Any],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Progress = lambda n: None,
    ) -> list[Prediction]:
        """Answer the inputs.

        Args:
            texts: the inputs, as `answers` takes them.
            alignment: refused.
            first: not used.
            progress: called with the number of inputs just done.

        Raises:
            RequestError: an alignment is asked for.
        """
        if alignment:
            raise RequestError(f"alignments are not available: {self.unaligned}")
        return self.answers(texts, progress)

    @abstractmethod
    def answers(self, inputs: Sequence[Any], progress: Progress) -> list[Prediction]:
        """One for each input."""
