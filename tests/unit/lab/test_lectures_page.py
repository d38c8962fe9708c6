"""The page of the lectures is what the index and the lab make of it; its names and links lead somewhere."""

import re
from pathlib import Path

import pytest
from lectures_index import Entry, Index, Lecture, Place, read
from lectures_page import link, page, place_of, plain
from made_up import made_up

from heedful.lab.corrections import Correction, corrections
from heedful.lab.registry import experiments

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docs" / "teach" / "lectures.md"
PAGE = FILE.read_text(encoding="utf-8")


def test_the_page_is_what_the_index_and_the_lab_say():
    made = page(read(ROOT / "docs" / "teach" / "lectures.yaml"), corrections(), experiments())
    assert made == PAGE, "docs/teach/lectures.md is stale; regenerate it:\n    make pages"


def test_files_that_the_page_names_are_there():
    named = set(re.findall(r"`((?:src|tests)/[\w./]+)`", PAGE))
    assert {name.partition("/")[0] for name in named} == {"src", "tests"}
    assert not sorted(name for name in named if not (ROOT / name).is_file())


def hosts_anchor(heading):
    """As GitHub makes it: small letters, without punctuation, each blank a hyphen."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sites_anchor(heading):
    """As Python-Markdown makes it: ASCII alone, and runs of blanks and hyphens are one."""
    ascii_alone = heading.encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_alone).strip().lower())


@pytest.mark.parametrize("anchor", [hosts_anchor, sites_anchor])
def test_links_lead_to_headings_on_a_code_host_and_on_the_site(anchor):
    headings = [anchor(heading) for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)]
    assert len({*headings}) == len(headings)
    targets = re.findall(r"\]\(#([^)]*)\)", PAGE)
    assert targets
    assert {*targets} <= {*headings}


def test_links_to_other_pages_stay_among_the_documents():
    others = set(re.findall(r"\]\(([^)#]+)\)", PAGE))
    assert others
    for target in others:
        path = (FILE.parent / target).resolve()
        assert path.is_file()
        assert path.is_relative_to(ROOT / "docs")


def test_no_cell_of_a_table_is_torn():
    widths = {}
    for line in PAGE.splitlines():
        if line.startswith("| "):
            widths.setdefault(line.count("|"), []).append(line)
    assert set(widths) == {4, 9}
    assert len(widths[9]) == 2 + 5


SMALL = Index(
    lectures={
        "S2": Lecture(
            title="A title", by="A", form="slides", equations={"a sum": "a_i + b_i"}, figures={"a line": "it"}
        )
    },
    rows=(
        Entry(
            row=1,
            title="First thing",
            lectures={"S2": Place(equations=("a sum",), figures=("a line",), claims=("It is <so>.",))},
            symbols=("heedful.nn.cells.Cell.project", "heedful.nn.scan.scan", "heedful.nn.cells.LSTMCell"),
            tests=("tests/unit/nn/test_cells.py::test_a", "tests/unit/nn/test_cells.py::test_b"),
            presets=("gpt2",),
            experiments=("made-up",),
            not_here="The rest (`heedful lab`).",
        ),
    ),
)

ERRORS = (Correction(row=1, lecture="S2", printed="a*b", correct="a + b"),)


def test_a_row_has_all_that_is_known_of_it():
    made = page(SMALL, ERRORS, {"made-up": made_up(expected=("is wrong", "holds"))})
    _, _, row = made.partition("### 1. First thing\n")
    assert row.strip().split("\n\n") == [
        "- **S2** It is &lt;so&gt;. Formula: a sum `a_i + b_i`. Shown: a line.",
        r"**Printed → correct:** S2: a\*b → a + b",
        "**Code**",
        "- `src/heedful/nn/cells.py`: `Cell.project`, `LSTMCell`\n- `src/heedful/nn/scan.py`: `scan`",
        "**Presets:** `gpt2`",
        "**Tests:** `tests/unit/nn/test_cells.py`: `test_a`, `test_b`",
        '**Experiments:** `made-up`: One "thing" &lt;is&gt; another. **is wrong**',
        "**Not implemented:** The rest (`heedful lab`).",
    ]


def test_a_row_without_experiments_says_why():
    (row,) = SMALL.rows
    without = row.model_copy(update={"experiments": (), "no_experiment": "It is no claim."})
    _, _, made = page(SMALL.model_copy(update={"rows": (without,)}), ERRORS, {}).partition("### 1. First")
    assert "**No experiment:** It is no claim.\n" in made
    assert "**Experiments" not in made


def test_a_lecture_has_its_formulas_figures_and_rows():
    made = page(SMALL, ERRORS, {"made-up": made_up()})
    assert "| [S2](#lecture-s2) | A title | A | slides | 1 | 1 | 1 | 1 |\n" in made
    assert "| a sum | `a_i + b_i` | [1](#1-first-thing) |\n" in made
    assert "| a line | it | [1](#1-first-thing) |\n" in made
    assert "- [1. First thing](#1-first-thing) (1 correction)\n" in made


def test_a_sign_that_parts_cells_is_refused():
    torn = SMALL.lectures["S2"].model_copy(update={"equations": {"a sum": "|a| + b"}})
    with pytest.raises(ValueError, match=r"must not contain '\|': `\|a\|"):
        page(SMALL.model_copy(update={"lectures": {"S2": torn}}), ERRORS, {"made-up": made_up()})


@pytest.mark.parametrize(
    "symbol, wanted",
    [
        ("heedful.nn.cells.Cell.project", ("src/heedful/nn/cells.py", "Cell.project")),
        ("heedful.decoding.greedy.greedy", ("src/heedful/decoding/greedy.py", "greedy")),
        ("heedful.data.corpora.open_corpus", ("src/heedful/data/corpora/__init__.py", "open_corpus")),
        ("heedful.errors", ("src/heedful/errors.py", "")),
    ],
)
def test_a_symbol_has_its_file(symbol, wanted):
    assert place_of(symbol) == wanted


def test_text_is_text_and_code_is_code():
    assert plain("W_Q & [q; k] < `a_b <c>` *") == r"W\_Q &amp; \[q; k\] &lt; `a_b <c>` \*"


def test_a_link_names_its_row():
    assert link(SMALL.rows[0], "this") == "[this](#1-first-thing)"
