from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from heedful.config import Config
from heedful.errors import RequestError
from heedful.recipes.problems import explain_errors, validate
from heedful.recipes.resolve import overrides_tree
from heedful.recipes.trees import Mark, Tree, merge
from heedful.recipes.yaml import read_yaml


class Transformer(Config):
    kind: Literal["transformer"]
    d_model: int = 128
    n_heads: Annotated[int, Field(ge=1)] = 4
    norm: Literal["pre", "post"] = "pre"
    dropout: float = Field(0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def divides(self):
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} cannot be split into {self.n_heads} heads")
        return self


class Recurrent(Config):
    kind: Literal["lstm", "gru"]
    hidden: int


class Source(Config):
    path: Path
    weight: float = 1.0


class Training(Config):
    seed: int = 1
    updates: int | Literal["all"] = "all"
    betas: tuple[float, float] = (0.9, 0.98)
    compile: bool = False
    name: str = "run"
    stop: list[int] | None = None


Model = Annotated[Transformer | Recurrent, Field(discriminator="kind")]


class Recipe(Config):
    model: Model
    second: Model | None = None
    training: Training = Training()
    sources: tuple[Source, ...] = ()
    tests: dict[str, Source] = Field(default_factory=dict)
    stack: list[Model] = Field(default_factory=list)


GOOD = """\
model:
  kind: transformer
  d_model: 60
training:
  betas: [0.9, 0.98]
sources:
  - path: a.txt
  - {path: b.txt, weight: 2}
tests: {flickr: {path: c.txt}}
stack:
  - kind: gru
    hidden: 7
"""


def test_a_good_tree_becomes_a_configuration():
    recipe = validate(read_yaml(GOOD, "r.yaml"), Recipe)
    assert recipe.model == Transformer(kind="transformer", d_model=60)
    assert recipe.training.betas == (0.9, 0.98)
    assert recipe.sources == (Source(path=Path("a.txt")), Source(path=Path("b.txt"), weight=2.0))
    assert recipe.tests == {"flickr": Source(path=Path("c.txt"))}
    assert recipe.stack == [Recurrent(kind="gru", hidden=7)]


def test_a_union_may_be_the_root():
    tree = read_yaml("kind: lstm\nhidden: 5\n", "r.yaml")
    assert validate(tree, Model) == Recurrent(kind="lstm", hidden=5)
    with pytest.raises(RequestError, match=r"^r\.yaml:2: hiden: unknown key \(did you mean 'hidden'\?\)"):
        validate(read_yaml("kind: lstm\nhiden: 5\nhidden: 3\n", "r.yaml"), Model)


