"""The gallery: pages that are whole by themselves, and show the numbers that were measured."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from made_up import made_up

from heedful.errors import RequestError
from heedful.lab.corrections import corrections
from heedful.lab.gallery import write_gallery

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "lab.schema.json"
# These need no closing tag.
VOID = {"meta", "img", "br", "link", "source"}


class Page(HTMLParser):
    """Tags with their attributes, cells and text; every tag must be closed in order."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.tags, self.cells, self.text, self._open = [], [], "", []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in {"td", "th"}:
            self.cells.append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in {"td", "th"}:
            self.cells[-1] += data
        if "style" not in self._open:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    results = [
        each.run("short", control=control)
        for each in (
            made_up("first"),
            made_up("second", heading="Here & there"),
            made_up("third", heading="Last"),
        )
        for control in (False, True)
    ]
    folder = tmp_path_factory.mktemp("gallery") / "site"
    write_gallery(results, folder)
    return folder


def pages(folder):
    return {path.name: Page(path) for path in folder.glob("*.html")}


@pytest.mark.slow
def test_there_is_a_page_for_each_and_an_index(folder):
    assert set(pages(folder)) == {"index.html", "errors.html", "first.html", "second.html", "third.html"}


def test_every_link_leads_to_a_file_and_none_out(folder):
    linked = set()
    for page in pages(folder).values():
        targets = [tag["href"] for tag in page.all("a") if not tag["href"].startswith("#")]
        targets += [tag["src"] for tag in page.all("img")] + [tag["srcset"] for tag in page.all("source")]
        for target in targets:
            assert (folder / target).is_file(), target
        linked |= set(targets)
        assert not page.all("script")
        assert not page.all("link")
    assert {path.name for path in folder.iterdir()} - linked == {"lab.json"}


def test_nothing_is_fetched_from_elsewhere(folder):
    for path in folder.glob("*.html"):
        assert not re.search(r"https?:|url\(|@import|//", path.read_text(encoding="utf-8"))


def test_each_page_is_marked_up_for_who_cannot_see_it(folder):
    for name, page in pages(folder).items():
        assert page.all("html")[0]["lang"] == "en"
        assert len(page.all("h1")) == 1
        assert len(page.all("main")) == 1
        assert page.all("title")
        for image in page.all("img"):
            assert "alt" in image
            assert int(image["width"]) > 0
            assert int(image["height"]) > 0
        if name not in {"index.html", "errors.html"}:
            assert all(image["alt"] for image in page.all("img"))
            assert page.all("table")
            assert all(cell["scope"] == "col" for cell in page.all("th"))


def test_light_and_dark(folder):
    style = (folder / "index.html").read_text(encoding="utf-8")
    assert "color-scheme: light dark" in style
    assert "prefers-color-scheme: dark" in style


def test_a_page_shows_claim_figures_and_both_verdicts(folder):
    page = pages(folder)["second.html"]
    for text in (
        "The title of second & more",
        'One "thing" <is> another.',
        "S0, somewhere; A & B 2017",
        "items 7, 11",
        "It is <so>.",
        "The other way about.",
        "The claim ✓ holds.",
        "The claim ✗ is wrong.",
    ):
        assert text in page.text
    cells = page.cells
    at = cells.index("ratio <a & b>")
    assert cells[at : at + 3] == ["ratio <a & b>", "0.1235", "0.125"]
    at = cells.index("tokens")
    assert cells[at : at + 3] == ["tokens", "60,611 positions", ""]
    assert "∞" in cells
    assert "(expected:" not in page.text


def test_pages_lead_to_their_neighbours(folder):
    found = pages(folder)
    neighbours = {
        name: {tag.get("rel"): tag["href"] for tag in page.all("a") if "rel" in tag}
        for name, page in found.items()
    }
    assert neighbours["first.html"] == {"next": "second.html"}
    assert neighbours["second.html"] == {"prev": "first.html", "next": "third.html"}
    assert neighbours["third.html"] == {"prev": "second.html"}


def test_the_index_shows_each_with_its_verdict(folder):
    page = pages(folder)["index.html"]
    assert [tag["href"] for tag in page.all("a") if tag.get("class") != "thumb"] == [
        "errors.html",
        "#part-2",
        "#part-3",
        "first.html",
        "second.html",
        "third.html",
    ]
    assert "3 experiments: 3 × holds" in page.text


