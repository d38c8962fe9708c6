"""Batches: inputs and targets are shifted by one and stay aligned when packed."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batch import Batch
from heedful.nn.patches import Images

ids = st.lists(st.integers(7, 50), max_size=6)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=5))
def test_inputs_are_targets_shifted_by_one_within_every_sequence(pairs):
    sources, targets = zip(*pairs)
    batch = Batch.teacher_forced(sources, targets, start=1, end=2, samples=range(len(pairs)))
    wanted = batch.targets.split(list(batch.inputs.layout.lengths))
    for source, target, read, want, seen in zip(
        sources, targets, batch.inputs.split(), wanted, batch.source.split()
    ):
        assert read == [1, *target]
        assert want.tolist() == [*target, 2]
        assert seen == [*source, 2]
    assert batch.samples == tuple(range(len(pairs)))
    assert batch.n_tokens == sum(len(s) + len(t) + 2 for s, t in pairs)


def test_a_batch_of_images_has_classes_and_no_target_tokens():
    images = Images.of(torch.zeros(3, 2, 5, 5), 7)
    batch = Batch.of_images(images, [2, 0, 1], [11, 13, 17])
    assert batch.inputs is images
    assert (batch.n_tokens, batch.samples, batch.n_answers) == (21, (11, 13, 17), (0, 0, 0))
    assert batch.classes.tolist() == [2, 0, 1]
    assert batch.picked(torch.ones(21, 4)).shape == (0, 4)
    batch.prepare()
    moved = batch.to("cpu")
    assert torch.equal(moved.inputs.pixels, images.pixels)


def test_without_a_source_there_is_none():
    batch = Batch.teacher_forced(None, [[5, 6], []], start=1, end=2)
    assert batch.source is None
    assert batch.inputs.split() == [[1, 5, 6], [1]]
    assert batch.targets.tolist() == [5, 6, 2, 2]
    assert batch.n_tokens == 4


@given(st.integers(0, 4), st.integers(1, 7), st.data())
def test_windows_read_all_but_the_last_and_want_all_but_the_first(n, length, data):
    row = st.lists(st.integers(7, 50), min_size=length + 1, max_size=length + 1)
    rows = data.draw(st.lists(row, min_size=n, max_size=n))
    batch = Batch.windows(np.array(rows, dtype=np.int64).reshape(n, length + 1), samples=range(n))
    assert batch.inputs.split() == [row[:-1] for row in rows]
    assert batch.targets.tolist() == [i for row in rows for i in row[1:]]
    assert batch.source is None
    assert batch.samples == tuple(range(n))
    assert batch.n_tokens == n * length


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=5), st.data())
def test_links_refer_to_source_and_prediction_positions(pairs, data):
    sources, targets = zip(*pairs)
    links = []
    for source, target in pairs:
        every = [(t, s) for t in range(len(target)) for s in range(len(source))]
        drawn = data.draw(st.lists(st.sampled_from(every), max_size=5, unique=True)) if every else []
        links.append(sorted(drawn))
    batch = Batch.teacher_forced(sources, targets, start=1, end=2)
    found = batch.linked([[place for pair in own for place in pair] for own in links]).to("cpu").links
    wanted = batch.targets.split(list(batch.inputs.layout.lengths))
    rows = list(
        zip(*(x.tolist() for x in (found.sequence, found.query, found.key, found.share)), strict=True)
    )
    assert len(rows) == sum(map(len, links))
    for b, query, key, share in rows:
        own = [link for link in links[b] if link[0] == query]
        assert (query, key) in own
        assert share == np.float32(1 / len(own))
        assert wanted[b][query] == targets[b][query]
        assert batch.source.split()[b][key] == sources[b][key]
    assert found.n_tokens == len({(b, t) for b, own in enumerate(links) for t, _ in own})


def test_a_batch_without_links_has_none():
    batch = Batch.teacher_forced([[5]], [[6]], start=1, end=2)
    assert batch.links is None
    assert batch.linked([[]]).links.n_tokens == 0
