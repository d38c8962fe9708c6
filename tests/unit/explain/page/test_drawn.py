"""The page in a real Chromium: what is drawn and said equals the numbers; mouse, keys, light, dark."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from browser import Browser, missing
from constructed import (
    GRID,
    HOSTILE,
    caption,
    hebrew,
    hostile,
    image,
    large,
    seeing_further,
    seen_image,
    translation,
    without_maps,
)
from matplotlib.colors import to_rgb
from PIL import Image

from heedful.explain.alignment.word_alignment import merge_subwords
from heedful.explain.attention_map import BestHead
from heedful.explain.drawing.matrix import thumbnail
from heedful.explain.drawings import Cell, Heat, Table, TokenValues, share_scales
from heedful.explain.explanation import Explanation
from heedful.explain.page.build import page
from heedful.explain.patterns.classes import CLASSES

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not on this machine: {', '.join(missing())}")

STYLE = files("heedful.explain.page").joinpath("page.css").read_text(encoding="utf-8")
SHOWN = 0.5e-4 + 1e-5
"""How far four digits of a stored weight are from the weight."""

Open = Callable[..., Explanation]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens pages; afterwards nothing was complained of, and nothing but the page was asked for."""
    addresses = set()

    def show(explanation: Explanation, exact: Any = (), **screen: Any) -> Explanation:
        browser.show(**screen)
        addresses.add(browser.open(page(explanation, exact=exact)))
        return explanation

    browser.log("browser"), browser.log("performance")
    yield show
    assert browser.log("browser") == []
    assert {url for url in browser.requested() if not url.startswith("data:")} <= addresses


def stops(name: str, dark: bool = False) -> np.ndarray:
    """The eight colours of a scale as the style names them, ``[8, 3]``."""
    pairs = re.findall(rf"--{name}-\d: light-dark\(#(\w{{6}}), #(\w{{6}})\)", STYLE)
    return np.array([[int(pair[dark][n : n + 2], 16) for n in (0, 2, 4)] for pair in pairs], dtype=float)


def scale(name: str = "plus", dark: bool = False) -> np.ndarray:
    """256 colours between the stops, ``[256, 3]``."""
    at = np.linspace(0, 7, 256)
    return np.stack([np.interp(at, np.arange(8), channel) for channel in stops(name, dark).T], axis=1)


def coloured(shares: np.ndarray, dark: bool = False) -> np.ndarray:
    return scale(dark=dark)[np.rint(255 * shares.clip(0, 1)).astype(int)]


def pixels(browser: Browser, selector: str, n: int = 0) -> np.ndarray:
    """``[height, width, 4]`` of the n-th canvas."""
    script = """
        const canvas = document.querySelectorAll(arguments[0])[arguments[1]];
        const {width, height} = canvas;
        return [height, width, Array.from(canvas.getContext("2d").getImageData(0, 0, width, height).data)];
    """
    height, width, values = browser.execute(script, selector, n)
    return np.array(values).reshape(height, width, 4)


def same_colours(found: np.ndarray, wanted: np.ndarray) -> None:
    """As near as rounding may be apart: half a step of the scale, and half a level."""
    steps = np.abs(np.diff(scale(), axis=0)).max()
    assert found.shape[:2] == wanted.shape[:2]
    assert (found[..., 3] == 255).all()
    assert np.abs(found[..., :3] - wanted).max() <= steps + 1


def shaded(cells: np.ndarray, most: float) -> np.ndarray:
    """The colours of a thumbnail where the greatest cell of its kind is ``most``."""
    stored = np.rint(cells / cells.max() * 255) / 255 * cells.max()
    return coloured(np.sqrt(stored / most))


def texts(browser: Browser, selector: str) -> list[str]:
    return browser.execute(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
    )


def text(browser: Browser, selector: str) -> str:
    return texts(browser, selector)[0]


def tints_of(browser: Browser, selector: str) -> list[list[int] | None]:
    """Red, green and blue behind each; None where it has no tint."""
    script = """
        const numbers = (colour) => colour.match(/\\d+/g)?.map(Number) ?? null;
        const chips = [...document.querySelectorAll(arguments[0])];
        return chips.map((chip) => numbers(chip.style.backgroundColor));
    """
    return browser.execute(script, selector)


def click(browser: Browser, selector: str, n: int = 0) -> None:
    """Where people would click: in the middle, once it is in view."""
    script = """
        const found = document.querySelectorAll(arguments[0])[arguments[1]];
        found.scrollIntoView({block: "center", behavior: "instant"});
        const box = found.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];
    """
    browser.move(*browser.execute(script, selector, n), click=True)


def head(browser: Browser, number: int, view: int) -> None:
    click(browser, f".thumb[data-map='{number}'][data-view='{view}']")


def views(explanation: Explanation) -> Iterator[tuple[int, int, np.ndarray]]:
    """Every head and mean as (map, view, weights)."""
    for n, each in enumerate(explanation.maps):
        weights = each.weights.astype(float)
        both = [*weights, weights.mean(axis=0)] if len(weights) > 1 else [*weights]
        for view, matrix in enumerate(both):
            yield n, view, matrix


