"""Entities are the parts of the text that their places say."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from heedful.tasks.entities import entities_of
from heedful.tasks.inputs.words import split
from heedful.tasks.metrics.spans import SCHEMES
from heedful.tasks.tagging import Tagged

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
texts = st.text(st.sampled_from("ab é\u00a0日 \t."), max_size=31)


@given(texts, st.data())
def test_each_entity_has_its_place_in_the_line(line, data):
    words = split(line)
    tags = [data.draw(st.sampled_from(TAGS)) for _ in words]
    spans = SCHEMES["bio"].spans(tags)
    found = Tagged(" ".join(tags), words=words, tags=tags, line=line, spans=spans).entities
    assert len(found) == len(spans)
    for entity, (label, first, last) in zip(found, spans, strict=True):
        assert line[entity["start"] : entity["end"]] == entity["text"]
        assert split(entity["text"]) == words[first:last]
        assert entity["label"] == label
    assert all(a["end"] <= b["start"] for a, b in pairwise(found))


def test_spans_without_types_have_no_label():
    assert entities_of("a bc d", ["a", "bc", "d"], [("_", 1, 3)]) == [{"text": "bc d", "start": 2, "end": 6}]


def test_spans_with_a_tag_that_is_held_back_are_no_entities():
    words, tags = ["Ada", "Lovelace", "in", "London"], ["B-PER", "I-PER", "O", "B-LOC"]
    spans = SCHEMES["bio"].spans(tags)
    answer = Tagged("x", log_probs=[-0.1, -2.0, -0.1, -0.1], words=words, tags=tags, line=" ".join(words))
    answer = answer.__class__(**{**answer.__dict__, "spans": spans})
    assert [each["text"] for each in answer.entities] == ["Ada Lovelace", "London"]
    assert [each["text"] for each in answer.above(0.5, "_").entities] == ["London"]
