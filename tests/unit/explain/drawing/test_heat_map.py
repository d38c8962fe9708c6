"""The image: the array on the axes and the drawn pixels are compared with the numbers."""

import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest
from matplotlib.font_manager import FontEntry, fontManager
from matplotlib.image import imread
from matplotlib.text import Text

from heedful.errors import RequestError, WorkError
from heedful.explain.drawing import canvas
from heedful.explain.drawing.canvas import colours
from heedful.explain.drawing.heat_map import heat_map, save

SOURCE = ["I", "enjoyed", "the", "film", "transformers"]
TARGET = ["naan", "transfarmar", "rasiththen"]


@pytest.fixture
def weights():
    return np.random.default_rng(7).dirichlet(np.full(5, 0.3), 3)


def greatest(weights):
    """The tenth at or above the greatest weight."""
    return next(n / 10 for n in range(1, 11) if n / 10 >= weights.max())


def pixels(figure):
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def centres(figure, shape):
    """``[rows, columns]`` of (x, y) in pixels from the upper left."""
    axes = figure.axes[0]
    height = figure.canvas.get_width_height()[1]
    for row, column in np.ndindex(shape):
        # Not the very middle, where no line can be, but no edge either.
        x, y = axes.transData.transform((column, row))
        yield (row, column), (round(x), round(height - y))


def test_the_axes_hold_the_weights(weights):
    axes = heat_map(SOURCE, TARGET, weights).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), weights)
    assert axes.images[0].get_clim() == (0, greatest(weights))
    assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
    assert [label.get_text() for label in axes.get_yticklabels()] == TARGET


@pytest.mark.parametrize(
    ("most", "end"),
    [
        (0.0, 1),
        (0.04, 0.04),
        (0.1, 0.1),
        (0.3, 0.3),
        (0.301, 0.4),
        (np.float32(0.7), 0.7),
        (1, 1),
        (1.00003, 1),
    ],
)
def test_the_scale_ends_at_the_tenth_above_the_greatest_weight(most, end):
    figure = heat_map(["a"], ["b"], [[most]])
    assert figure.axes[0].images[0].get_clim() == (0, end)
    figure.canvas.draw()
    ticks = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert ticks == ["0", f"{end / 2:g}", f"{end:g}"]


def test_every_cell_has_the_colour_of_its_weight(weights):
    figure = heat_map(SOURCE, TARGET, weights, title="a\nb", note="layer 1")
    drawn = pixels(figure)
    for (row, column), (x, y) in centres(figure, weights.shape):
        wanted = colours()(weights[row, column] / greatest(weights), bytes=True)
        np.testing.assert_array_equal(drawn[y, x], wanted)


def test_the_first_row_is_above_and_the_first_column_left(weights):
    figure = heat_map(SOURCE, TARGET, weights)
    pixels(figure)
    places = dict(centres(figure, weights.shape))
    assert places[0, 0][1] < places[2, 0][1]
    assert places[0, 0][0] < places[0, 4][0]


def test_words_stand_at_their_cells(weights):
    figure = heat_map(SOURCE, TARGET, weights)
    pixels(figure)
    axes, height = figure.axes[0], figure.canvas.get_width_height()[1]
    cells = dict(centres(figure, weights.shape))
    edge = axes.get_window_extent()
    for row, label in enumerate(axes.get_yticklabels()):
        box = label.get_window_extent()
        assert box.x1 < edge.x0
        assert box.y0 < height - cells[row, 0][1] < box.y1
    for column, label in enumerate(axes.get_xticklabels()):
        box = label.get_window_extent()
        assert box.y0 >= edge.y1 - 1
        assert abs(box.x0 - cells[0, column][0]) < (cells[0, 1][0] - cells[0, 0][0]) / 2


def test_all_of_it_is_on_the_page_on_white(weights):
    figure = heat_map(["a" * 33, *SOURCE[1:]], ["b" * 29, *TARGET[1:]], weights, title="c " * 99, note="d")
    drawn = pixels(figure)
    for edge in (drawn[0], drawn[-1], drawn[:, 0], drawn[:, -1]):
        assert (edge == 255).all()


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_equal_figures_give_equal_bytes(suffix, weights, tmp_path):
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for file in files:
        save(heat_map(SOURCE, TARGET, weights, title="t"), file)
    assert files[0].read_bytes() == files[1].read_bytes()
    save(heat_map(SOURCE, TARGET, 1 - weights, title="t"), files[1])
    assert files[0].read_bytes() != files[1].read_bytes()


def test_the_file_shows_what_was_drawn(weights, tmp_path):
    figure = heat_map(SOURCE, TARGET, weights)
    save(figure, tmp_path / "a.png")
    read = imread(tmp_path / "a.png")
    for (row, column), (x, y) in centres(figure, weights.shape):
        wanted = colours()(weights[row, column] / greatest(weights), bytes=True)
        np.testing.assert_array_equal(np.rint(read[y, x] * 255), wanted)


def test_an_svg_is_well_formed_and_holds_the_image(weights, tmp_path):
    save(heat_map(SOURCE, TARGET, weights), tmp_path / "a.svg")
    root = ET.parse(tmp_path / "a.svg").getroot()
    assert root.tag.endswith("svg")
    assert list(root.iter("{http://www.w3.org/2000/svg}image"))