def last_number(said: str) -> float:
    return float(said.split()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_every_cell_of_every_head_has_the_colour_of_its_weight(browser, opened, dark):
    for n, view, weights in views(opened(translation(), dark=dark)):
        head(browser, n, view)
        same_colours(pixels(browser, ".field canvas"), coloured(weights / weights.max(), dark))


@pytest.mark.parametrize("make", [translation, image])
def test_every_thumbnail_has_the_colours_of_its_areas(browser, opened, make):
    explanation = opened(make())
    assert len(texts(browser, ".thumb")) == len(list(views(explanation)))
    for n, view, weights in views(explanation):
        kind = explanation.maps[n].kind
        most = max(thumbnail(w).max() for m, _, w in views(explanation) if explanation.maps[m].kind == kind)
        selector = f".thumb[data-map='{n}'][data-view='{view}'] canvas"
        same_colours(pixels(browser, selector), shaded(thumbnail(weights), most))


def test_the_darkest_can_be_1_instead_of_the_greatest(browser, opened):
    explanation = opened(translation())
    head(browser, 0, 3)
    weights = explanation.maps[0].head(3)
    same_colours(pixels(browser, ".field canvas"), coloured(weights / weights.max()))
    click(browser, "#scales span", 1)
    same_colours(pixels(browser, ".field canvas"), coloured(weights))
    assert text(browser, "#legend") == "01"


def test_the_cell_below_the_mouse_is_told(browser, opened):
    explanation = opened(translation())
    head(browser, 5, 1)
    weights = explanation.maps[5].head(1)
    source, target = (explanation.axes[name].tokens for name in ("source", "target"))
    script = """
        const field = document.querySelector(".field");
        field.scrollIntoView({block: "center", behavior: "instant"});
        const {x, y, width, height} = field.getBoundingClientRect();
        return [x, y, width, height];
    """
    x, y, width, height = browser.execute(script)
    for row, column in [(0, 0), (1, 4), (7, 6), (6, 1), (3, 5)]:
        browser.move(x + (column + 0.5) * width / len(source), y + (row + 0.5) * height / len(target))
        said = text(browser, "#readout")
        assert said.startswith(f"{target[row]} attends to {source[column]} ")
        assert last_number(said) == pytest.approx(weights[row, column], abs=SHOWN)
        assert texts(browser, ".map .on") == [source[column], target[row]]


@pytest.mark.slow
def test_the_table_has_every_number(browser, opened):
    explanation = opened(translation())
    click(browser, "#numbers summary")
    for n, view, weights in views(explanation):
        head(browser, n, view)
        sides = [explanation.axes[name] for name in (explanation.maps[n].queries, explanation.maps[n].keys)]
        assert texts(browser, "#numbers tbody th") == [*sides[0].tokens]
        assert texts(browser, "#numbers thead th") == [*sides[1].tokens]
        found = np.array([float(cell) for cell in texts(browser, "#numbers tbody td")])
        np.testing.assert_allclose(found.reshape(weights.shape), weights, atol=SHOWN)


def test_words_are_merged_as_alignments_are(browser, opened):
    explanation = opened(translation())
    head(browser, 5, 1)
    click(browser, "#units span", 1)
    click(browser, "#numbers summary")
    source, target = (explanation.axes[name] for name in ("source", "target"))
    wanted = merge_subwords(explanation.maps[5].head(1).astype(float), source.words, target.words)
    assert texts(browser, "#numbers tbody th") == [*target.surface]
    assert texts(browser, "#numbers thead th") == [*source.surface]
    found = np.array([float(cell) for cell in texts(browser, "#numbers tbody td")]).reshape(wanted.shape)
    np.testing.assert_allclose(found, wanted, atol=SHOWN)
    same_colours(pixels(browser, ".field canvas"), coloured(wanted / wanted.max()))


BARS = """
    return [...document.querySelectorAll(".bars tbody tr")].map((row) => [
        row.querySelector("th").textContent,
        row.querySelector("td.number").textContent,
        [...row.querySelectorAll("i")].map((bar) => bar.offsetWidth / bar.parentElement.clientWidth),
        [...row.querySelectorAll(".unseen")].map((said) => said.textContent),
    ]);
"""


@pytest.mark.parametrize("direction", ["out", "in"])
def test_a_tokens_bars_are_its_weights_in_every_head_of_the_layer(browser, opened, direction):
    explanation = opened(translation())
    head(browser, 4, 1)
    box = "target" if direction == "out" else "source"
    click(browser, f"[role=listbox][aria-label='Tokens of the {box}'] .chip", 5)
    weights = explanation.maps[4].weights.astype(float)
    weights = np.concatenate([weights, weights.mean(axis=0, keepdims=True)])
    wanted = weights[:, 5, :] if direction == "out" else weights[:, :, 5]
    other = explanation.axes["source" if direction == "out" else "target"].tokens
    found = browser.execute(BARS)
    assert [row[0] for row in found] == [*other]
    np.testing.assert_allclose([float(row[1]) for row in found], wanted[1], atol=SHOWN)
    np.testing.assert_allclose([[last_number(s) for s in row[3]] for row in found], wanted.T, atol=SHOWN)
    widths = np.array([row[2] for row in found])
    np.testing.assert_allclose(widths / widths.max(), wanted.T / wanted.max(), atol=0.03)
    strokes = browser.execute(
        "return [...document.querySelectorAll('.fan path')]"
        ".map((path) => [+path.dataset.unit, +path.getAttribute('stroke-width')])"
    )
    for unit, width in strokes:
        assert width == pytest.approx(7 * wanted[1][unit] / wanted[1].max(), abs=1e-3)


def test_a_side_that_looks_at_itself_keeps_its_token_when_turned_round(browser, opened):
    explanation = opened(translation())
    head(browser, 2, 2)
    click(browser, "[role=listbox] .chip", 6)
    click(browser, "#directions span", 1)
    assert text(browser, "#token-title") == "ththen receives attention from"
    found = [float(row[1]) for row in browser.execute(BARS)]
    # Tokens that no head looks from are not listed: the side is causal.
    listed = explanation.maps[2].weights[:, :, 6].max(axis=0) > SHOWN
    assert listed.tolist() == [False] * 6 + [True] * 2
    np.testing.assert_allclose(found, explanation.maps[2].head(2)[listed, 6], atol=SHOWN)
    assert "6 with weight 0 in every head are omitted" in text(browser, "#fan caption")


def test_another_kind_of_attention_keeps_the_token_of_the_side_they_share(browser, opened):
    explanation = opened(translation())
    click(browser, "[role=listbox][aria-label='Tokens of the target'] .chip", 5)
    head(browser, 3, 0)
    assert text(browser, "#token-title") == "rasi attends to"
    strongest = explanation.maps[3].head(0)[5].argmax()
    said = text(browser, "#readout")
    assert said.startswith(f"rasi attends to {explanation.axes['target'].tokens[strongest]} ")
    click(browser, "#units span", 1)
    assert text(browser, "#token-title") == "rasiththen attends to"


def seen_patches(browser: Browser, selector: str, n: int = 0) -> np.ndarray:
    """What people see of the n-th drawing of patches, ``[rows, columns, 3]``: the middle of each."""
    script = """
        const found = document.querySelectorAll(arguments[0])[arguments[1]];
        found.scrollIntoView({block: "center", behavior: "instant"});
        const {x, y, width, height} = found.getBoundingClientRect();
        return [x, y, width, height];
    """
    x, y, width, height = browser.execute(script, selector, n)
    window = np.asarray(Image.open(BytesIO(browser.image())).convert("RGB"), dtype=float)
    rows, columns = GRID
    down = (y + (np.arange(rows) + 0.5) * height / rows).astype(int)
    across = (x + (np.arange(columns) + 0.5) * width / columns).astype(int)
    return window[np.ix_(down, across)]


def same_seen(found: np.ndarray, weights: np.ndarray, most: float, dark: bool = False) -> None:
    """The colours are those of the weights, and of nothing else."""
    steps = np.abs(np.diff(scale(dark=dark), axis=0)).max()
    assert np.abs(found - coloured(weights / most, dark)).max() <= steps + 1


def bar_of(browser: Browser, selector: str) -> tuple[np.ndarray, float, str]:
    """The colours of a colour bar, where its mark of even attention is from 0 to 1, and what it says."""
    colours = pixels(browser, f"{selector} canvas")[0, :, :3]
    script = """
        const mark = document.querySelector(arguments[0] + " i").getBoundingClientRect();
        const bar = document.querySelector(arguments[0] + " canvas").getBoundingClientRect();
        return (mark.x + mark.width / 2 - bar.x) / bar.width;
    """
    return colours, browser.execute(script, selector), text(browser, selector)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_what_is_seen_of_an_image_is_its_weights(browser, opened, dark):
    explanation = opened(image(), dark=dark)
    head(browser, 1, 2)
    click(browser, "[role=listbox] .chip", 0)  # the class token
    looked = explanation.maps[1].weights.astype(float)[:, 0, 1:].reshape(3, *GRID)
    most = explanation.maps[1].head(2)[0].max()
    same_seen(seen_patches(browser, ".pair .frame", 1), looked[2], most, dark)
    for n in range(3):
        same_seen(seen_patches(browser, "#heads button .frame", n), looked[n], looked.max(), dark)
    assert browser.execute("return document.querySelector('.big img').naturalWidth") == GRID[1] * 12


@pytest.mark.parametrize("dark", [False, True])
def test_the_image_stands_beside_its_weights_as_it_is(browser, opened, dark):
    explanation = opened(image(), dark=dark)
    pixel = np.asarray(Image.open(BytesIO(explanation.axes["input"].image)), dtype=float)
    rows, columns = ((np.arange(n) + 0.5) * 12 for n in GRID)
    wanted = pixel[np.ix_(rows.astype(int), columns.astype(int))]
    assert np.abs(seen_patches(browser, ".pair .frame", 0) - wanted).max() <= 12


def test_the_colour_bar_has_the_colours_that_are_drawn_and_even_attention(browser, opened):
    explanation = opened(image())
    head(browser, 1, 2)
    click(browser, "[role=listbox] .chip", 0)
    weights = explanation.maps[1].weights.astype(float)[:, 0]
    n = weights.shape[1]
    for selector, most in ((".pair + .legend", weights[2].max()), ("#heads .legend", weights[:, 1:].max())):
        found, even, said = bar_of(browser, selector)
        steps = np.abs(np.diff(scale(), axis=0)).max()
        assert np.abs(found - scale()).max() <= steps + 1
        assert even == pytest.approx(1 / n / most, abs=0.02)
        assert said == f"0{most:.4f}uniform: 1/{n} = {1 / n:.4f}"


def test_even_attention_looks_even(browser, opened):
    plain = image()
    n = len(plain.axes["input"].tokens)
    nearly = np.full((3, n, n), 1 / n) * np.random.default_rng(5).uniform(0.97, 1.03, n)
    nearly = (nearly / nearly.sum(axis=-1, keepdims=True)).astype(np.float32)
    opened(replace(plain, maps=[replace(each, weights=nearly) for each in plain.maps]))
    click(browser, "[role=listbox] .chip", 0)
    found = luminance(seen_patches(browser, ".pair .frame", 1))
    assert np.ptp(found) < 0.05 * luminance(np.array([255, 255, 255]))
    _, even, _ = bar_of(browser, ".pair + .legend")
    assert even > 0.95


def test_an_image_whose_tokens_are_no_words_has_no_words_to_show(browser, opened):
    plain = image()
    side = plain.axes["input"]
    opened(replace(plain, axes={"input": replace(side, words=(-1,) * len(side.tokens))}))
    assert browser.execute("return document.getElementById('units').hidden")
    opened(translation())
    assert not browser.execute("return document.getElementById('units').hidden")


def test_a_patch_is_chosen_by_mouse_and_by_keys(browser, opened):
    explanation = opened(image())
    click(browser, ".big", 1)  # its middle: row 3, column 4
    middle = 1 + 2 * GRID[1] + 3
    weights = explanation.maps[0].weights.astype(float).mean(axis=0)
    for patch, key in [(middle, None), (middle + GRID[1], "Down"), (middle + GRID[1] - 1, "Left")]:
        if key:
            browser.press(key)
        said = browser.execute("return document.activeElement.getAttribute('aria-label')")
        row, column = divmod(patch - 1, GRID[1])
        assert said.startswith(f"Image of the input, patch in row {row + 1}, column {column + 1}")
        assert last_number(said) == pytest.approx(weights[patch, patch], abs=SHOWN)


@pytest.mark.slow
def test_where_each_word_of_a_caption_looked(browser, opened):
    explanation = opened(caption())
    head(browser, 1, 0)
    assert texts(browser, "#strip .name") == ["a", "bright", "disc", "</s>"]
    looked = explanation.maps[1].head(0).reshape(-1, *GRID)
    for n, weights in enumerate(looked):
        same_seen(seen_patches(browser, "#strip button .frame", n), weights, looked.max())
    click(browser, "#strip button", 2)
    assert text(browser, "#token-title") == "disc attends to"
    assert browser.execute("return document.activeElement.textContent") == "disc"


def test_probabilities_are_told_and_tinted(browser, opened):
    explanation = opened(translation())
    log_probs = explanation.log_probs["target"]
    found = texts(browser, "#written small")
    for shown, log_prob in zip(found, log_probs, strict=True):
        if log_prob is None:
            assert shown == "\u00a0"
        else:
            assert float(shown) == pytest.approx(np.exp(log_prob), abs=0.0051)
    tints = tints_of(browser, "#written .chip")
    assert tints[-1] is None
    wanted = coloured(0.62 * np.exp(np.array(log_probs[:-1], dtype=float)))
    np.testing.assert_allclose(tints[:-1], wanted, atol=3)


def test_further_views_are_drawn(browser, opened):
    opened(translation())
    assert texts(browser, "#more h2") == ["Gradients times input", "What each depth would have said"]
    assert texts(browser, "#more small") == ["0.100", "0.800", "-0.050", "0.400", "-0.600", "0.200", "0.000"]
    assert texts(browser, "#more td") == ["1", "padam", "naan", "2", "rasi", "padaththai"]
    tints = tints_of(browser, "#more .chip")
    red, blue = tints[4], tints[1]
    assert red[0] > red[2]
    assert blue[2] > blue[0]


def test_a_row_of_the_census_opens_its_head(browser, opened):
    explanation = opened(seeing_further())
    heads = explanation.views["census"]["heads"]
    opens = "#more section:nth-child(5) .opens"
    assert texts(browser, opens) == [f"{head['layer'] + 1}.{head['head'] + 1}" for head in heads]
    for n in (1, 6, 11):
        click(browser, opens, n)
        assert text(browser, "#head-title") == f"Layer {heads[n]['layer'] + 1}, head {heads[n]['head'] + 1}"
        (number,) = (i for i, each in enumerate(explanation.maps) if each.tap == heads[n]["tap"])
        weights = explanation.maps[number].head(heads[n]["head"])
        same_colours(pixels(browser, ".field canvas"), coloured(weights / weights.max()))
    browser.execute(f"document.querySelectorAll('{opens}')[1].focus()")
    browser.press("Tab")
    assert browser.execute(OUTLINED)
    browser.press("Enter")
    assert text(browser, "#head-title") == f"Layer {heads[2]['layer'] + 1}, head {heads[2]['head'] + 1}"
    assert focused(browser) == "one-head"


def test_signs_of_the_census_have_their_colours_and_open_their_heads(browser, opened):
    explanation = opened(seeing_further())
    heads = [head for head in explanation.views["census"]["heads"] if head["kind"] == "self"]
    cells = "#more section:nth-child(2) td.tinted"
    classes = [CLASSES[head["pattern"]] for head in heads]
    assert texts(browser, cells) == [each.sign for each in classes]
    wanted = [[round(255 * part) for part in to_rgb(each.colour)] for each in classes]
    assert tints_of(browser, cells) == wanted
    click(browser, f"{cells} .opens", 2)
    assert text(browser, "#head-title") == f"Layer {heads[2]['layer'] + 1}, head {heads[2]['head'] + 1}"


def test_drawings_have_notes_and_words_of_their_own(browser, opened):
    words = TokenValues("words", "nowhere", [1.0, None, -0.5], ["whole word", "b", "c"], note="what <b> is")
    best = Cell("naan", probability=0.5, is_emphasised=True)
    table = Table("table", ["a", "b"], [["x", best], ["y", Cell("z", colour="#1f77b4")]])
    opened(replace(translation(), views={"one": words.to_dict(), "two": table.to_dict()}))
    assert texts(browser, "#more .chip > :first-child") == ["1.00", "\u00a0", "-0.50"]
    chips = browser.execute("return [...document.querySelectorAll('#more .chip')].map((chip) => chip.title)")
    assert chips == ["whole word: 1.00", "b: no value", "c: -0.50"]
    assert texts(browser, "#more section > .hint") == ["what <b> is"]
    assert texts(browser, "#more td strong") == ["naan"]
    assert texts(browser, "#more td") == ["x", "naan.50", "y", "z"]
    assert tints_of(browser, "#more td.tinted")[1] == [0x1F, 0x77, 0xB4]


@pytest.mark.parametrize("dark", [False, True])
def test_views_of_one_unit_have_one_scale_that_is_shown(browser, opened, dark):
    one = TokenValues("one", "nowhere", [2.0, -0.5, None], ["a", "b", "c"], unit="log-odds", unknown=[1])
    other = TokenValues("other", "nowhere", [0.5, -0.02], ["a", "b"], unit="log-odds")
    matrix = Heat("heat", np.array([[0.5, -0.25]]), ["x"], ["a", "b"], largest=2.0, unit="log-odds")
    alone = TokenValues("alone", "nowhere", [0.5, 0.25], ["a", "b"])
    drawings = share_scales([one, other, matrix, alone])
    opened(replace(translation(), views={each.title: each.to_dict() for each in drawings}), dark=dark)
    values = np.array([2.0, -0.5, 0.5, -0.02, 1.0, -0.5, 0.5, 0.25])
    ends = np.array([2.0] * 6 + [0.5] * 2)
    found = [tint for tint in tints_of(browser, "#more .chip, #more td.tinted") if tint is not None]
    for tint, value, end in zip(found, values, ends, strict=True):
        ramp = scale("minus" if value < 0 else "plus", dark)
        assert np.abs(tint - ramp[round(255 * 0.62 * abs(value) / end)]).max() <= 1
    legends = texts(browser, "#more .legend")
    assert legends == ["-2.002.00 log-odds"] * 3
    bars = pixels(browser, "#more .legend canvas")
    ends = [scale("minus", dark)[round(255 * 0.62)], scale("plus", dark)[round(255 * 0.62)]]
    assert np.abs(bars[0, [0, -1], :3] - ends).max() <= 2
    unknown = browser.execute(
        "return [...document.querySelectorAll('#more .unknown')].map((c) => c.textContent)"
    )
    assert unknown == ["b unknown-0.50"]


def test_the_tables_of_views_tell_their_numbers(browser, opened):
    explanation = opened(seeing_further())
    shown = {title: n for n, title in enumerate(texts(browser, "#more h2"))}
    assert list(shown) == [
        "Census of 12 heads over 2 inputs: classes",
        "Classes of the heads of self-attention",
        "Classes of the heads of causal self-attention",
        "Classes of the heads of cross-attention",
        "Each head",
        "Mean attention distance in tokens: self-attention of the source",
    ]
    notes = texts(browser, "#more section > .hint")
    assert notes[-1] == "uniform attention: 2.25"
    rows = "return [...document.querySelectorAll('#more section')[arguments[0]].querySelectorAll('tbody tr')]"
    told = browser.execute(f"{rows}.map((row) => [...row.cells].map((cell) => cell.textContent))", 4)
    assert [row[2] for row in told] == [head["pattern"] for head in explanation.views["census"]["heads"]]
    far = browser.execute(f"{rows}.map((row) => [...row.cells].map((cell) => cell.textContent))", 5)
    assert far == [["1", "0.00", "-", "2.00", "0.25", "0.75"], ["2", "1.50", "-", "2.00", "0.25", "1.25"]]
    tints = browser.execute(f"{rows}.map((row) => row.cells[3].style.backgroundColor)", 5)
    (farthest,) = {tuple(map(int, re.findall(r"\d+", tint))) for tint in tints}
    np.testing.assert_allclose(farthest, coloured(np.array(0.62)), atol=3)


def test_a_rollout_is_drawn_as_a_head_is(browser, opened):
    explanation = opened(seeing_further())
    matrices = explanation.views["rollout"]["matrices"]
    assert len(matrices) == 3
    # What is open at first is attention.
    assert text(browser, "#head-title") == "Layer 2, mean of heads"
    click(browser, "#numbers summary")
    for n, matrix in enumerate(matrices, len(explanation.maps)):
        head(browser, n, 0)
        assert text(browser, "#head-title") == "Rollout through all layers"
        assert text(browser, "#head-kind").startswith("Rollout")
        found = np.array([float(cell) for cell in texts(browser, "#numbers tbody td")])
        np.testing.assert_allclose(found, np.ravel(matrix["weights"]), atol=SHOWN)
        assert matrix["queries"] in text(browser, "#head-kind")
        assert matrix["keys"] in text(browser, "#head-kind")


def test_what_the_class_token_sees_stands_beside_the_image(browser, opened):
    explanation = opened(seen_image())
    layers = explanation.views["class-token"]["layers"]
    wanted = np.array([layer["weights"] for layer in layers])
    for n in range(2):
        same_seen(seen_patches(browser, "#more .gallery .frame", 1 + n), wanted[n], wanted.max())
    labels = [f"layer {n}; <class> {1 - each.sum():.2f}" for n, each in enumerate(wanted, 1)]
    assert texts(browser, "#more figcaption") == ["the image", *labels]
    row, column = np.unravel_index(wanted[1].argmax(), GRID)
    script = "return document.querySelectorAll('#more .gallery canvas')[1].getAttribute('aria-label')"
    said = browser.execute(script)
    assert said.startswith(f"{labels[1]}: row {row + 1}, column {column + 1}: {wanted[1].max():.4f}; ")


def test_a_matrix_of_words_has_names_and_numbers_and_a_gap_where_there_is_none(browser, opened):
    scores = np.array([[0.5, np.nan, -1.25], [0.0, 2.5, np.nan]])
    attribution = {
        "side": "source",
        "unit": "log-odds",
        "words": ["x", "<b>", "z"],
        "answers": ["A", "B"],
        "about": ["x", "z"],
        "values": [1.0, 2.0],
        "scores": [[None if np.isnan(value) else value for value in row] for row in scores],
    }
    opened(replace(translation(), views={"occlusion": attribution}))
    matrix = "#more section:nth-child(2) "
    assert texts(browser, f"{matrix} thead th") == attribution["words"]
    assert texts(browser, f"{matrix} tbody th") == ["x: A", "z: B"]
    found = texts(browser, f"{matrix} tbody td")
    for text, value in zip(found, scores.ravel(), strict=True):
        assert (text == "\u2013") if np.isnan(value) else float(text) == pytest.approx(value, abs=0.005)
    assert "takes this part of the answer with it" in texts(browser, "#more section > .hint")[-1]


@pytest.mark.parametrize("dark", [False, True])
def test_what_speaks_for_the_answer_is_blue_and_what_against_it_red(browser, opened, dark):
    draw = np.random.default_rng(11)
    scores = [draw.normal(size=GRID), draw.normal(size=GRID) / 100]
    attribution = {
        "side": "input",
        "unit": "log-odds",
        "words": [str(n) for n in range(scores[0].size)],
        "answers": ["disc", "ring"],
        "about": [],
        "values": [1.0, 2.0],
        "scores": [values.ravel().tolist() for values in scores],
    }
    opened(replace(image(), views={"occlusion": attribution}), dark=dark)
    for n, values in enumerate(scores):
        most = np.abs(values).max()
        found = pixels(browser, "#more figure .frame canvas", n)[..., :3]
        assert found.shape[:2] == values.shape
        for name, there in (("plus", values > 0), ("minus", values < 0)):
            wanted = scale(name, dark)[np.rint(255 * np.abs(values[there]) / most).astype(int)]
            steps = np.abs(np.diff(scale(name, dark), axis=0)).max()
            assert np.abs(found[there] - wanted).max() <= steps + 1
        # Each has a scale of its own, which says where it ends.
        legend = texts(browser, "#more figure .legend")[n]
        assert f"{most:.3g}" in legend
        assert legend.startswith("-")


@pytest.mark.parametrize("dark", [False, True])
def test_the_two_ends_of_a_scale_with_signs_can_be_told_apart(dark):
    """By far more than two neighbours of one scale: the strongest for is not the strongest against."""
    plus, minus = scale("plus", dark)[-1], scale("minus", dark)[-1]
    assert plus[2] - plus[0] >= 40
    assert minus[0] - minus[2] >= 40


@pytest.mark.parametrize("dark", [False, True])
def test_positions_are_blue_where_alike_and_red_where_opposite(browser, opened, dark):
    explanation = opened(seen_image(), dark=dark)
    (side,) = explanation.views["positions"]["sides"]
    cosines = np.array(side["similarity"]).reshape(*GRID, *GRID)
    found = pixels(browser, ".heat canvas")
    rows, columns = GRID
    assert found.shape[:2] == (rows * (rows + 1) - 1, columns * (columns + 1) - 1)
    assert (found[rows, :, 3] == 0).all()
    assert (found[:, columns, 3] == 0).all()
    for row, column in [(0, 0), (2, 5), (4, 6)]:
        top, left = row * (rows + 1), column * (columns + 1)
        part, values = found[top : top + rows, left : left + columns], cosines[row, column]
        for name, there in (("plus", values > 0), ("minus", values < 0)):
            wanted = scale(name, dark)[np.rint(255 * np.abs(values[there])).astype(int)]
            assert (part[there][:, 3] == 255).all()
            steps = np.abs(np.diff(scale(name, dark), axis=0)).max()
            assert np.abs(part[there][:, :3] - wanted).max() <= steps + 1


def test_filters_are_an_image_with_a_text(browser, opened):
    opened(seen_image())
    script = "const {naturalWidth, naturalHeight, alt} = document.querySelector('.tiles');"
    assert browser.execute(f"{script} return [naturalWidth, naturalHeight, alt]") == [
        7,
        3,
        "8 filters of 3 x 3 pixels: 2 principal components explain 75% of the variance",
    ]


def test_the_head_that_aligns_best_is_open_at_first(browser, opened):
    explanation = opened(replace(translation(), best=BestHead("cross.0.weights", 1)))
    assert text(browser, "#head-title") == "Layer 1, head 2"
    weights = explanation.maps[4].head(1)
    same_colours(pixels(browser, ".field canvas"), coloured(weights / weights.max()))
    assert text(browser, "#head-kind").endswith("; best known alignment")
    head(browser, 4, 0)
    assert "best" not in text(browser, "#head-kind")
    opened(replace(translation(), best=BestHead("cross.0.weights", None)))
    assert text(browser, "#head-title") == "Layer 1, mean of heads"


@pytest.mark.parametrize(("head_number", "name"), [(1, "head 2"), (None, "mean of heads")])
def test_a_head_that_aligns_as_it_reads_is_drawn_so(browser, opened, head_number, name):
    """Row t is that of the next step, which reads token t; the end, which is never read, keeps its own."""
    explanation = opened(replace(translation(), best=BestHead("cross.0.weights", head_number, "input")))
    assert text(browser, "#head-title") == f"Layer 1, {name}, at the input step"
    kind = text(browser, "#head-kind")
    assert kind == "Cross-attention: target to source, at the input step; best known alignment"
    own = explanation.maps[4].weights.astype(float)
    rows = own.mean(axis=0) if head_number is None else own[head_number]
    wanted = np.concatenate([rows[1:], rows[-1:]])
    same_colours(pixels(browser, ".field canvas"), coloured(wanted / wanted.max()))
    click(browser, "#numbers summary")
    found = np.array([float(cell) for cell in texts(browser, "#numbers tbody td")])
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=SHOWN)
    # The head as it foretells is there as well, and is not the one that aligns.
    head(browser, 4, len(own) if head_number is None else head_number)
    assert text(browser, "#head-title") == f"Layer 1, {name}"
    assert "best" not in text(browser, "#head-kind")


