"""The folders that import and export write to: nothing that another process makes there is lost."""

import shutil

import pytest

from heedful.artifacts.run_folder import locked
from heedful.errors import RequestError
from heedful.interop import conversion
from heedful.interop.conversion import export_run, import_run


@pytest.fixture(params=["import", "export"])
def write(request, gpt2, tmp_path):
    """Imports or exports to a folder, with the function that it calls after its first check."""
    if request.param == "import":
        return lambda out: import_run(gpt2, out), (conversion, "format_of")
    run = import_run(gpt2, tmp_path / "made").path
    return lambda out: export_run(run, "gpt2", out), (conversion, "load_run")


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_source_whose_name_the_recipe_cannot_hold_is_refused(gpt2, tmp_path):
    source = tmp_path / b"\xff".decode("utf-8", "surrogateescape")
    shutil.copytree(gpt2, source)
    with pytest.raises(RequestError, match="the folder name must be UTF-8"):
        import_run(source, tmp_path / "out")


def test_a_run_that_another_process_finishes_meanwhile_stays(write, tmp_path, monkeypatch):
    act, (module, name) = write
    out, original = tmp_path / "out", getattr(module, name)

    def meanwhile(*arguments, **settings):
        out.mkdir()
        (out / "run.json").write_text("{}")
        return original(*arguments, **settings)

    monkeypatch.setattr(module, name, meanwhile)
    with pytest.raises(RequestError, match=r"out: must be empty, but contains 'run.json'"):
        act(out)
    assert content(out) == {out / "run.json": b"{}"}


def test_a_folder_that_another_process_holds_is_refused(write, tmp_path):
    act, _ = write
    out = tmp_path / "out"
    with locked(out):
        with pytest.raises(RequestError, match="out: locked by another process that writes to it"):
            act(out)
        assert out.is_dir()
    act(out)


def test_a_folder_that_was_empty_is_left_empty_by_a_failure(write, tmp_path, monkeypatch):
    act, _ = write

    def full(*arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("heedful.artifacts.weights.save_file", full)
    monkeypatch.setattr("heedful.interop.checkpoint.save_file", full)
    (tmp_path / "out").mkdir()
    with pytest.raises(Exception, match="cannot be written"):
        act(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
