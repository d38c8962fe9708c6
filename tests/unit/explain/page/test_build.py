"""The document as text: what is in it, how large it is, and that nothing in it can run or reach out."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from constructed import HOSTILE, hostile, image, large, translation, without_maps

from heedful.errors import RequestError
from heedful.explain.page.build import ABOUT_WEIGHTS, MAX_WHOLE_WEIGHTS, SCRIPT, as_script, page, page_data
from heedful.explain.page.packing import ERROR, LEVELS, SHADES
from heedful.explain.summary import summary_matrix, word_alignment


class Parsed(HTMLParser):
    """Elements, and the text inside those that are of interest."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style", "h1", "dd", "title"):
            self._open.append(tag)
            self.inside.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data):
        for tag in self._open:
            self.inside[tag][-1] += data


def numbers(document: str) -> dict:
    return json.loads(Parsed(document).inside["script"][0])


def array(text: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind).reshape(shape)


def test_every_matrix_of_a_small_explanation_is_there_within_the_error():
    explanation = translation()
    found = numbers(page(explanation))
    assert len(found["maps"]) == len(explanation.maps)
    for packed, given in zip(found["maps"], explanation.maps, strict=True):
        assert (packed["tap"], packed["kind"], packed["layer"]) == (given.tap, given.kind, given.layer)
        assert packed["size"] == [*given.weights.shape[1:]]
        assert [view["head"] for view in packed["views"]] == [*given.heads, None]
        wanted = [*given.weights.astype(float), given.weights.astype(float).mean(axis=0)]
        for view, weights in zip(packed["views"], wanted, strict=True):
            levels = array(view["levels"], "<u2", weights.shape)
            assert np.abs(levels / LEVELS - weights).max() <= ERROR * (1 + 1e-6)
            row, column, level = view["strongest"]
            assert level == levels.max() == levels[row, column]


def test_a_head_on_its_own_has_no_mean():
    one = translation()
    maps = [replace(each, heads=(2,), weights=each.weights[2:3]) for each in one.maps]
    found = page_data(replace(one, maps=maps))
    assert [view["head"] for each in found["maps"] for view in each["views"]] == [2] * len(maps)


@pytest.fixture(scope="module")
def medium():
    """A little too large for all matrices."""
    explanation = large(2, 3, 440)
    assert sum(4 * each.weights[0].size for each in explanation.maps) > MAX_WHOLE_WEIGHTS
    return explanation


def test_of_a_large_one_the_heads_asked_for_are_there_and_the_strongest_links_of_the_others(medium):
    found = numbers(page(medium, exact=[("encoder.1.weights", 2)]))
    for n, each in enumerate(found["maps"]):
        for view in each["views"]:
            head = view["head"]
            given = medium.maps[n].weights
            weights = given.astype(float).mean(axis=0) if head is None else given[head].astype(float)
            if (n, head) == (1, 2):
                levels = array(view["levels"], "<u2", weights.shape)
                assert np.abs(levels / LEVELS - weights).max() <= ERROR * (1 + 1e-6)
                continue
            assert "levels" not in view
            places, kept = (array(view[name], "<u2", (440, 8)) for name in ("places", "kept"))
            there = np.take_along_axis(weights, places.astype(int), axis=1)
            assert np.abs(kept / LEVELS - there).max() <= ERROR * (1 + 1e-6)
            # Nothing that was left out is stronger than what was kept.
            np.put_along_axis(weights, places.astype(int), 0, axis=1)
            assert (weights.max(axis=1) <= kept[:, -1] / LEVELS + 2 * ERROR).all()


def test_thumbnails_are_within_their_error(medium):
    for each, given in zip(page_data(medium)["maps"], medium.maps, strict=True):
        view = each["views"][1]
        assert view["cells"] == [48, 48]
        shades = array(view["shades"], "u1", (48, 48))
        edges = np.arange(49) * 440 // 48
        for y, x in np.ndindex(5, 7):
            mean = given.weights[1][edges[y] : edges[y + 1], edges[x] : edges[x + 1]].astype(float).mean()
            assert (
                abs(shades[y, x] / SHADES * view["greatest"] - mean) <= view["greatest"] / SHADES / 2 + 1e-9
            )


def test_where_all_heads_of_a_layer_are_exact_so_is_their_mean(medium):
    found = page_data(medium, [("encoder.0.weights", head) for head in range(3)])
    assert ["levels" in view for view in found["maps"][0]["views"]] == [True] * 4
    assert ["levels" in view for view in found["maps"][1]["views"]] == [False] * 4


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (("decoder", 0), r"unknown tap 'decoder'; expected one of \['cross\.0"),
        (("encoder.0.weights", 4), "encoder.0.weights has no head 4; expected one of 0"),
    ],
)
def test_a_head_that_is_not_there_is_refused(wanted, message):
    with pytest.raises(RequestError, match=message):
        page(translation(), exact=[wanted])


def test_weights_that_are_none_are_refused():
    wrong = translation()
    wrong.maps[0].weights[1, 0, 0] = np.nan
    with pytest.raises(ValueError, match="weights must be between 0 and 1"):
        page(wrong)


def test_a_map_without_a_single_weight_is_left_out():
    one = translation()
    empty = replace(one.maps[0], heads=(), weights=one.maps[0].weights[:0])
    assert len(page_data(replace(one, maps=[empty, *one.maps[1:]]))["maps"]) == len(one.maps) - 1


