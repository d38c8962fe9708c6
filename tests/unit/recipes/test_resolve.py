import re
import shlex
import subprocess
import sys

import pytest

from heedful.errors import RequestError
from heedful.recipes.resolve import (
    folder_of,
    overrides_of,
    overrides_tree,
    parse_override,
    resolve,
    shipped_recipes,
)
from heedful.recipes.yaml import dump_yaml, read_yaml

PRESETS = {
    "tiny": {"kind": "transformer", "d_model": 128, "tied": True},
    "base": {"kind": "transformer", "d_model": 512},
    "recurrent": {"kind": "rnn", "hidden": 64},
}

OVERRIDES = {
    "training.optimizer.lr=5e-4": (("training", "optimizer", "lr"), 5e-4),
    "seed=3": (("seed",), 3),
    "data.train.0.path=a.txt": (("data", "train", 0, "path"), "a.txt"),
    "a=no": (("a",), "no"),
    "a=true": (("a",), True),
    "a=null": (("a",), None),
    "a=''": (("a",), ""),
    "a='5e-4'": (("a",), "5e-4"),
    "a=[1, .5, x]": (("a",), [1, 0.5, "x"]),
    "a={kind: gru, n: 2}": (("a",), {"kind": "gru", "n": 2}),
    "a=x=y": (("a",), "x=y"),
    "a=b: c # d": (("a",), "b: c # d"),
    "a=*x": (("a",), "*x"),
    "a= - 3 ": (("a",), "- 3"),
}


@pytest.mark.parametrize("text", OVERRIDES)
def test_overrides_are_read(text):
    path, value = parse_override(text)
    assert (path, value, type(value)) == (*OVERRIDES[text], type(OVERRIDES[text][1]))


WRONG_OVERRIDES = {
    "seed": "'seed': expected KEY=VALUE; write seed=VALUE",
    "=3": "'=3': expected a key such as training.seed or data.train.0",
    "a..b=3": "'a..b=3': expected a key such as",
    "a.=3": "'a.=3': expected a key such as",
    "a b=3": "'a b=3': expected a key such as",
    "a[0]=3": "'a[0]=3': expected a key such as training.seed or data.train.0",
    "a=": "'a=': the value is missing; write null or '' for none",
    "a= ": "'a= ': the value is missing",
    "a=[1": "a:1:1: the '[' opened here is never closed",
    "a={": "a:1:1: the '{' opened here is never closed",
    "a={b: 1, b: 2}": "a:1:8: duplicate key 'b'",
    "a=[1] 2": "a:1:5: ",
    "a=1e999": "a: value out of range: 1e999",
    "base=x": "'base=x': base cannot be overridden; name the other recipe instead",
}


@pytest.mark.parametrize("text", WRONG_OVERRIDES)
def test_malformed_overrides_are_refused(text):
    with pytest.raises(RequestError) as caught:
        overrides_tree([text])
    assert str(caught.value).startswith(f"on the command line: {WRONG_OVERRIDES[text]}")


@pytest.mark.parametrize("texts", [["training.seed: 5"], ["training.seed:", "5"], ["training.seed", "5"]])
def test_the_correct_form_of_an_override_is_shown(texts):
    with pytest.raises(RequestError, match=r"expected KEY=VALUE; write training\.seed=5$"):
        overrides_tree(texts)


def test_overrides_are_one_layer_in_any_order():
    texts = ["model.kind=rnn", "model.hidden=32", "data.train.1.path=x", "data.train.0.path=y", "seed=1"]
    expected = {
        "model": {"kind": "rnn", "hidden": 32},
        "data": {"train": {0: {"path": "y"}, 1: {"path": "x"}}},
        "seed": 1,
    }
    assert overrides_tree(texts).data == overrides_tree(texts[::-1]).data == expected


@pytest.mark.parametrize("key", ["training.seed=3", "training.seed="])
def test_a_key_of_overrides_in_python_has_no_value_in_it(key):
    with pytest.raises(RequestError) as caught:
        overrides_of({key: 5})
    assert (
        str(caught.value) == f"overrides: {key!r}: expected a key without '='; write {{'training.seed': 5}}"
    )


def test_of_two_overrides_of_one_thing_the_last_holds():
    assert overrides_tree(["a.b=1", "a.b=2"]).data == {"a": {"b": 2}}
    assert overrides_tree(["a.b=1", "a=2"]).data == {"a": 2}


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_preset_then_file_then_overrides(write):
    path = write("r.yaml", "model:\n  preset: tiny\n  d_model: 64\n  dropout: 0.1\nseed: 1\n")
    assert resolve(path, presets=PRESETS).data == {
        "model": {"kind": "transformer", "d_model": 64, "tied": True, "dropout": 0.1},
        "seed": 1,
    }
    tree = resolve(path, ["model.dropout=.3", "seed=2"], presets=PRESETS)
    assert tree.data["model"] == {"kind": "transformer", "d_model": 64, "tied": True, "dropout": 0.3}
    assert tree.data["seed"] == 2
    sources = {key: str(item.mark) for key, item in tree.value["model"].value.items()}
    expected = {
        "kind": "preset tiny",
        "d_model": f"{path}:3",
        "tied": "preset tiny",
        "dropout": "on the command line",
    }
    assert sources == expected
    assert str(tree.mark_of(("model",))) == f"{path}:1"


