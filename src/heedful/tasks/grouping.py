"""Which inputs are read together: neighbours in length, as many as a rectangle of bounded size holds."""

from collections.abc import Callable, Iterator, Mapping


def longest_first(
    lengths: Mapping[int, int], budget: int, cost: Callable[[int], int] = lambda n: n
) -> Iterator[list[int]]:
    """The keys of ``lengths``, longest first, cut into groups; equal lengths stay in their order.

    Args:
        lengths: of each input, by its number.
        budget: what the rectangle of a group may take; a single input may take more.
        cost: what a row of the rectangle takes, whose longest input has the given length.
    """
    order = sorted(lengths, key=lambda i: -lengths[i])
    while order:
        size = max(1, budget // cost(lengths[order[0]]))
        yield order[:size]
        order = order[size:]