def test_a_model_without_attention_has_a_page_too(browser, opened):
    opened(without_maps())
    assert browser.execute("return document.getElementById('desk').hidden")
    assert texts(browser, "#written small") == ["\u00a0", ".61"]


def test_what_the_input_says_is_shown_and_does_nothing(browser, opened):
    opened(hostile())
    assert browser.execute("return window.hit === undefined")
    assert browser.execute("return document.querySelectorAll('img, main script').length") == 0
    shown = texts(browser, "[role=listbox] .chip")
    assert shown[:3] == [*HOSTILE[:3]]
    assert shown[3:6] == ["\ufffd", "\u23ce", "\u2205"]
    assert shown[6:8] == ["&amp;", "\ufffdtxet"]
    assert shown[8:] == [*HOSTILE[8:]]
    assert texts(browser, "#more td") == [HOSTILE[0], "", "a.50"]


def focused(browser: Browser) -> str:
    return browser.execute(
        "const e = document.activeElement; return e.id || e.className || e.getAttribute('name') || e.tagName"
    )


OUTLINED = """
    const at = document.activeElement;
    // The circle of a choice is not seen; its label is, and has the outline.
    return getComputedStyle(at.type === "radio" ? at.nextElementSibling : at).outlineStyle !== "none";
"""


@pytest.mark.slow
def test_a_walk_by_keyboard(browser, opened):
    explanation = opened(translation())
    met = []
    for _ in range(14):
        browser.press("Tab")
        met.append(focused(browser))
        assert browser.execute(OUTLINED), f"no outline at {met[-1]}"
    # The table of a view; one stop for each kind of attention, then the controls of the head, its map, its
    # table, its token.
    assert met[:9] == ["skip", "scheme", "scroll", "thumb", "thumb", "thumb", "unit", "scale", "map"]
    assert {"SUMMARY", "direction", "chip"} <= {*met}

    opened(translation())
    browser.press("Tab", "Tab", "Tab", "Tab", "Right", "Down")
    label = browser.execute("return document.activeElement.getAttribute('aria-label')")
    assert label.startswith("Layer 2, head 2; largest weight: ")
    browser.press("Enter")
    assert text(browser, "#head-title") == "Layer 2, head 2"
    assert focused(browser) == "one-head"
    browser.press("Tab", "Tab", "Tab")
    assert focused(browser) == "map"
    before = browser.execute("return [state.query, state.key]")
    browser.press("Home", "Right", "Right", "Down")
    row = min(before[0] + 1, len(explanation.axes["source"].tokens) - 1)
    said = text(browser, "#readout")
    assert said.startswith(f"{explanation.axes['source'].tokens[row]} attends to the ")
    assert last_number(said) == pytest.approx(explanation.maps[1].head(1)[row, 2], abs=SHOWN)
    browser.press("Enter")
    assert focused(browser) == "chip"
    browser.press("Home", "Right")
    assert text(browser, "#token-title") == "enjoyed attends to"
    browser.press("Escape")
    assert browser.execute("return document.activeElement.getAttribute('aria-label')") == label