def test_a_preset_on_the_command_line_leaves_nothing_of_the_file_s_model(write):
    path = write("r.yaml", "model: {preset: tiny, d_model: 64, dropout: 0.1}\n")
    model = resolve(path, ["model.heads=2", "model.preset=base"], presets=PRESETS).data["model"]
    assert model == {"kind": "transformer", "d_model": 512, "heads": 2}


def test_a_kind_on_the_command_line_leaves_nothing_of_the_file_s_preset(write):
    path = write("r.yaml", "model: {preset: tiny, dropout: 0.1}\n")
    model = resolve(path, ["model.hidden=5", "model.kind=rnn"], presets=PRESETS).data["model"]
    assert model == {"kind": "rnn", "hidden": 5}


def test_bases_lie_below_and_their_paths_count_from_their_file(write):
    write("shared/low.yaml", "seed: 1\nmodel: {preset: tiny}\ndata: {train: [a, b]}\n")
    write("shared/middle.yaml", "base: low.yaml\nseed: 2\nmodel: {dropout: 0.2}\n")
    path = write("mine/top.yaml", "base: ../shared/middle.yaml\ndata: {valid: c}\n")
    tree = resolve(path, ["data.train.1=d"], presets=PRESETS)
    assert tree.data == {
        "seed": 2,
        "model": {"kind": "transformer", "d_model": 128, "tied": True, "dropout": 0.2},
        "data": {"train": ["a", "d"], "valid": "c"},
    }
    assert tree.mark_of(("seed",)).line == 2
    assert tree.mark_of(("seed",)).source.endswith("middle.yaml")
    assert tree.mark.source == str(path)


def test_a_shipped_recipe_goes_by_its_name_and_may_be_a_base(write):
    shipped = {"small": write("package/small.yaml", "seed: 1\na: 2\n")}
    assert resolve("small", ["seed=3"], presets=PRESETS, shipped=shipped).data == {"seed": 3, "a": 2}
    assert str(resolve("small", presets=PRESETS, shipped=shipped).mark) == "small.yaml:1"
    path = write("mine.yaml", "base: small\na: 5\n")
    assert resolve(str(path), presets=PRESETS, shipped=shipped).data == {"seed": 1, "a": 5}


def refusal(*args, **kwargs):
    with pytest.raises(RequestError) as caught:
        resolve(*args, presets=PRESETS, **kwargs)
    return str(caught.value)


def test_an_unknown_name_gets_the_nearest_and_the_list(write):
    shipped = {name: write(f"{name}.yaml", "a: 1\n") for name in ("multi30k", "phrasebook")}
    listed = "; shipped recipes: multi30k, phrasebook; the name of a file must end in .yaml"
    assert refusal("phrasbook", shipped=shipped) == (
        "unknown recipe 'phrasbook' (did you mean 'phrasebook'?)" + listed
    )
    assert refusal("zzz", shipped=shipped) == "unknown recipe 'zzz'" + listed
    path = write("mine.yaml", "\nbase: multi30\n")
    wanted = f"{path}:2: base: unknown recipe 'multi30' (did you mean 'multi30k'?){listed}"
    assert refusal(path, shipped=shipped) == wanted


GIVE = "give a .yaml file, or the name of a shipped recipe ('heedful recipes' lists them)"


@pytest.mark.parametrize("name", ["my tickets.csv", "a.JSONL", "a.tsv.gz", "a.conll", "a.parquet"])
def test_data_are_not_a_recipe(write, monkeypatch, name):
    monkeypatch.chdir(write(name, "a,b\n").parent)
    command = f"heedful train my-own-labels --data {shlex.quote(name)} --column text=NAME --column label=NAME"
    assert command in refusal(name)
    with pytest.raises(RequestError, match=f"to train on it, write --data {re.escape(shlex.quote(name))}$"):
        parse_override(name)


def test_a_file_with_another_suffix_is_to_be_renamed(write, monkeypatch):
    monkeypatch.chdir(write("base.json", "{}").parent)
    assert refusal("base.json") == (
        "base.json: a recipe must be a .yaml file (JSON is valid YAML: rename it to base.yaml)"
    )
    write("base.txt", "")
    assert refusal("base.txt") == "base.txt: a recipe must be a .yaml file (rename it to base.yaml)"
    write("base.yaml", "")
    assert refusal("base.yml") == "base.yml: no such file (did you mean 'base.yaml'?)"


def test_the_suffix_of_a_recipe_may_be_in_upper_case(write, tmp_path, monkeypatch):
    write("elsewhere/R.YAML", "seed: 1\n")
    assert resolve(str(tmp_path / "elsewhere/R.YAML"), presets=PRESETS).data == {"seed": 1}
    assert folder_of(tmp_path / "elsewhere/R.YAML") == tmp_path / "elsewhere"
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resolve("R.YAML", presets=PRESETS).data == {"seed": 1}