def test_only_a_document_with_weights_tells_about_them():
    for explanation, is_told in [(translation(), True), (without_maps(), False)]:
        told = [each in page(explanation) for each in ABOUT_WEIGHTS]
        assert told == [is_told] * 2


def test_equal_explanations_give_equal_bytes():
    assert page(translation()).encode() == page(translation()).encode()
    assert page(translation()) != page(image())


@pytest.mark.slow
def test_twelve_layers_of_twelve_heads_over_512_tokens_stay_below_10_megabytes():
    explanation = large()
    exact = [("encoder.3.weights", 5), ("encoder.11.weights", 0), ("encoder.0.weights", 7)]
    document = page(explanation, exact=exact)
    assert len(document.encode()) < 10e6
    assert sum("levels" in view for each in numbers(document)["maps"] for view in each["views"]) == 3


def test_what_the_input_says_is_text():
    document = page(hostile())
    parsed = Parsed(document)
    assert [tag for tag, _ in parsed.elements].count("script") == 2
    assert not [tag for tag, _ in parsed.elements if tag == "img"]
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]
    found = numbers(document)
    assert found["sides"]["input"]["tokens"] == [*HOSTILE]
    assert found["written"]["input"] == [0.0] * len(HOSTILE)
    assert HOSTILE[0] in parsed.inside["dd"][1]
    assert parsed.inside["h1"] == [f"{HOSTILE[1]} {HOSTILE[0]}"]


def test_a_side_without_a_probability_has_no_row_of_probabilities():
    explanation = hostile()
    some = [None, *explanation.log_probs["input"][1:]]
    assert numbers(page(replace(explanation, log_probs={"input": some})))["written"]["input"][0] is None
    none = [None] * len(some)
    assert numbers(page(replace(explanation, log_probs={"input": none})))["written"] == {}


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "\u2028\u2029", "\udc80", "日本"])
def test_json_inside_a_script_is_plain_and_comes_back(text):
    found = as_script([text])
    assert found.isascii()
    assert "<" not in found
    assert json.loads(found) == [text]


def test_half_a_sign_is_no_reason_to_fail():
    broken = replace(translation(), run="\udc80", input="a\udc80")
    page(broken).encode()


def test_only_this_script_and_this_style_may_act():
    document = page(translation())
    parsed = Parsed(document)
    policy = next(
        a["content"] for tag, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    digest = {
        name: base64.b64encode(hashlib.sha256(parsed.inside[name][-1].encode()).digest()).decode()
        for name in ("script", "style")
    }
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest['style']}'; "
        f"script-src 'sha256-{digest['script']}'"
    )


def test_nothing_is_fetched():
    document = page(image())
    outside = [
        value
        for _, attributes in Parsed(document).elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action") and not (value or "").startswith(("data:", "#"))
    ]
    assert outside == []
    style = files("heedful.explain.page").joinpath("page.css").read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|@font-face", style)


def test_every_file_of_the_script_is_in_it_once():
    folder = files("heedful.explain.page").joinpath("script")
    assert sorted(f"{name}.js" for name in SCRIPT) == sorted(file.name for file in folder.iterdir())
    document = page(image())
    places = [document.index(folder.joinpath(f"{name}.js").read_text(encoding="utf-8")) for name in SCRIPT]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["page.css", *(f"script/{name}.js" for name in SCRIPT)])
def test_the_parts_can_stand_in_their_elements(name):
    text = files("heedful.explain.page").joinpath(name).read_text(encoding="utf-8")
    assert "</" not in text
    assert "<!--" not in text


def test_the_facts_are_there_without_a_script():
    parsed = Parsed(page(translation()))
    assert parsed.inside["h1"] == ["lecture-ta translation"]
    text, answer, links, others = parsed.inside["dd"]
    assert links == word_alignment(summary_matrix(translation()))
    assert text == "I enjoyed the film transformers"
    probability = np.exp(sum(translation().answer["log_probs"]))
    log_probs = translation().answer["log_probs"]
    product = f"product of {len(log_probs)} probabilities; geometric mean {np.exp(np.mean(log_probs)):.4f}"
    assert answer == f"naan transfarmar padaththai rasiththen probability {probability:.4f} ({product})"
    product = f"product of 2 probabilities; geometric mean {np.exp(-0.75):.4f}"
    assert others == f"naan padam rasiththen probability {np.exp(-1.5):.4f} ({product})"


def test_the_score_of_a_label_is_its_probability_and_other_scores_are_none():
    assert "disc probability 0.9003" in Parsed(page(image())).inside["dd"][1]
    assert "probability" not in Parsed(page(without_maps())).inside["dd"][1]


def test_an_empty_answer_is_seen():
    assert (
        Parsed(page(replace(image(), answer={"output": "", "score": -0.5})))
        .inside["dd"][1]
        .startswith("nothing ")
    )


def test_an_input_that_could_not_be_read_says_why():
    failed = replace(image(), answer={"error": "disc.png: no image"}, axes={}, maps=[])
    assert Parsed(page(failed)).inside["dd"][1] == "disc.png: no image"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["a premise", "its claim"], "a premise | its claim"),
        ({"question": "who?", "context": "she"}, "question: who?; context: she"),
        (np.zeros((2, 2)), "an image"),
        ("x" * 3000, "x" * 2000 + " …"),
    ],
)
def test_inputs_of_all_kinds_are_told(given, shown):
    assert Parsed(page(replace(without_maps(), input=given))).inside["dd"][0] == shown