@pytest.mark.slow
def test_everything_that_takes_keys_has_a_name(browser, opened):
    for make in (translation, image, caption, seeing_further, seen_image):
        opened(make())
        browser.devtools("Accessibility.enable")
        nodes = browser.devtools("Accessibility.getFullAXTree")["nodes"]
        taking = {"button", "radio", "slider", "option", "listbox", "application", "link", "table", "image"}
        nameless = [
            node["role"]["value"]
            for node in nodes
            if not node["ignored"]
            and node["role"]["value"] in taking
            and not node.get("name", {}).get("value")
            # A table has its caption, or its region's name.
            and node["role"]["value"] != "table"
        ]
        assert nameless == []


@pytest.mark.slow
def test_light_and_dark_by_what_people_prefer_and_by_the_switch(browser, opened):
    paper = "return getComputedStyle(document.body).backgroundColor"
    explanation = opened(translation(), dark=True)
    weights = explanation.maps[5].weights.astype(float).mean(axis=0)
    shares = weights / weights.max()
    assert browser.execute(paper) == "rgb(18, 21, 25)"
    same_colours(pixels(browser, ".field canvas"), coloured(shares, dark=True))
    click(browser, "#scheme")
    assert browser.execute(paper) == "rgb(251, 250, 248)"
    assert text(browser, "#scheme") == "Dark"
    same_colours(pixels(browser, ".field canvas"), coloured(shares))
    click(browser, "#scheme")
    same_colours(pixels(browser, ".field canvas"), coloured(shares, dark=True))
    browser.execute("dispatchEvent(new Event('beforeprint'))")
    same_colours(pixels(browser, ".field canvas"), coloured(shares))
    browser.execute("dispatchEvent(new Event('afterprint'))")
    same_colours(pixels(browser, ".field canvas"), coloured(shares, dark=True))