def test_experiments_stand_under_the_headings_of_their_parts(folder):
    page = pages(folder)["index.html"]
    assert [tag.get("id") for tag in page.all("h2")] == ["part-2", "part-3"]
    places = [
        page.text.rindex(text)
        for text in ("title of first", "Here & there", "title of second", "Last", "title of third")
    ]
    assert places == sorted(places)


def test_errors_of_the_lectures_stand_on_one_page_with_what_is_true(tmp_path):
    wrong = made_up("wrong-one", expected=("is wrong", "holds"), comes=("is wrong", "holds"))
    write_gallery([each.run("short") for each in (wrong, made_up("right-one"))], tmp_path)
    page = pages(tmp_path)["errors.html"]
    assert [tag["href"] for tag in page.all("a")].count("wrong-one.html") == 1
    assert "right-one" not in page.text
    for text in ('One "thing" <is> another.', "It is <so>.", "S0, somewhere; A & B 2017"):
        assert page.text.count(text) == 1
    for each in corrections():
        assert each.printed in page.text
        assert each.correct in page.text
    assert (
        page.text.index("forget gate is the key")
        < page.text.index("somewhere")
        < page.text.index("Lee-Thorpe")
    )


def test_a_correction_leads_to_the_experiment_that_finds_it_where_that_was_made(tmp_path):
    wrong = made_up("scale-by-words", expected=("is wrong", "holds"), comes=("is wrong", "holds"))
    write_gallery([wrong.run("short")], tmp_path)
    page = pages(tmp_path)["errors.html"]
    assert [tag["href"] for tag in page.all("a")] == ["index.html", "scale-by-words.html"]
    assert "It is <so>." not in page.text  # the sentence of the correction stands for it
    assert page.text.count("n was the number of words") == 1


def test_what_a_lecture_only_asks_is_no_error_of_its(tmp_path):
    wrong = {"expected": ("is wrong", "holds"), "comes": ("is wrong", "holds")}
    asked, said = made_up("asked-one", **wrong, asked=True), made_up("said-one", **wrong)
    write_gallery([each.run("short") for each in (asked, said)], tmp_path)
    found = pages(tmp_path)
    linked = [tag["href"] for tag in found["errors.html"].all("a")]
    assert ("asked-one.html" in linked, "said-one.html" in linked) == (False, True)
    for name, number in (("index.html", 1), ("asked-one.html", 1), ("said-one.html", 0)):
        assert found[name].text.count('One "thing" <is> another. (A question.)') == number


def test_images_have_the_size_that_is_said(folder):
    from PIL import Image

    for page in pages(folder).values():
        for image in page.all("img"):
            with Image.open(folder / image["src"]) as opened:
                assert opened.size == (int(image["width"]), int(image["height"]))
            with Image.open(folder / image["src"].replace(".png", ".dark.png")) as opened:
                assert opened.size == (int(image["width"]), int(image["height"]))


def test_an_outcome_without_an_image_has_none(folder):
    assert (folder / "first.png").is_file()
    assert (folder / "first.svg").is_file()
    assert not list(folder.glob("*.control.*"))


def test_the_data_hold_the_schema(folder):
    value = json.loads((folder / "lab.json").read_text(encoding="utf-8"))
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(value)
    assert [each["name"] for each in value["experiments"]] == ["first", "second", "third"]
    assert all(len(each["results"]) == 2 for each in value["experiments"])


def test_another_verdict_than_expected_is_pointed_out(tmp_path):
    odd = made_up("odd", comes=("is wrong", "is wrong"))
    write_gallery([odd.run("short")], tmp_path)
    for name in ("index.html", "odd.html"):
        assert "expected" in pages(tmp_path)[name].text
    assert "odd: expected “holds”" in pages(tmp_path)["index.html"].text


def test_equal_results_give_equal_pages(tmp_path):
    results = [made_up().run("short")]
    for name in "ab":
        write_gallery(results, tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(RequestError, match="not a folder"):
        write_gallery([made_up().run("short")], tmp_path / "x")
    assert (tmp_path / "x").read_text() == ""


def test_nothing_is_no_gallery(tmp_path):
    with pytest.raises(ValueError):
        write_gallery([], tmp_path)
