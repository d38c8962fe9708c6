import json
import math

import pyarrow
from pyarrow import parquet

from heedful.data.parquet import parquet_lines


def test_numbers_that_are_not_finite_are_null(tmp_path):
    columns = {
        "text": ["a", "b"],
        "x": [math.nan, 1.5],
        "xs": [[math.inf, 2.0], None],
        "map": [{"y": -math.inf}, {"y": 3.0}],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    assert [json.loads(line) for line in parquet_lines(tmp_path / "t.parquet")] == [
        {"text": "a", "x": None, "xs": [None, 2.0], "map": {"y": None}},
        {"text": "b", "x": 1.5, "xs": None, "map": {"y": 3.0}},
    ]