M = "model: {kind: transformer}\n"
KINDS = "the kinds are gru, lstm, transformer"
OF_TRAINING = "; the keys here are seed, updates, betas, compile, name, stop"
KEYS = "the keys here are model, second, training, sources, tests, stack"
WRONG = {
    "unknown key": (
        "model:\n  kind: transformer\n  d_modle: 8\n",
        ["r.yaml:3: model.d_modle: unknown key (did you mean 'd_model'?)"],
    ),
    "unknown key, nothing near": (
        "model:\n  kind: gru\n  hidden: 8\n  zzz: 8\n",
        ["r.yaml:4: model.zzz: unknown key; the keys here are kind, hidden"],
    ),
    "unknown key at the top": (
        M + "trainig: 3\n",
        ["r.yaml:2: trainig: unknown key (did you mean 'training'?)"],
    ),
    "unknown key in a list of unions": (
        M + "stack:\n- kind: gru\n  hiden: 3\n  hidden: 3\n",
        ["r.yaml:4: stack.0.hiden: unknown key (did you mean 'hidden'?)"],
    ),
    "unknown key in an optional union": (
        M + "second:\n  kind: transformer\n  n_head: 3\n",
        ["r.yaml:4: second.n_head: unknown key (did you mean 'n_heads'?)"],
    ),
    "unknown key in a map of maps": (
        M + "tests:\n  a: {path: x}\n  b:\n    path: y\n    wieght: 1\n",
        ["r.yaml:6: tests.b.wieght: unknown key (did you mean 'weight'?)"],
    ),
    "wrong kind": (
        "model:\n  kind: transfomer\n",
        ["r.yaml:2: model.kind: unknown kind 'transfomer' (did you mean 'transformer'?); " + KINDS],
    ),
    "no kind": ("model:\n  hidden: 1\n", ["r.yaml:1: model.kind: required key is missing; " + KINDS]),
    "no kind in an optional union": (
        M + "second: {}\n",
        ["r.yaml:2: second.kind: required key is missing; " + KINDS],
    ),
    "no model": (
        "\n\ntraining: {}\n",
        [
            f"r.yaml:3: model: required key is missing; write model: {{kind: …}}; {KINDS}; "
            "a complete recipe to copy: heedful recipes my-own-…"
        ],
    ),
    "missing": ("model:\n  kind: gru\n", ["r.yaml:1: model.hidden: required key is missing"]),
    "not a whole number": (
        M + "training:\n  seed: x\n",
        ["r.yaml:3: training.seed: expected a whole number, got 'x'"],
    ),
    "a fraction": (
        M + "training: {seed: 1.0}\n",
        ["r.yaml:2: training.seed: expected a whole number, got 1.0; write 1"],
    ),
    "true is no number": (
        M + "training: {seed: true}\n",
        ["r.yaml:2: training.seed: expected a whole number, got true"],
    ),
    "a list for a number": (
        M + "training: {seed: [1]}\n",
        ["r.yaml:2: training.seed: expected a whole number, got a list"],
    ),
    "a scalar for a map": (
        M + "training: 3\n",
        [f"r.yaml:2: training: expected a map, got 3{OF_TRAINING}"],
    ),
    "null for a map": (M + "training:\n", [f"r.yaml:2: training: expected a map, got null{OF_TRAINING}"]),
    "yes for true": (
        M + "training: {compile: yes}\n",
        ["r.yaml:2: training.compile: expected true or false, got 'yes'"],
    ),
    "a number for text": (
        M + "training: {name: 3}\n",
        ["r.yaml:2: training.name: expected text, got 3 (for text, put it in quotes)"],
    ),
    "a plain union": (
        M + "training: {updates: some}\n",
        ["r.yaml:2: training.updates: expected a whole number or 'all', got 'some'"],
    ),
    "an optional list": (M + "training: {stop: 3}\n", ["r.yaml:2: training.stop: expected a list, got 3"]),
    "in an optional list": (
        M + "training:\n  stop:\n    - 1\n    - x\n",
        ["r.yaml:5: training.stop.1: expected a whole number, got 'x'"],
    ),
    "a short pair": (
        M + "training: {betas: [1]}\n",
        ["r.yaml:2: training.betas.1: required entry is missing"],
    ),
    "a long pair": (
        M + "training: {betas: [1, 2, 3]}\n",
        ["r.yaml:2: training.betas: expected at most 2 entries, got 3"],
    ),
    "a literal": (
        "model:\n  kind: transformer\n  norm: pst\n",
        ["r.yaml:3: model.norm: expected 'pre' or 'post', got 'pst' (did you mean 'post'?)"],
    ),
    "bounds": (
        "model:\n  kind: transformer\n  n_heads: 0\n  dropout: 1.0\n",
        [
            "r.yaml:3: model.n_heads: expected a number of at least 1, got 0",
            "r.yaml:4: model.dropout: expected a number less than 1.0, got 1.0",
        ],
    ),
    "a validator's own words": (
        "model:\n  kind: transformer\n  d_model: 10\n",
        ["r.yaml:3: model: d_model 10 cannot be split into 4 heads"],
    ),
    "a required key that is misspelt": (
        "model:\n  kind: gru\n  hiden: 3\n",
        ["r.yaml:3: model.hiden: unknown key; kind gru uses hidden"],
    ),
    "text in place of a section": (
        "model: gruh\n",
        [f"r.yaml:1: model: expected a map, got 'gruh'; write model: {{kind: …}}; {KINDS}"],
    ),
    "a kind in place of a section": ("model: gru\n", ["r.yaml:1: model.hidden: required key is missing"]),
    "in the order of the lines": (
        "training: {seed: x}\nmodel: {kind: gru, hidden: y}\n",
        [
            "r.yaml:1: training.seed: expected a whole number, got 'x'",
            "r.yaml:2: model.hidden: expected a whole number, got 'y'",
        ],
    ),
    "many": (
        "model:\n  kind: gru\n  hiden: 3\ntraining:\n  seed: x\n  sed: 1\n",
        [
            "r.yaml:3: model.hiden: unknown key; kind gru uses hidden",
            "r.yaml:5: training.seed: expected a whole number, got 'x'",
            "r.yaml:6: training.sed: unknown key (did you mean 'seed'?)",
        ],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_are_told_by_file_line_and_key(case):
    text, lines = WRONG[case]
    with pytest.raises(RequestError) as caught:
        validate(read_yaml(text, "r.yaml"), Recipe)
    assert str(caught.value).split("\n") == lines


@pytest.mark.parametrize("case", ["unknown key", "wrong kind", "no kind", "a fraction", "many", "a literal"])
def test_errors_of_plain_data_are_told_alike(case):
    text, lines = WRONG[case]
    tree = read_yaml(text, "r.yaml")
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Recipe).validate_python(tree.data)
    assert str(explain_errors(caught.value, tree, Recipe)).split("\n") == lines


OVERRIDDEN = {
    "model.d_modle=8": "model.d_modle=8: unknown key (did you mean 'd_model'?)",
    "training.seed=x": "training.seed=x: expected a whole number, got 'x'",
    "training.seed=5e-1": "training.seed=0.5: expected a whole number, got 0.5",
    "training.seed.deep=3": "training.seed: expected a whole number, got a map",
    "nothing.like.this=1": "nothing: unknown key; " + KEYS,
    "model.kind=lstn": "model.kind=lstn: unknown kind 'lstn' (did you mean 'lstm'?); " + KINDS,
    "model.kind=lstm": "model.hidden: required key is missing",
    "model={kind: gru, hidden: x}": "model.hidden=x: expected a whole number, got 'x'",
    "sources.1.weight=no": "sources.1.weight=\"no\": expected a number, got 'no'",
}


@pytest.mark.parametrize("text", OVERRIDDEN)
def test_errors_of_overrides_are_told_as_such(text):
    with pytest.raises(RequestError) as caught:
        validate(merge(read_yaml(GOOD, "r.yaml"), overrides_tree([text])), Recipe)
    assert str(caught.value) == f"on the command line: {OVERRIDDEN[text]}"


def test_errors_of_presets_are_told_as_such():
    tree = Tree.of({"model": {"kind": "gru", "hidden": "x"}}, Mark("preset small"))
    with pytest.raises(
        RequestError, match=r"^preset small: model\.hidden: expected a whole number, got 'x'$"
    ):
        validate(tree, Recipe)
