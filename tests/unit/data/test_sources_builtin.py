"""Built-in corpora as a source: all columns, or some under other names."""

from itertools import islice
from pathlib import Path

import pytest

from heedful.data.sources import BuiltInSource
from heedful.errors import DataError


def first(**columns):
    source = BuiltInSource(name="phrasebook-de", split="valid", columns=columns)
    return list(islice(source.open(Path()), 3))


def test_columns_keep_their_names_unless_others_are_given():
    whole, chosen = first(), first(text="target", same="target")
    assert {"source", "target", "alignment"} <= set(whole[0].row)
    assert [row.row for row in chosen] == [{"text": r.row["target"], "same": r.row["target"]} for r in whole]
    assert [str(row.location) for row in chosen] == [f"phrasebook-de/valid:{n}" for n in (1, 2, 3)]


def test_a_missing_column_is_named():
    with pytest.raises(DataError, match=r"phrasebook-de/valid: no column 'sourc' \(did you mean 'source'"):
        first(text="sourc")
