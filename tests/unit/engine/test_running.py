from weakref import ref

import numpy as np
import pytest
import torch

from heedful.engine.compiled import CompiledModel
from heedful.engine.native import library
from heedful.engine.program import CacheShape
from heedful.engine.running import KeyValueCaches, Rows, compile_model
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.nn.layout import Tokens


def test_some_of_the_rows():
    numbers = np.arange(11, dtype=np.int32)
    rows = Rows(numbers.astype(np.int64), *(numbers + i for i in range(1, 5)), np.zeros((11, 3), np.int32))
    part = rows.part(slice(3, 7))
    assert part.positions.tolist() == [4, 5, 6, 7]
    assert part.n_visible.tolist() == [7, 8, 9, 10]
    assert part.ancestors is rows.ancestors
    assert part.sources is None


def test_a_larger_room_has_the_same_content():
    room = KeyValueCaches([CacheShape(2, 16, 32, False)] * 3, 5, 7)
    for tensor in (*room.keys, *room.values):
        tensor.normal_()
    larger = room.grown(11, 13, 4)
    for old, new in zip((*room.keys, *room.values), (*larger.keys, *larger.values), strict=True):
        assert new.shape == (11, 2, 13, old.shape[3])
        assert torch.equal(new[:5, :, :4], old[:, :, :4])


@pytest.mark.skipif(library() is None, reason="no C compiler here")
def test_the_memory_of_a_batch_goes_with_its_hypotheses():
    config = TransformerConfig(
        d_model=14, n_layers=1, layer={"mixer": {"n_heads": 2}, "channels": {"d_ff": 19}}
    )
    writer = CompiledModel(compile_model(build_model(config, 31, 31).eval(), "fp32"))
    state = writer.start(Tokens.of([[3, 4, 5], [6]]))
    _, state = writer.step(torch.tensor([1, 1]), state)
    rooms = [ref(state.own_caches), ref(state.source_caches)]
    del state
    assert [room() for room in rooms] == [None, None]
