"""The gallery in a real Chromium: images are there, words can be read, keys lead everywhere."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, missing
from made_up import PANEL, made_up

from heedful.lab.gallery import write_gallery

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not on this machine: {', '.join(missing())}")

NAMES = ("first", "second", "third")
# WCAG 2.2, criterion 1.4.3: of text of ordinary size.
CONTRAST = 4.5
# Of every element with words of its own, their colour and the nearest painted ground below them.
COLOURS = """
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!/^rgba.*, 0\\)$/.test(colour)) return colour;
  }
  return "rgb(255, 255, 255)";
};
const own = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
return [...document.body.querySelectorAll("*")].filter(own).map(
  (node) => [node.textContent, getComputedStyle(node).color, ground(node)]);
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    verdicts = ("holds", "holds with conditions", "is wrong")
    shown = [
        made_up(name, expected=(verdict, "is wrong"), comes=(verdict, "is wrong"))
        for name, verdict in zip(NAMES, verdicts, strict=True)
    ]
    folder = tmp_path_factory.mktemp("gallery")
    write_gallery([each.run("short", control=control) for each in shown for control in (0, 1)], folder)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


def pages(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.html"))


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(r, g, b)``, as WCAG defines it."""
    signs = np.array([float(part) for part in colour.strip("rgba()").split(",")[:3]]) / 255
    linear = np.where(signs <= 0.04045, signs / 12.92, ((signs + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


@pytest.mark.slow
def test_every_image_is_drawn_and_nothing_else_is_asked_for(browser, folder):
    browser.log("browser"), browser.log("performance")
    for path in pages(folder):
        browser.visit(path)
        sizes = browser.execute(
            "for (const image of document.images) image.loading = 'eager';"
            "return Promise.all([...document.images].map((image) => image.decode())).then(() =>"
            "[...document.images].map((i) => [i.naturalWidth, i.naturalHeight, +i.getAttribute('width'),"
            "+i.getAttribute('height')]))"
        )
        assert all(size[:2] == size[2:] for size in sizes)
        assert len(sizes) == {"index.html": 3, "errors.html": 0}.get(path.name, 1)
    assert browser.log("browser") == []
    files = {path.as_uri() for path in folder.iterdir()}
    assert {url for url in browser.requested() if not url.startswith("data:")} <= files


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_all_words_stand_out_from_their_ground(browser, folder, dark):
    browser.show(dark=dark)
    grounds = set()
    for path in pages(folder):
        browser.visit(path)
        for text, colour, ground in browser.execute(COLOURS):
            light, deep = sorted((luminance(colour), luminance(ground)), reverse=True)
            assert (light + 0.05) / (deep + 0.05) >= CONTRAST, text
            grounds.add(luminance(ground))
    assert (max(grounds) < 0.1) if dark else (min(grounds) > 0.8)


@pytest.mark.parametrize(("dark", "ending"), [(False, "first.png"), (True, "first.dark.png")])
def test_images_are_those_of_the_readers_choice(browser, folder, dark, ending):
    browser.show(dark=dark)
    browser.visit(folder / "first.html")
    drawn = "const [image] = document.images; return image.decode().then(() => image.currentSrc)"
    assert browser.execute(drawn) == (folder / ending).as_uri()


def test_a_card_shows_its_image_whole_and_nothing_else_of_it(browser, folder):
    browser.show()
    browser.visit(folder / "index.html")
    boxes = browser.execute(
        "return [...document.querySelectorAll('.thumb')].map((thumb) => {"
        "const box = thumb.getBoundingClientRect(), own = thumb.querySelector('img').getBoundingClientRect();"
        "return [own.width / own.height, own.width - box.width, own.height - box.height];})"
    )
    panel = PANEL.inches[0] / PANEL.inches[1]
    for ratio, wider, higher in boxes:
        assert ratio == pytest.approx(panel, rel=0.01)
        assert max(wider, higher) <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1400])
def test_no_page_is_wider_than_the_window(browser, folder, width):
    browser.show(width=width)
    for path in pages(folder):
        browser.visit(path)
        assert browser.execute("return document.documentElement.scrollWidth") <= width


def test_keys_lead_from_card_to_card_and_from_page_to_page(browser, folder):
    browser.show()
    browser.visit(folder / "index.html")
    reached = []
    for _ in range(1 + len(NAMES)):
        browser.press("Tab")
        reached.append(browser.execute("return document.activeElement.getAttribute('href')"))
    assert reached == ["errors.html", *(f"{name}.html" for name in NAMES)]
    browser.press("Enter")
    assert browser.address() == (folder / "third.html").as_uri()
    browser.press("Tab", "Tab", "Enter")  # to all experiments, to the one before
    assert browser.address() == (folder / "second.html").as_uri()


def test_figures_stand_in_columns(browser, folder):
    """Numbers end at one edge, below their headings; words begin at one."""
    browser.show()
    browser.visit(folder / "second.html")
    aligned = browser.execute(
        "return [...document.querySelectorAll('tr')].map((row) => [...row.cells].map("
        "(cell) => [getComputedStyle(cell).textAlign, cell.matches('.number')]))"
    )
    cells = [cell for row in aligned for cell in row]
    assert {tuple(cell) for cell in cells} == {("left", False), ("right", True)}
