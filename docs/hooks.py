"""mkdocs hooks: add the pages of the project's root, notebooks and the lab's gallery to the site.

Links are written for the repository; links to notebooks, and to and from the root's pages, are rewritten for
the site.
"""

import html
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {
    "ARCHITECTURE.md": "contribute/architecture.md",
    "CONTRIBUTING.md": "contribute/contributing.md",
    "CHANGELOG.md": "contribute/changes.md",
}
"""Pages of the root, and their names in the site."""

NOTEBOOKS = ROOT / "docs" / "notebooks"

RUN_NOTEBOOKS = ROOT / "build" / "notebooks"
"""Folder in which `make docs` runs the notebooks; without it, their pages have no outputs."""

SEARCH = {
    "faq.md": 3.0,
    "get-started/": 2.0,
    "how-to/": 2.0,
    "troubleshooting/": 0.4,
    "contribute/": 0.3,
    "reference/settings/": 0.5,
    "teach/lectures.md": 0.3,
}
"""Factors of pages in the ranking of the search; long lists would match every question."""

GALLERY = ROOT / "build" / "gallery"
"""Folder in which `make docs` writes the pages of the lab."""

NO_GALLERY = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>The lab of heedful</title></head>
<body><p>This site was built without the gallery. Make it with <code>make docs</code>, or by itself with
<code>heedful lab --all --out site/gallery</code>.</p></body></html>
"""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and the gallery."""
    from mkdocs.structure.files import File

    for name, shown in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, shown, content=from_root(text)))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        run = RUN_NOTEBOOKS / path.name
        page = from_notebook(path.name, (run if run.is_file() else path).read_text(encoding="utf-8"))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
    if not (GALLERY / "index.html").is_file():
        files.append(File.generated(config, "gallery/index.html", content=NO_GALLERY))
        return files
    for path in sorted(GALLERY.iterdir()):
        files.append(File.generated(config, f"gallery/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **context: Any) -> str:
    """Rewrite links to the root's pages and to notebooks; set the page's factor in the search."""
    path = page.file.src_uri
    page.meta["search"] = {"boost": next((SEARCH[name] for name in SEARCH if path.startswith(name)), 1.0)}
    return to_notebooks(to_root(markdown))


def from_root(text: str) -> str:
    """Return the text of a page of the root, with its links rewritten for the folder `docs/contribute`."""
    names = "|".join(map(re.escape, PAGES))
    text = re.sub(rf"\]\(({names})", lambda found: f"]({Path(PAGES[found[1]]).name}", text)
    return re.sub(r"\]\(docs/", "](../", text)


def from_notebook(name: str, text: str) -> str:
    """Return the page of a notebook: its text, its code, what that showed, and a link to its file."""
    cells = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cells.append(source)
        else:
            cells += [f"```python\n{source}\n```", *outputs_of(cell)]
    title, *rest = cells
    heading, _, introduction = title.partition("\n")
    link = f'<a href="{name}" download>Download this notebook</a> to run it.'
    return "\n\n".join([heading, introduction.strip(), link, *rest]) + "\n"


def outputs_of(cell: dict[str, Any]) -> Iterator[str]:
    """Yield what a cell showed, as blocks of HTML: tables, images, pages, and printed text."""
    for is_printed, outputs in groupby(cell["outputs"], lambda output: output["output_type"] == "stream"):
        if is_printed:
            printed = "".join(part for output in outputs for part in output["text"])
            yield f'<div class="output"><pre>{html.escape(printed)}</pre></div>'
            continue
        for output in outputs:
            shown = {kind: "".join(data) for kind, data in output["data"].items()}
            block = f"<pre>{html.escape(shown['text/plain'])}</pre>"
            if "image/png" in shown:
                block = f'<img src="data:image/png;base64,{shown["image/png"].strip()}" alt="plot">'
            yield f'<div class="output">{shown.get("text/html", block)}</div>'


def to_notebooks(text: str) -> str:
    """Return the text of a page, with its links to notebooks rewritten to their pages."""
    return re.sub(r"\]\(([\w./-]*)\.ipynb\)", r"](\1.md)", text)


def to_root(text: str) -> str:
    """Return the text of a page below `docs`, with its links to the root's pages rewritten for the site."""
    names = "|".join(map(re.escape, PAGES))
    return re.sub(rf"\]\(((?:\.\./)*)\.\./({names})", lambda found: f"]({found[1]}{PAGES[found[2]]}", text)
