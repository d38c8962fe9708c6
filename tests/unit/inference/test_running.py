import numpy as np
import torch

from heedful.inference.program import CacheShape
from heedful.inference.running import Room, Rows


def test_some_of_the_rows():
    numbers = np.arange(11, dtype=np.int32)
    rows = Rows(numbers.astype(np.int64), *(numbers + i for i in range(1, 5)), np.zeros((11, 3), np.int32))
    part = rows.part(slice(3, 7))
    assert part.positions.tolist() == [4, 5, 6, 7]
    assert part.seen.tolist() == [7, 8, 9, 10]
    assert part.ancestors is rows.ancestors
    assert part.sources is None


def test_a_larger_room_has_the_same_content():
    room = Room([CacheShape(2, 16, 32, False)] * 3, 5, 7)
    for tensor in (*room.keys, *room.values):
        tensor.normal_()
    larger = room.grown(11, 13, 4)
    for old, new in zip((*room.keys, *room.values), (*larger.keys, *larger.values), strict=True):
        assert new.shape == (11, 2, 13, old.shape[3])
        assert torch.equal(new[:5, :, :4], old[:, :, :4])
