"""Tasks that generate one text for one source: the references of a row."""

import pytest

from heedful.tasks.seq2seq import references_of


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (["one", "two"], ["one", "two"]),
        ("one text", ["one text"]),  # of a TSV file, or a row given in Python
        ([], ["target"]),
        ("", ["target"]),
        (None, ["target"]),
    ],
)
def test_references_are_a_list_or_one_text_or_else_the_target(references, expected):
    assert references_of({"target": "target", "references": references}, "target") == expected
    assert references_of({"target": "target"}, "target") == ["target"]
