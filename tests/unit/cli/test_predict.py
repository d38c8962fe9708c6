"""How many inputs are answered at once."""

import io

import pytest

from heedful.cli import predict as module


class Input:
    """Standard input, from a terminal or not."""

    def __init__(self, typed):
        self.buffer, self.isatty = io.BytesIO(b"a\nb\n"), lambda: typed


@pytest.mark.parametrize(
    "typed, name, size", [(True, "-", 1), (True, "inputs.txt", module.BLOCK), (False, "-", module.BLOCK)]
)
def test_only_what_is_typed_is_answered_line_by_line(monkeypatch, tmp_path, typed, name, size):
    seen = []
    monkeypatch.setattr("heedful.runs.run.load", lambda run, device: Loaded())
    monkeypatch.setattr(module, "_answer_all", lambda run, predictor, records, size, **how: seen.append(size))
    monkeypatch.setattr("sys.stdin", Input(typed))
    (tmp_path / "inputs.txt").write_text("a\nb\n")
    monkeypatch.chdir(tmp_path)
    options = {"jsonl": False, "alignment": False, "stream": False, "whole": False, "device": "cpu"}
    options |= dict.fromkeys(["n_best", "beam", "decoding", "max_new_tokens", "stop", "gap"])
    module.predict(tmp_path, name, precision="auto", **options)
    assert seen == [size]


class Loaded:
    """As much of a run as is asked here."""

    class recipe:
        decoding = None

    class kind:
        reads_words = False

        @staticmethod
        def pictures(recipe):
            return ()

        @staticmethod
        def inputs(recipe):
            return ("text",)

    def predictor(self, **asked):
        return None