def test_on_paper_nothing_is_cut_off(browser, opened):
    opened(large(1, 2, 440), height=500)
    click(browser, "#numbers summary")
    boxes = [".facts dd", ".flow.long", ".scroll", ".map", ".fan .across"]
    script = """
        const style = (node) => getComputedStyle(node);
        const scrolls = (node) => style(node).overflowX !== "visible" || style(node).overflowY !== "visible";
        const nodes = [...document.querySelectorAll(arguments[0])];
        return [nodes.some((node) => node.scrollHeight > node.clientHeight + 1), nodes.some(scrolls)];
    """
    on_screen = [browser.execute(script, box) for box in boxes]
    assert all(scrolls for _, scrolls in on_screen)
    assert all(is_cut for is_cut, _ in on_screen[:3])
    browser.devtools("Emulation.setEmulatedMedia", media="print")
    on_paper = [browser.execute(script, box) for box in boxes]
    browser.devtools("Emulation.setEmulatedMedia", media="")
    assert not any(scrolls for _, scrolls in on_paper)
    assert not any(is_cut for is_cut, _ in on_paper[:3])


def luminance(colours: np.ndarray) -> np.ndarray:
    """WCAG's relative luminance of sRGB colours ``[..., 3]``."""
    share = np.asarray(colours, dtype=float) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("name", ["plus", "minus"])
