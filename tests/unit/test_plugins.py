"""What a person names as a plugin, and which modules a recipe can refer to then."""

import importlib.metadata
import os
import py_compile
import subprocess
import sys

import pytest

from heedful import plugins
from heedful.errors import RequestError
from heedful.plugins import PluginError, allow_plugins, allowed_plugins, imported

NAMES = ("pack_of_mine", "file_of_mine", "bad_of_mine", "script_of_mine")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a package, a file, and what must not run: all of which log that they ran."""
    log = "import builtins\nbuiltins.ran_of_mine.append(__name__)\n"
    package = tmp_path / "pack_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text(f"{log}from pack_of_mine import scores\n")
    for name in ("scores", "script", "__main__"):
        (package / f"{name}.py").write_text(f"{log}class Score: pass\n")
    (tmp_path / "file_of_mine.py").write_text(f"{log}class Score: pass\n")
    (tmp_path / "bad_of_mine.py").write_text("\n\nint('x')\n")
    (tmp_path / "script_of_mine.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr("builtins.ran_of_mine", [], raising=False)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in NAMES]:
        del sys.modules[name]


@pytest.fixture
def installed(folder, monkeypatch):
    """The same, where an installed package is."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder.parent)
    return folder


def ran():
    import builtins

    return builtins.ran_of_mine


def refused(module, reference="it"):
    with pytest.raises(PluginError) as raised:
        imported(module, reference)
    return str(raised.value)


def test_a_file_is_named_by_its_path_alone(folder):
    allow_plugins(["file_of_mine"])
    assert refused("file_of_mine") == (
        "it: cannot import file_of_mine: no package of that name is installed; a file is named by its path: "
        "--plugin ./file_of_mine.py, or plugins=['./file_of_mine.py'] in Python"
    )
    assert ran() == []
    allow_plugins(["./file_of_mine.py"])  # the remedy
    assert imported("file_of_mine", "it").Score.__module__ == "file_of_mine"
    assert os.environ[plugins.VARIABLE] == str(folder / "file_of_mine.py")  # for other processes
    assert imported("file_of_mine", "it") is sys.modules["file_of_mine"]
    assert ran() == ["file_of_mine"]


@pytest.mark.parametrize("name", ["./file_of_mine.py", "file_of_mine.py", "./pack_of_mine", "pack_of_mine/"])
def test_paths_are_told_from_names_by_their_form(name, folder):
    allow_plugins([name])
    (module,) = allowed_plugins()
    assert imported(module, "it").__file__.startswith(str(folder))


def test_the_remedy_of_what_is_not_named_works(folder):
    for module, name in (("file_of_mine", "./file_of_mine.py"), ("pack_of_mine", "./pack_of_mine")):
        assert refused(module, f"{module}:X") == (
            f"{module}:X would import the module '{module}', which was not named as a plugin; if you trust "
            f"it, add --plugin {name}, or plugins=['{name}'] in Python"
        )
        allow_plugins([name])
        imported(module, "it")


def test_an_installed_package_is_not_replaced_by_a_file_of_the_current_folder(
    installed, tmp_path, monkeypatch
):
    other = tmp_path / "other"
    other.mkdir()
    (other / "file_of_mine.py").write_text("1 / 0\n")
    monkeypatch.chdir(other)
    assert "add --plugin file_of_mine, or" in refused("file_of_mine")
    allow_plugins(["./file_of_mine.py"])
    assert f"has the name of {installed}/file_of_mine.py; rename it" in refused("file_of_mine")
    assert "file_of_mine" not in sys.modules


@pytest.mark.parametrize("named", ["pack_of_mine", "./pack_of_mine"])
def test_a_recipe_refers_to_modules_that_the_package_imports(named, folder, request):
    if named == "pack_of_mine":
        request.getfixturevalue("installed")
    allow_plugins([named])
    assert imported("pack_of_mine.scores", "it").__name__ == "pack_of_mine.scores"
    for module in ("script", "__main__"):
        assert refused(f"pack_of_mine.{module}") == (
            f"it: the plugin pack_of_mine does not import pack_of_mine.{module}; if you trust that module, "
            f"add --plugin pack_of_mine.{module}, or plugins=['pack_of_mine.{module}'] in Python"
        )
    assert refused("pack_of_mine.nothing") == "it: there is no module pack_of_mine.nothing"
    assert refused("pack_of_mine.scores.x") == "it: there is no module pack_of_mine.scores.x"
    assert "does not import pack_of_mine.script.x" in refused("pack_of_mine.script.x")
    assert ran() == ["pack_of_mine", "pack_of_mine.scores"]
    allow_plugins(["pack_of_mine.script"])  # the remedy
    assert imported("pack_of_mine.script", "it").__name__ == "pack_of_mine.script"


