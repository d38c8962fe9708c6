"""Charts and shaded tables for notebooks are well-formed and have their numbers."""

from xml.etree import ElementTree

import pytest

from heedful.svg import line_chart

SVG = "{http://www.w3.org/2000/svg}"


def test_points_are_at_their_places_and_names_are_escaped():
    root = ElementTree.fromstring(line_chart({"a <b>": [(0, 1.0), (10, 3.0)], "c": [(5, 2.0)]}, "x", "y & z"))
    assert root.find(f"{SVG}title").text == "y & z over x: a <b>, c"
    first, second = root.findall(f"{SVG}polyline")
    (x0, y0), (x1, y1) = (map(float, pair.split(",")) for pair in first.get("points").split())
    x, y = map(float, second.get("points").split(","))
    assert (x, y) == (pytest.approx((x0 + x1) / 2, abs=0.1), pytest.approx((y0 + y1) / 2, abs=0.1))
    assert y1 < y0
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"1", "3", "0", "10", "x", "a <b>", "c"} <= {*texts}
    assert len(root.findall(f"{SVG}circle")) == 3


def test_no_points_draw_nothing():
    assert line_chart({"a": []}, "x", "y") == ""


def test_one_point_has_a_place():
    ElementTree.fromstring(line_chart({"a": [(1, 1.0)]}, "x", "y", diagonal=True))
