"""Progress in a notebook."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.api import notebook
from heedful.api.notebook import N_ROWS, NotebookProgress, in_notebook
from heedful.training.callbacks import Saved, Started, Stopped, Updated, Validated


def updated(number):
    return Updated(number, 0, 2.5, {}, 1e-3, 0.7, 100, 0.5, 0.5 * number)


def validated(number, *, best, **metrics):
    return Validated(number, metrics, best, 0.5 * number)


def rows(html):
    """The cells of each row of the table."""
    return [re.findall(r"<t[dh]>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


class Display:
    """Stands for ``IPython.display``: keeps what was shown, by the outputs of the cell."""

    def __init__(self):
        self.outputs = []

    def HTML(self, content):
        return content

    def display(self, content, *, display_id):
        assert display_id
        self.outputs.append([content])
        return self

    def update(self, content):
        self.outputs[-1].append(content)


@pytest.fixture
def display(monkeypatch):
    shown = Display()
    monkeypatch.setattr(notebook, "import_module", {"IPython.display": shown}.__getitem__)
    return shown


def test_a_training_is_a_bar_and_a_table_in_one_output(display):
    progress = NotebookProgress()
    progress(Started(0, max_updates=1200))
    progress(updated(1))
    assert '<progress value="1" max="1200"></progress> 1 / 1,200' in progress.html()
    assert "loss 2.5000, rate 1.00e-03, 200 tokens/s, 10:00 left" in progress.html()
    assert rows(progress.html()) == []
    progress(validated(1000, best=True, loss=1.25, bleu=3.0))
    progress(Saved(1000, Path("checkpoints/1000")))
    progress(updated(1100))
    progress(validated(1200, best=False, loss=1.5))
    progress(Stopped(1200, "updates", 600.0))
    assert len(display.outputs) == 1
    last = display.outputs[0][-1]
    assert '<progress value="1200" max="1200"></progress> 1,200 / 1,200' in last
    assert "stopped after 1,200 updates (updates), 10:00" in last
    assert rows(last) == [
        ["update", "loss", ""],
        ["1,000", "1.25", "best"],
        ["1,200", "1.5", ""],
    ]


def test_damaged_checkpoints_that_were_skipped_are_shown(display):
    progress = NotebookProgress()
    progress(Started(3, damaged=("<run>/4: file is damaged",)))
    progress(updated(4))
    warning = "<div>warning: skipped a damaged checkpoint: &lt;run&gt;/4: file is damaged</div>"
    assert progress.html().startswith(warning)


def test_names_of_metrics_are_escaped_and_missing_values_shown_as_nan():
    progress = NotebookProgress()
    progress.validations = [validated(1, best=True, loss=1.0), validated(2, best=False, **{"<b>": 0.5})]
    assert rows(progress.html())[:2] == [["update", "&lt;b&gt;", ""], ["1", "nan", "best"]]


def test_without_a_limit_there_is_no_bar(display):
    progress = NotebookProgress()
    progress(Started(0))
    progress(updated(7))
    assert "<progress" not in progress.html()
    assert "<div>7 &nbsp; loss 2.5000" in progress.html()


def test_the_last_validations_are_shown(display):
    progress = NotebookProgress()
    for number in range(1, N_ROWS + 4):
        progress(validated(number, best=False, loss=1.0))
    assert [row[0] for row in rows(progress.html())[1:]] == [str(n) for n in range(4, N_ROWS + 4)]


def test_updates_are_drawn_at_intervals(display, monkeypatch):
    seconds = iter([10.0, 10.1, 10.2, 10.7, 10.8])
    monkeypatch.setattr(notebook.time, "monotonic", lambda: next(seconds))
    progress = NotebookProgress()
    for number in range(1, 4):
        progress(updated(number))
    assert len(display.outputs[0]) == 2  # after the updates 1 and 3


def test_a_program_and_a_prompt_are_no_notebooks():
    assert not in_notebook()
    code = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from heedful.api.notebook import in_notebook
assert not in_notebook()
InteractiveShell.instance()
assert not in_notebook()
"""
    pytest.importorskip("IPython")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


CELLS = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell("import heedful\\ndef mine():\\n    return heedful.load('no/such/run')")
shell.run_cell("mine()")
shell.run_cell("heedful.build('char-mini', vocab_size=11)(None)")
"""


def test_the_traceback_of_a_wrong_request_ends_in_the_cell():
    finished = subprocess.run([sys.executable, "-c", CELLS], capture_output=True, text=True, check=True)
    mistake, fault = re.split(r"^-{9,}$", finished.stdout, flags=re.MULTILINE)[1:]
    assert mistake.strip().endswith("RequestError: no/such/run: no such run (no folder no/such)")
    assert mistake.count("Cell In[1], line") == 2
    assert ".py" not in mistake
    assert ".py" in fault