@pytest.mark.parametrize("dark", [False, True])
def test_a_scale_keeps_its_order_in_grey(name, dark):
    steps = np.diff(luminance(scale(name, dark)))
    assert len(stops(name, dark)) == 8
    assert ((steps > 0) if dark else (steps < 0)).all()


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_tint(browser, opened, dark):
    opened(translation(), dark=dark)
    script = """
        const ground = (node) => {
            const colour = getComputedStyle(node).backgroundColor;
            return colour === "rgba(0, 0, 0, 0)" ? ground(node.parentElement) : colour;
        };
        const numbers = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const nodes = [...document.querySelectorAll(arguments[0])];
        return nodes.map((node) => [numbers(getComputedStyle(node).color), numbers(ground(node))]);
    """
    found = browser.execute(
        script, ".chip, .hint, .facts dt, .facts dd, h1, h2, legend, .readout, .map span, footer p"
    )
    lighter = luminance(np.array(found)) + 0.05
    assert (lighter.max(axis=1) / lighter.min(axis=1)).min() >= 4.5


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 800])
@pytest.mark.parametrize("make", [translation, image, seeing_further, seen_image])
def test_a_narrow_page_does_not_run_out_of_the_window(browser, opened, make, width):
    opened(make(), width=width, height=700)
    assert browser.execute("return document.documentElement.scrollWidth") <= width


