"""The documentation is whole: pages can be found, links lead somewhere, and the site can be built."""

import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
import time
import unicodedata
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import browser
import pytest
from ruamel.yaml import YAML

import heedful
from heedful.recipes.resolve import shipped_recipes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SETTINGS = YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))
OF_ROOT = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"]

MADE = {DOCS / "gallery" / "index.html"}
"""What is there once the site is built."""


def _hooks():
    found = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


HOOKS = _hooks()


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def without_blocks(page):
    """Its text without what stands between lines of backticks."""
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)


def prose(page):
    """Its text without code, which is not read as Markdown."""
    without = re.sub(r"^ {4}.*$", "", without_blocks(page), flags=re.MULTILINE)
    return re.sub(r"`[^`\n]+`", "", without)


def links(page):
    """Where its links and images lead, without those to other places in the world."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    found += re.findall(r"(?:href|src)=[\"']([^\"']+)", prose(page))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(page):
    """The names of its headings, as the site makes them."""
    names = []
    for heading in re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE):
        plain = unicodedata.normalize("NFKD", heading.replace("`", "")).encode("ascii", "ignore").decode()
        names.append(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return names


def navigation(entry):
    """All pages below an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry if isinstance(entry, list) else entry.values()
    return [page for part in parts for page in navigation(part)]


def test_every_page_is_in_the_navigation_once():
    shown = navigation(SETTINGS["nav"])
    assert len(set(shown)) == len(shown)
    notebooks = {f"notebooks/{path.stem}.md" for path in HOOKS.NOTEBOOKS.glob("*.ipynb")}
    assert (
        set(shown) == {page.removeprefix("docs/") for page in PAGES} | set(HOOKS.PAGES.values()) | notebooks
    )


@pytest.mark.parametrize("page", [*PAGES, *OF_ROOT])
def test_links_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        target = Path(os.path.normpath(target))
        assert target.exists() or target in MADE, link
        if target.suffix == ".png":
            assert anchor in {"", "only-light", "only-dark"}, link
        elif anchor:
            assert anchor in anchors(target.relative_to(ROOT)), link


@pytest.mark.parametrize("page", PAGES)
def test_pages_of_the_site_link_to_nothing_outside_it(page):
    """But for the pages that the site takes in."""
    for link in links(page):
        path = Path(os.path.normpath((ROOT / page).parent / link.partition("#")[0]))
        assert path.is_relative_to(DOCS) or path.relative_to(ROOT).as_posix() in HOOKS.PAGES, link


def test_links_to_the_pages_of_the_root_are_turned():
    turn = HOOKS.to_root
    assert turn("see [x](../CONTRIBUTING.md#two-walks).") == "see [x](contribute/contributing.md#two-walks)."
    assert turn("[x](../../ARCHITECTURE.md)") == "[x](../contribute/architecture.md)"
    assert turn("[x](../results.md) `CONTRIBUTING.md`") == "[x](../results.md) `CONTRIBUTING.md`"
    assert HOOKS.from_root("![x](docs/images/x.png)") == "![x](../images/x.png)"
    assert HOOKS.from_root("[x](CONTRIBUTING.md#two-walks)") == "[x](contributing.md#two-walks)"


