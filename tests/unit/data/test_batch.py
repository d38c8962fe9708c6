"""The batch owns the shift: what is read, what is wanted, and that both stay aligned when packed."""

from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batch import Batch

ids = st.lists(st.integers(7, 50), max_size=6)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=5))
def test_inputs_are_targets_shifted_by_one_within_every_sequence(pairs):
    sources, targets = zip(*pairs)
    batch = Batch.forced(sources, targets, start=1, end=2, samples=range(len(pairs)))
    wanted = batch.targets.split(list(batch.inputs.layout.lengths))
    for source, target, read, want, seen in zip(
        sources, targets, batch.inputs.split(), wanted, batch.source.split()
    ):
        assert read == [1, *target]
        assert want.tolist() == [*target, 2]
        assert seen == [*source, 2]
    assert batch.samples == tuple(range(len(pairs)))
    assert batch.n_tokens == sum(len(s) + len(t) + 2 for s, t in pairs)