def test_text_from_right_to_left(browser, opened):
    opened(hebrew())
    boxes = browser.execute(
        "return [...document.querySelectorAll('[role=listbox] .chip')].map((chip) => chip.offsetLeft)"
    )
    assert boxes == sorted(boxes, reverse=True)
    click(browser, "[role=listbox] .chip", 1)
    browser.press("Left")
    assert browser.execute("return state.query") == 2
    browser.press("Right", "Right")
    assert browser.execute("return state.query") == 0


def test_the_rest_of_a_causal_row_is_drawn_to_the_left_of_its_diagonal(browser, opened):
    opened(large(2, 3, 440, kind="causal"))
    drawn = np.array(browser.execute("return Array.from(unpacked(0, 1).w)")).reshape(440, 440)
    assert not np.triu(drawn, 1).any()
    np.testing.assert_allclose(drawn.sum(axis=1), 1, atol=1e-3)


@pytest.mark.slow
def test_a_large_page_has_every_head_and_true_numbers(browser, opened):
    exact = [("encoder.3.weights", 5)]
    explanation = opened(large(), exact)
    assert len(texts(browser, ".thumb")) == 12 * 13
    most = max(thumbnail(weights).max() for _, _, weights in views(explanation))
    for n, view in [(0, 0), (3, 11), (11, 7)]:
        cells = thumbnail(explanation.maps[n].head(view).astype(float))
        found = pixels(browser, f".thumb[data-map='{n}'][data-view='{view}'] canvas")
        same_colours(found, shaded(cells, most))

    weights = explanation.maps[3].head(5)
    head(browser, 3, 5)
    same_colours(pixels(browser, ".field canvas"), coloured(weights / weights.max()))
    assert browser.execute("return document.getElementById('map-note').hidden")

    weights = explanation.maps[7].head(2)
    head(browser, 7, 2)
    assert not browser.execute("return document.getElementById('map-note').hidden")
    assert text(browser, "#map-note").endswith("heedful explain … --exact 8.3")
    for row in (0, 200, 511):
        order = np.argsort(-weights[row], kind="stable")
        for column in order[:7]:
            browser.execute("change({query: arguments[0], key: arguments[1]})", row, int(column))
            assert last_number(text(browser, "#readout")) == pytest.approx(weights[row, column], abs=SHOWN)
        for column in order[[10, 100, 500]]:
            browser.execute("change({query: arguments[0], key: arguments[1]})", row, int(column))
            said = text(browser, "#readout")
            assert " at most " in said
            assert weights[row, column] <= last_number(said) + SHOWN
    assert "the 8 largest of 512 weights" in text(browser, ".bars caption")
    found = [(row[0], float(row[1])) for row in browser.execute(BARS)]
    order = np.sort(np.argsort(-weights[511], kind="stable")[:8])
    assert [name for name, _ in found] == [f"tok{n}" for n in order]
    np.testing.assert_allclose([value for _, value in found], weights[511][order], atol=SHOWN)
    click(browser, "[role=listbox] .chip", 500)
    assert text(browser, "#token-title") == "tok500 attends to"