def test_words_are_not_formulas(weights, tmp_path):
    source = ["$x^2$", "_a_", "$", "\\alpha", "#%&"]
    figure = heat_map(source, TARGET, weights, title="$\\nothing$ and $", note="$y$")
    pixels(figure)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == source
    assert not any(label.get_parse_math() for label in figure.axes[0].get_xticklabels())


@pytest.fixture
def fonts(monkeypatch):
    """Let this machine have these fonts beside matplotlib's own."""
    own = [font for font in fontManager.ttflist if "mpl-data" in font.fname]

    def have(*others):
        monkeypatch.setattr(fontManager, "ttflist", [*own, *others])
        monkeypatch.setattr(canvas, "_new_fonts", list)

    return have


def test_a_sign_of_no_script_is_drawn_as_a_box_without_complaint(weights, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = heat_map(["\U000e0fff", "b", "\ue000", "a\n", "\x07"], TARGET, weights)
        save(figure, tmp_path / "a.png")
        save(figure, tmp_path / "a.svg")


@pytest.mark.parametrize(
    ("word", "script", "package"),
    [
        ("நாய்", "Tamil", "fonts-noto-core"),
        ("कुत्ता", "Devanagari", "fonts-noto-core"),
        ("สุนัข", "Thai", "fonts-noto-core"),
        ("猫", "CJK", "fonts-noto-cjk"),
        ("ねこ", "Hiragana", "fonts-noto-cjk"),
        ("🤗", "emoji and symbols", "fonts-symbola"),
        ("🇩🇪ท", "Thai, emoji and symbols", "fonts-noto-core fonts-symbola"),
    ],
)
def test_a_script_without_a_font_is_named_with_what_to_install(
    fonts, weights, tmp_path, word, script, package
):
    """Matplotlib's own Last Resort has a box for every character: it is no font of any script."""
    fonts()
    expected = rf"characters of: {script}; .*\(Debian, Ubuntu: {package}\)"
    with pytest.warns(UserWarning, match=expected) as said:
        figure = heat_map([word, "a", "b", "c", "d"], TARGET, weights)
    assert len(said) == 1
    names = {name for text in figure.findobj(Text) for name in text.get_fontfamily()}
    assert not any("resort" in name.lower() for name in names)
    save(figure, tmp_path / "a.png")


def test_the_font_with_most_of_the_missing_characters_is_taken(fonts, monkeypatch):
    entries = [
        FontEntry(f"{name}.ttf", name=name, style="normal", variant="normal", weight=weight, stretch="normal")
        for name, weight in (
            ("A Few", 400),
            ("Z Serif Tamil", 400),
            ("Z Sans Tamil", 700),
            ("Z Sans Tamil", 400),
        )
    ]
    characters = {"A Few.ttf": "ந", "Z Serif Tamil.ttf": "நாய்", "Z Sans Tamil.ttf": "நாய்"}
    monkeypatch.setattr(
        canvas, "_font_characters", lambda path: frozenset(map(ord, characters.get(path, "abc")))
    )
    fonts(*entries)
    assert canvas.font_families("abc") == ["DejaVu Sans"]
    assert canvas.font_families("aநாய்") == ["DejaVu Sans", "Z Sans Tamil"]


def test_an_image_with_letters_of_a_font_that_is_there_has_them(weights, tmp_path):
    tamil = [font for font in fontManager.ttflist if "Tamil" in font.name]
    if not tamil:
        pytest.skip("this machine has no font with Tamil letters")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = heat_map(["நாய்", "a", "b", "c", "d"], TARGET, weights)
    label = figure.axes[0].get_xticklabels()[0]
    assert label.get_text() == "நாய்"
    assert "Tamil" in label.get_fontfamily()[1]


def test_the_settings_of_matplotlib_stay_as_they_were(weights, tmp_path):
    before = dict(matplotlib.rcParams)
    save(heat_map(SOURCE, TARGET, weights), tmp_path / "a.svg")
    assert dict(matplotlib.rcParams) == before


def test_one_word_of_each_side():
    figure = heat_map(["</s>"], ["</s>"], [[1.0]], title="\n")
    assert pixels(figure).size


@pytest.mark.parametrize("bad", [[[0.5, 0.5]], [[float("nan")]], [[2.0]]])
def test_what_is_no_matrix_of_weights_is_refused(bad):
    with pytest.raises(ValueError):
        heat_map(["a"], ["b"], bad)


def test_another_ending_is_refused(weights, tmp_path):
    with pytest.raises(RequestError, match=r"\.png or \.svg"):
        save(heat_map(SOURCE, TARGET, weights), tmp_path / "a.jpg")


def test_a_file_that_cannot_be_written_is_named(weights, tmp_path):
    with pytest.raises(WorkError, match="nowhere"):
        save(heat_map(SOURCE, TARGET, weights), tmp_path / "nowhere" / "a.png")


def test_pyplot_is_not_needed():

    code = "import sys, heedful.explain.drawing.heat_map; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0
