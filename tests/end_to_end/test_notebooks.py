"""The notebooks of the documentation do what they say, in a kernel of this interpreter."""

import json
import re
import sys
from pathlib import Path

import pytest
from tiers import sampled

import heedful

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
KEPT = ROOT / "docs" / "notebooks" / "translator.ipynb"
SOURCE = Path(heedful.__file__).parents[1]

PROGRESS = r"^<div><progress value=\"(\d+)\" max=\"\1\"></progress> .*<td>best</td>"
PAGE = '<iframe srcdoc="&lt;!doctype html&gt;'
SHOWN = {
    "translator": {
        "train.head()": "<th>source</th>",
        "heedful.train(": PROGRESS,
        "n_best=3": r"<td>.+</td>\s*<td>-\d\.\d+</td>",
        "run.evaluate(": r"<td>BLEU</td><td>\d+\.\d+</td>",
        "evaluation.rows()": "<th>scores.chrF</th>",
        "run.explain(": PAGE,
    },
    "change-a-score": {
        "standard = heedful.train(": PROGRESS,
        "own = heedful.train(": PROGRESS,
        "heedful.compare(": "<td>[^<]+score.kind</td><td>scaled-dot</td><td>__main__:DistanceScore",
        "run.evaluate(": "<td>BLEU</td>",
        "plt.plot(": "image/png",
        "plt.subplots(": "image/png",
    },
    "fine-tune-bert": {
        "pretrained = heedful.train(": PROGRESS,
        "run = heedful.train(": PROGRESS,
        "label_probabilities()": "<th>reading</th>",
        "run.evaluate(": r"<td>accuracy</td><td>(1|0\.[89]\d*)</td>",
        "PCA(": "image/png",
    },
}
"""By notebook: part of a cell, and a regular expression for what the cell shows."""

LEARNED = {"translator": {"run.evaluate(": r"<td>BLEU</td><td>[2-9]\d\.\d+</td>"}}
"""The same, of notebooks whose training is shortened in `make test`."""


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_in_the_repository_has_no_outputs(path):
    notebook = read(path)
    assert notebook["metadata"].keys() == {"kernelspec", "language_info"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    assert notebook["cells"][0]["source"][0].startswith("# ")


@pytest.fixture
def kernel(environment, tmp_path, monkeypatch):
    """Return folder and environment of a kernel ``python3``, which is of this interpreter."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install -e '.[dev]'")
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "language": "python",
    }
    folder = tmp_path / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({**spec, "display_name": "Python 3"}), encoding="utf-8")
    settings = {"JUPYTER_PATH": tmp_path / "jupyter", "IPYTHONDIR": tmp_path / "ipython"}
    for name, value in settings.items():
        monkeypatch.setenv(name, str(value))
    work = tmp_path / "work"
    work.mkdir()
    own = {name: str(value) for name, value in settings.items()}
    return {"cwd": str(work), "env": {**environment, **own, "PYTHONPATH": str(SOURCE)}}


def shown(cell):
    """HTML and names of the types of the images that a cell shows."""
    data = [output["data"] for output in cell["outputs"] if "data" in output]
    return "\n".join(
        [kind if kind.startswith("image/") else str(each[kind]) for each in data for kind in each]
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", sampled(NOTEBOOKS, [KEPT]), ids=lambda path: path.stem)
def test_a_notebook_runs_without_errors_and_warnings(path, kernel, amount):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e '.[dev]'")
    import nbformat

    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        cell.source = cell.source.replace('"max_updates": 300', f'"max_updates": {amount(30, 300)}')
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute(**kernel)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        printed = [output for output in cell.outputs if output.output_type == "stream"]
        assert not [output.text for output in printed if output.name == "stderr"], cell.source
        assert not any("warning" in output.text.lower() for output in printed), cell.source
    learned = LEARNED.get(path.stem, {}) if amount(False, True) else {}
    for what, pattern in [*SHOWN[path.stem].items(), *learned.items()]:
        (cell,) = [cell for cell in cells if what in cell.source]
        assert re.search(pattern, shown(cell), re.MULTILINE), f"{cell.source}\n{shown(cell)[:2000]}"


ENDLESS = """
import heedful
overrides = {
    "model": {"d_model": 12, "n_layers": 1},
    "model.layer.mixer.n_heads": 3,
    "model.layer.channels.d_ff": 17,
    "data.train.limit": 200,
    "data.valid.limit": 20,
    "validation.decode": 0,
    "training": {"max_updates": 99_999, "tokens_per_update": 200, "validate_every": 999, "save_every": 999},
}
run = heedful.train("phrasebook-ta", "runs/stopped", overrides=overrides)
"""


@pytest.mark.slow
def test_an_interrupted_training_is_saved_and_can_be_used_and_resumed(kernel):
    """As with the button of a notebook."""
    manager = pytest.importorskip("jupyter_client.manager")
    started, client = manager.start_new_kernel(kernel_name="python3", **kernel)
    html, interrupted = [], []

    def interrupt_after_an_update(message):
        content = message["content"].get("data", {}).get("text/html")
        if content is not None:
            html.append(content)
            if not interrupted and re.search('<progress value="[1-9]', content):
                interrupted.append(started.interrupt_kernel())

    def execute(code, **options):
        reply = client.execute_interactive(code, timeout=120, **options)["content"]
        assert reply["status"] == "ok", reply
        return reply["user_expressions"]

    try:
        execute(ENDLESS, output_hook=interrupt_after_an_update)
        facts = {
            "reason": "run.folder.read_card()['stopped']",
            "text": "run.predict(['we see'], beam=1)[0].text",
        }
        found = execute("", user_expressions=facts)
        assert all(each["status"] == "ok" for each in found.values()), found
        assert re.search(r"stopped after [\d,]+ updates \(signal\)", html[-1])
        n_updates = execute("", user_expressions={"n": "run.folder.read_card()['updates']"})["n"]["data"]
        again = "heedful.resume('runs/stopped', overrides={'training.max_updates': %s + 2}, progress=False)"
        execute(
            f"run = {again % n_updates['text/plain']}\nassert run.folder.read_card()['stopped'] == 'updates'"
        )
    finally:
        client.stop_channels()
        started.shutdown_kernel(now=True)