def test_a_module_that_is_named_does_not_allow_its_package(installed):
    allow_plugins(["pack_of_mine.script"])
    assert "add --plugin pack_of_mine.scores," in refused("pack_of_mine.scores")
    assert "add --plugin pack_of_mine," in refused("pack_of_mine")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "expected the name of a Python package or module, or the path of a file"),
        ("my-package", "expected the name of a Python package or module, or the path of a file"),
        ("./my-file.py", "expected the name of a Python package or module, or the path of a file"),
        ("./a.b.py", "expected the name of a Python package or module, or the path of a file"),
        ("pack_of_mine:scores", "expected the name of a Python package or module, or the path of a file"),
        ("./none_of_mine.py", r"no such file: .*/none_of_mine\.py"),
        ("./none/of_mine", "no such file: .*/of_mine"),
        ("./empty_of_mine", r"no such file: .*/empty_of_mine/__init__\.py"),
        ("os", "that is a module of Python or of heedful itself; name a package of yours"),
        ("importlib.util", "that is a module of Python or of heedful itself; name a package of yours"),
        ("builtins", "that is a module of Python or of heedful itself; name a package of yours"),
        ("__main__", "that is a module of Python or of heedful itself; name a package of yours"),
        ("heedful", "that is a module of Python or of heedful itself; name a package of yours"),
        ("heedful.nn", "that is a module of Python or of heedful itself; name a package of yours"),
        ("./json.py", "that is a module of Python or of heedful itself; rename it"),
        ("./a,b/file_of_mine.py", "its path must not have a comma"),
    ],
)
@pytest.mark.parametrize("way", ["named", "environment"])
def test_names_that_are_no_plugins_are_refused(way, name, message, folder, monkeypatch):
    (folder / "empty_of_mine").mkdir()
    (folder / "json.py").write_text("")
    (folder / "a,b").mkdir()
    (folder / "a,b" / "file_of_mine.py").write_text("")
    if way == "environment":
        if not name or "," in name:
            return  # there it is no plugin, or two
        monkeypatch.setenv(plugins.VARIABLE, name)
    call = allowed_plugins if way == "environment" else lambda: allow_plugins([name])
    with pytest.raises(RequestError, match=message):
        call()


def test_two_files_of_one_name_are_refused(folder):
    (folder / "other").mkdir()
    (folder / "other" / "file_of_mine.py").write_text("")
    allow_plugins(["./file_of_mine.py", "./file_of_mine.py", "file_of_mine"])
    with pytest.raises(RequestError, match=r"has the name of the plugin .*/file_of_mine.py; rename one"):
        allow_plugins(["other/file_of_mine.py"])
    imported("file_of_mine", "it")
    os.environ[plugins.VARIABLE] = "other/file_of_mine.py"
    assert "has the name of" in refused("file_of_mine")


def test_what_is_raised_by_a_file_is_named_with_its_line(folder):
    allow_plugins(["./bad_of_mine.py", "./script_of_mine.py"])
    assert refused("bad_of_mine") == (
        "it: cannot import bad_of_mine: ValueError: invalid literal for int() with base 10: 'x' (raised at "
        f"{folder}/bad_of_mine.py:3)"
    )
    assert refused("script_of_mine").startswith("it: cannot import script_of_mine: SystemExit: 0 (raised at")
    assert {"bad_of_mine", "script_of_mine"}.isdisjoint(sys.modules)


def test_the_compiled_form_beside_a_file_is_not_run(folder):
    source = folder / "file_of_mine.py"
    hidden = folder / "hidden.py"
    hidden.write_text("raise SystemExit('hidden')\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    (folder / "__pycache__").mkdir()
    compiled = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(hidden), cfile=compiled, invalidation_mode=mode)
    command = [sys.executable, "-c", "import file_of_mine"]
    assert b"hidden" in subprocess.run(command, check=False, capture_output=True).stderr  # as Python does it
    allow_plugins(["./file_of_mine.py"])
    assert imported("file_of_mine", "it").Score


def distribution(folder, package):
    entry = folder / f"{package}-1.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (entry / "entry_points.txt").write_text(f"[heedful.plugins]\nany = {package}\nother = os\n")


def test_installed_distributions_declare_plugins_and_those_of_the_current_folder_do_not(
    folder, tmp_path_factory, monkeypatch
):
    site = tmp_path_factory.mktemp("site")
    distribution(site, "file_of_mine")
    distribution(folder, "pack_of_mine")
    (folder / "file_of_mine.py").rename(site / "file_of_mine.py")
    monkeypatch.setattr(sys, "path", ["", str(folder), str(site), *sys.path])
    found = {entry.value for entry in importlib.metadata.entry_points(group=plugins.GROUP)}
    assert found >= {"file_of_mine", "pack_of_mine", "os"}
    plugins._installed_plugins.cache_clear()
    try:
        assert imported("file_of_mine", "it").Score
        assert "was not named as a plugin" in refused("pack_of_mine")
        assert not plugins.is_allowed("os")
        (folder / "program.py").write_text("")
        monkeypatch.chdir(site)
        monkeypatch.setattr(sys.modules["__main__"], "__file__", str(folder / "program.py"), raising=False)
        plugins._installed_plugins.cache_clear()
        assert "was not named as a plugin" in refused("pack_of_mine")
    finally:
        plugins._installed_plugins.cache_clear()
    assert ran() == ["file_of_mine"]


@pytest.mark.parametrize("module", ["os", "heedful.interop.conversion", "heedful", "subprocess", "builtins"])
def test_modules_of_python_and_of_heedful_are_no_parts(module, folder, monkeypatch):
    assert "expected an import path of your own part, got one of Python or of heedful" in refused(module)