def test_the_page_of_a_notebook_has_its_text_code_and_outputs():
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["a <\n"]},
        {"output_type": "stream", "name": "stdout", "text": ["b\n", "c\n"]},
        {"output_type": "display_data", "data": {"text/plain": ["x"], "text/html": ["<b>", "x</b>"]}},
        {"output_type": "display_data", "data": {"text/plain": ["x"], "image/png": "iVBO\n"}},
        {"output_type": "execute_result", "data": {"text/plain": ["[1 < 2]"]}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Why."]},
        {"cell_type": "code", "source": ["x = 1\n", "x"], "outputs": outputs},
        {"cell_type": "code", "source": ["y"], "outputs": []},
        {"cell_type": "markdown", "source": ["## Next"]},
    ]
    assert HOOKS.from_notebook("a.ipynb", json.dumps({"cells": cells})) == (
        '# Title\n\nWhy.\n\n<a href="a.ipynb" download>Download this notebook</a> to run it.\n\n'
        "```python\nx = 1\nx\n```\n\n"
        '<div class="output"><pre>a &lt;\nb\nc\n</pre></div>\n\n'
        '<div class="output"><b>x</b></div>\n\n'
        '<div class="output"><img src="data:image/png;base64,iVBO" alt="plot"></div>\n\n'
        '<div class="output"><pre>[1 &lt; 2]</pre></div>\n\n'
        "```python\ny\n```\n\n## Next\n"
    )
    assert HOOKS.to_notebooks("[x](../notebooks/a-b.ipynb) `a.ipynb`") == "[x](../notebooks/a-b.md) `a.ipynb`"


def test_every_shipped_recipe_is_on_its_page_and_no_other():
    tables = re.findall(
        r"^\| (`[^|]+) \|", text_of("docs/reference/recipes.md").partition("## For your own")[2], re.M
    )
    named = [name for cell in tables for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(named) == sorted(shipped_recipes())


def test_every_public_name_is_on_the_page_of_python():
    shown = set(re.findall(r"^::: heedful\.(\w+)$", text_of("docs/reference/python.md"), re.MULTILINE))
    assert shown >= set(heedful.__all__) - {"__version__", "events"}


def test_the_pages_of_python_name_what_exists():
    names = [
        name
        for page in ("python", "nn", "objectives", "decoding", "events")
        for name in re.findall(r"^::: (\S+)$", text_of(f"docs/reference/{page}.md"), re.MULTILINE)
    ]
    assert len(names) > 25
    for name in names:
        assert pkgutil.resolve_name(name) is not None


def test_every_schema_is_on_its_page():
    files = {path.name for path in (DOCS / "schemas").glob("*.json")}
    assert set(links("docs/schemas/index.md")) == files


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, without the lab's gallery unless that was made; a warning is an error."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install -e '.[docs]'")
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install -e '.[docs]'")
    pytest.importorskip("mkdocstrings_handlers.python", reason="missing: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page(site):
    for page in navigation(SETTINGS["nav"]):
        assert (site / page).with_suffix(".html").is_file()
    assert (site / "gallery" / "index.html").is_file()
    assert not (site / "hooks.py").exists()


def test_the_site_fetches_nothing(site):
    """Every script, style, font and image lies in its folder."""
    away = r"(?:https?:)?//[^\"'\s>)]+"
    patterns = {
        ".html": rf"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?({away})",
        ".css": rf"(?:url\(|@import)\s*[\"']?({away})",
    }
    read = 0
    for path in site.rglob("*"):
        if path.suffix in patterns:
            assert re.findall(patterns[path.suffix], path.read_text(encoding="utf-8")) == [], path
            read += 1
    assert read > 10


QUESTIONS = re.findall(r"^## (.*)", (DOCS / "faq.md").read_text(encoding="utf-8"), re.MULTILINE)

SEARCH = """
    const field = document.querySelector("input[name=query]");
    document.querySelector("#__search").checked = true;
    field.focus();
    field.value = arguments[0];
    for (const kind of ["input", "keyup"]) field.dispatchEvent(new Event(kind, {bubbles: true}));
"""
FIRST = """
    const found = document.querySelector(".md-search-result__item");
    return found ? [...found.querySelectorAll("h1, h2")].map(heading => heading.textContent) : [];
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(browser.missing()), reason=f"missing: {', '.join(browser.missing())}")
def test_the_search_finds_each_question_first(site, tmp_path):
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    chromium = browser.Browser(tmp_path)
    try:
        chromium.load(f"http://127.0.0.1:{server.server_port}/index.html")
        for question in QUESTIONS:
            chromium.execute(SEARCH, question)
            deadline = time.monotonic() + 20
            while question not in (found := chromium.execute(FIRST)) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert question in found
    finally:
        chromium.close()
        server.shutdown()
        server.server_close()
