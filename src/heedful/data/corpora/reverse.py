"""Synthetic tasks on integer sequences: reverse, copy and sort.

``reverse`` is JoeyNMT's synthetic task with its sizes: integers from 0 to 49, written in digits and
separated by spaces; 50,000 training pairs of 1 to 25 integers, and 1,000 each for validation and test, of 1
to 30, so that some are longer than any in training. JoeyNMT trains on 40,000 of them per epoch; that is a
training option, not part of the corpus.
"""

from collections.abc import Iterable, Iterator, Sequence

from heedful.data.corpora.grammar import Draw, Pair
from heedful.errors import RequestError, nearest

INTEGERS = 50
SIZES = {"train": 50_000, "valid": 1_000, "test": 1_000}
LONGEST = {"train": 25, "valid": 30, "test": 30}

Order = Sequence[int]


def _reversed(integers: Sequence[int]) -> Order:
    return range(len(integers) - 1, -1, -1)


def _copied(integers: Sequence[int]) -> Order:
    return range(len(integers))


def _sorted(integers: Sequence[int]) -> Order:
    return sorted(range(len(integers)), key=integers.__getitem__)


# The source position of each target word for every task.
TASKS = {"reverse": _reversed, "copy": _copied, "sort": _sorted}


def reverse(split: str, seed: int = 0, task: str = "reverse") -> Iterator[Pair]:
    """Return the pairs of a split, in an order fixed by the seed.

    Args:
        split: ``train``, ``valid`` or ``test``; each has its own stream of choices.
        seed: the seed of integers and lengths.
        task: ``reverse``; ``copy``; or ``sort``, into ascending order (stable, so that the alignment is
            unique).

    Raises:
        RequestError: if there is no such split or task.
    """
    if split not in SIZES:
        raise RequestError(
            f"{task}: there is no split {split!r}{nearest(split, SIZES)}; there are {_list(SIZES)}"
        )
    if task not in TASKS:
        raise RequestError(f"there is no task {task!r}{nearest(task, TASKS)}; there are {_list(TASKS)}")
    return _draw(split, seed, task)


def _draw(split: str, seed: int, task: str) -> Iterator[Pair]:
    draw = Draw(3 * seed + list(SIZES).index(split))
    for _ in range(SIZES[split]):
        integers = [draw.below(INTEGERS) for _ in range(1 + draw.below(LONGEST[split]))]
        yield _pair(integers, TASKS[task](integers))


def _pair(integers: Sequence[int], order: Order) -> Pair:
    tags = ("NUM",) * len(integers)
    return Pair(
        " ".join(map(str, integers)),
        " ".join(str(integers[i]) for i in order),
        tuple(sorted((i, j) for j, i in enumerate(order))),
        tags,
        tags,
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