def test_missing_and_unreadable_files_are_named(write, tmp_path):
    assert refusal(tmp_path / "no.yaml") == f"{tmp_path}/no.yaml: no such file"
    assert refusal(f"{tmp_path}/") == f"{tmp_path}: is a folder, not a recipe; {GIVE}"
    assert refusal(".") == f".: is a folder, not a recipe; {GIVE}"
    path = tmp_path / "latin.yaml"
    path.write_bytes("a: 1\nb: é\n".encode("latin-1"))
    assert refusal(path) == (
        f"{path}:2: expected UTF-8 text; the file is probably Windows-1252 (Western European), as Excel "
        f"and older Windows programs save it; convert it: iconv -f WINDOWS-1252 -t UTF-8 {path} > NEW"
    )
    path.write_bytes("a: 1\n".encode("utf-16"))
    assert refusal(path).startswith(f"{path}:1: expected UTF-8 text; the file is probably UTF-16; convert it")
    path = write("r.yaml", "base: gone.yaml\n")
    assert refusal(path) == f"{path}:1: base: {tmp_path}/gone.yaml: no such file"
    path = write("r.yaml", "base: [x]\n")
    assert refusal(path) == f"{path}:1: base: expected a recipe's name or path, got a list"


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_bytes("a: 1\n".encode("utf-8-sig"))
    assert resolve(path, presets=PRESETS).data == {"a": 1}


def test_cycles_of_bases_are_refused(write, tmp_path):
    first = write("a.yaml", "x: 1\nbase: b.yaml\n")
    second = write("b.yaml", "base: ./a.yaml\n")
    way = f"{first} -> {second} -> {tmp_path}/a.yaml"
    assert refusal(first) == f"{second}:1: base: circular: {way}"
    own = write("c.yaml", "base: c.yaml\n")
    assert refusal(own) == f"{own}:1: base: circular: {own} -> {own}"


def test_an_override_of_a_list_entry_that_is_not_there(write):
    path = write("r.yaml", "data: {train: [a]}\n")
    assert refusal(path, ["data.train.1=b"]) == (
        "on the command line: data.train.1: index out of range: the list has length 1"
    )
    assert refusal(path, ["data.test.0=b"]) == (
        "on the command line: data.test.0: 'data.test' is not a list, so it has no index"
    )


def test_an_empty_map_that_would_change_nothing_is_refused(write):
    path = write("r.yaml", "data: {train: {a: 1, b: 2}, filter: null, valid: {}}\n")
    assert refusal(path, ["data.train={}"]) == (
        "on the command line: data.train={}: has no effect: maps are merged key by key, and the recipe has "
        "a, b there; set those, or write data.train=null if the key is optional"
    )
    found = resolve(path, ["data.filter={}", "data.valid={}", "own={}"], presets=PRESETS).data
    assert (found["data"]["filter"], found["own"]) == ({}, {})


@pytest.mark.parametrize("key", ["test", "split"])
@pytest.mark.parametrize("empty", ["{}", "null"])
def test_an_empty_map_of_names_removes_all(write, key, empty):
    base = write("r.yaml", f"data: {{{key}: {{a: 1, b: 2}}, train: {{c: 3}}}}\n")
    derived = write("d.yaml", f"base: {base}\ndata: {{{key}: {empty}}}\n")
    for recipe, overrides in ((derived, []), (base, [f"data.{key}={empty}"])):
        found = resolve(recipe, overrides, presets=PRESETS).data["data"]
        assert (found[key] or {}, found["train"]) == ({}, {"c": 3})
    again = resolve(derived, [f"data.{key}.c=3"], presets=PRESETS).data["data"]
    assert again[key] == {"c": 3}


def test_the_resolved_tree_written_out_resolves_to_itself(write):
    path = write("r.yaml", "model: {preset: tiny}\nlr: 5e-4\n")
    tree = resolve(path, ["model.dropout=1e-9"], presets=PRESETS)
    again = write("again.yaml", dump_yaml(tree))
    assert resolve(again, presets=PRESETS).data == tree.data == read_yaml(dump_yaml(tree), "x").data


def test_shipped_recipes_can_all_be_read():
    for name, file in shipped_recipes().items():
        assert isinstance(read_yaml(file.read_text(encoding="utf-8"), name).data, dict)


def test_reading_recipes_needs_no_torch():
    code = "import sys, heedful.recipes.resolve, heedful.recipes.problems; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_home_of_nobody_is_no_such_file():
    with pytest.raises(RequestError, match=r"^~nobody-is-called-so/x\.yaml: no such file$"):
        resolve("~nobody-is-called-so/x.yaml", presets=PRESETS)


def test_an_override_that_is_not_utf_8_is_told_as_such():
    with pytest.raises(RequestError, match=r"on the command line: .*expected UTF-8"):
        overrides_tree([b"data.train.paths=\xff.txt".decode("utf-8", "surrogateescape")])
