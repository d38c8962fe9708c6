"""Every file of a run is crafted, with hashes that fit: a verb works, or an error of heedful names the file.

What a run folder holds may come from anywhere: a broken disk, another program, somebody else. For each
file, each place in it and each change of `crafting`, the verbs that read the file end without another
exception.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from crafting import RAW, TENSORS, changes, seal
from tiers import sampled
from tiny_runs import TASKS, make

import heedful
from heedful.api.training import train_into
from heedful.artifacts.run_folder import TUNED, RunFolder
from heedful.errors import DamagedError, HeedfulError
from heedful.files import parse_json
from heedful.recipes.resolve import overrides_tree
from heedful.runs.reading import saved_recipe, saved_tree
from heedful.tasks import calibration, regression
from heedful.tasks.calibration import Calibration
from heedful.tasks.metrics.spans import SCHEMES
from heedful.tasks.tagging import Tagging


def given(kind: str, run: heedful.Run) -> object:
    """An input of the task."""
    return run.recipe.folder / "1.png" if kind == "image-classification" else "a b"


def predict(kind: str, folder: Path) -> None:
    run = heedful.load(folder, device="cpu")
    run.predict([given(kind, run)])


def evaluate(kind: str, folder: Path) -> None:
    heedful.load(folder, device="cpu").evaluate("valid")


def explain(kind: str, folder: Path) -> None:
    run = heedful.load(folder, device="cpu")
    run.explain(given(kind, run))


def embed(kind: str, folder: Path) -> None:
    run = heedful.load(folder, device="cpu")
    run.embed([given(kind, run)])


def score(kind: str, folder: Path) -> None:
    run = heedful.load(folder, device="cpu")
    run.score([("a b", "a b")])


def describe(kind: str, folder: Path) -> None:
    str(heedful.describe(folder))


def compare(kind: str, folder: Path) -> None:
    compared = heedful.compare([folder])
    str(compared), compared._repr_html_(), compared.to_dict()


def resume(kind: str, folder: Path) -> None:
    recipe = saved_recipe(RunFolder(folder), overrides_tree(["training.max_updates=5"]))
    train_into(recipe, folder, resume=True, device="cpu", progress=False)


def start(kind: str, folder: Path) -> None:
    """Train another run from its weights."""
    recipe = saved_tree(folder).data
    for inherited in ("model", "tokenizer"):
        recipe.pop(inherited, None)
    recipe["start"] = {"run": str(folder)}
    heedful.train(recipe, folder.parent / "started", overwrite=True, device="cpu", progress=False)


def export(kind: str, folder: Path) -> None:
    heedful.load(folder, device="cpu").export("gpt2", folder.parent / "exported")


VERBS = {
    verb.__name__: verb for verb in (predict, evaluate, explain, embed, describe, compare, resume, start)
}
READ_BY = {
    "metrics.jsonl": ["compare", "resume"],
    "data.json": ["compare", "resume"],
    "environment.json": ["predict", "resume"],
    "alignment.json": ["explain"],
    "run.json": ["predict", "compare", "resume"],
    "started.json": ["predict", "resume"],
    "state.json": ["predict", "resume"],
    "manifest.json": ["predict", "resume"],
    "header.json": ["resume"],
    "model.safetensors": ["predict", "resume"],
    "optimizer.safetensors": ["resume"],
    "weights.safetensors": ["predict", "evaluate", "explain", "embed", "start"],
}
TASK_FILES = ["predict", "evaluate", "describe", "compare", "resume", "start"]


@dataclass(frozen=True)
class Case:
    """A change of a file of a run, and the verbs that read it."""

    file: str
    how: str
    change: Callable[[Path], object]

    @property
    def verbs(self) -> list[str]:
        return READ_BY.get(Path(self.file).name, TASK_FILES)

    def apply(self, run: Path) -> None:
        path = run / self.file
        self.change(path)
        seal(run, path)


def _write(make_content: Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(make_content())


def _dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def cases(run: Path) -> Iterator[Case]:
    """Yield every case of the files of a run; of its checkpoints, the newest."""
    newest = max((run / "checkpoints").iterdir())
    for path in sorted(p for p in run.rglob("*") if p.is_file()):
        if path.is_relative_to(run / "checkpoints") and path.parent != newest:
            continue
        name = str(path.relative_to(run))
        if path.suffix == ".safetensors":
            for how, change in TENSORS.items():
                yield Case(name, how, change)
            continue
        content = path.read_bytes()
        if path.suffix in (".ids", ".offsets"):
            yield Case(name, "cut", _write(lambda c=content: c[:-1]))
            continue
        for how, raw in RAW.items():
            yield Case(name, how, _write(lambda c=content, r=raw: r(c)))
        if path.suffix == ".json":
            for how, made in changes(parse_json(content)):
                yield Case(name, how, _write(lambda m=made: _dumped(m())))
        if path.suffix == ".jsonl":
            yield from _line_cases(name, content.split(b"\n"))


def _line_cases(name: str, lines: list[bytes]) -> Iterator[Case]:
    """Yield changes of a line of each event; the last of ``lines`` is empty."""
    events = {json.loads(line)["event"]: number for number, line in enumerate(lines[:-1])}
    for event, number in events.items():
        for how, made in changes(json.loads(lines[number])):
            change = _write(lambda m=made, n=number: b"\n".join([*lines[:n], _dumped(m()), *lines[n + 1 :]]))
            yield Case(name, f"{event}: {how}", change)


def attempt(verb: str, kind: str, run: Path) -> str:
    """Return the message of heedful's error, or an empty text; raise any other exception."""
    try:
        VERBS[verb](kind, run)
    except HeedfulError as error:
        return str(error) or "an error without a message"
    return ""


def make_fitted(kind, folder):
    """Make tiny runs that have all files which more validation data would give them."""
    fitted = Calibration(temperature=2.5, items=97, loss=0.1, unscaled_loss=0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "fit_temperature", lambda items: fitted)
        patch.setattr(regression, "half_width", lambda residuals, coverage: 0.5)
        patch.setattr(Tagging, "scheme", SCHEMES["bio"])
        make(kind, folder)


@pytest.fixture(scope="module", params=sampled(TASKS, ["translation", "multilabel-classification"]))
def trained(request, tmp_path_factory):
    """The kind of a task, and the folder of its runs."""
    folder = tmp_path_factory.mktemp("crafted") / "runs"
    make_fitted(request.param, folder)
    return request.param, folder


@pytest.mark.slow
@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_a_crafted_file_is_read_or_named(trained, state, tmp_path, amount, draw):
    kind, folder = trained
    by_file: dict[str, list[Case]] = {}
    for case in cases(folder / state):
        by_file.setdefault(case.file, []).append(case)
    for _ in range(amount(8, 300)):
        case = draw.choice(by_file[draw.choice(sorted(by_file))])
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(folder / state, run)
        case.apply(run)
        for verb in draw.sample(case.verbs, amount(1, len(case.verbs))):
            try:
                message = attempt(verb, kind, run)
            except Exception as error:
                raise RuntimeError(f"{verb} with {case.file}: {case.how}") from error
            named = not message or is_named(message, tmp_path, verb, case)
            assert named, (verb, case.file, case.how, message)


EXHAUSTED = {"model.safetensors", "optimizer.safetensors", "weights.safetensors", "state.json"}
EXHAUSTED |= {
    "images.json",
    "labels.json",
    "scale.json",
    "thresholds.json",
    "calibration.json",
    "residuals.json",
    "transitions.json",
}


LARGE = {"run.json", "data.json", "environment.json", "alignment.json"}


def test_every_small_file_of_a_run_is_among_them(tmp_path):
    """So that a new one does not stay out."""
    found = set()
    for kind in TASKS:
        make_fitted(kind, tmp_path / kind)
        found |= {path.name for path in (tmp_path / kind / "finished").glob("*.json")}
    assert {*TUNED} <= found
    assert {name for name in found if not name.endswith(".tokenizer.json")} <= EXHAUSTED | LARGE


@pytest.mark.full
@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_every_change_of_small_files_is_read_or_named_by_every_verb(trained, state, tmp_path):
    kind, folder = trained
    problems = []
    for case in cases(folder / state):
        if Path(case.file).name not in EXHAUSTED:
            continue
        for verb in case.verbs:
            run = tmp_path / "run"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(folder / state, run)
            case.apply(run)
            try:
                message = attempt(verb, kind, run)
            except Exception as error:
                problems.append((verb, case.file, case.how, repr(error)))
                continue
            if message and not is_named(message, tmp_path, verb, case):
                problems.append((verb, case.file, case.how, message))
    assert not problems


def is_named(message: str, folder: Path, verb: str, case: Case) -> bool:
    """Whether a message names a file of the run, or what else is at fault."""
    # Another label or tokenizer does not fit the rows, which are named then. `start` passes what is left of a
    # recipe as a map. Finite weights may be too large for one of the inputs only.
    is_map = (verb, case.file) == ("start", "recipe.yaml") and message.startswith("recipe: ")
    is_too_large = case.how == "1e30" and message.startswith("the model's outputs contain NaN or infinity")
    return str(folder) in message or "rows.jsonl:" in message or is_map or is_too_large


@pytest.mark.slow
@pytest.mark.parametrize("value", ["NaN", "infinity"])
def test_weights_that_are_no_numbers_are_refused_by_every_verb_with_one_message(trained, value, tmp_path):
    kind, folder = trained
    for state, name in (("finished", "weights.safetensors"), ("unfinished", "model.safetensors")):
        run = Path(shutil.copytree(folder / state, tmp_path / state))
        for path in run.rglob(name):
            TENSORS[value](path)
            seal(run, path)
        # A model of checkpoints may be an average: their names are not in its message.
        expected = rf"{run}\S*: damaged: \S+ contains {value}; "
        verbs = [
            predict,
            evaluate,
            explain,
            embed,
            score,
            export,
            *([start] if state == "finished" else [resume]),
        ]
        for verb in verbs:
            with pytest.raises(DamagedError, match=expected):
                verb(kind, run)
        # What is described depends on the recipe; no weight is read.
        assert (
            str(heedful.describe(run)).partition("\n")[2]
            == str(heedful.describe(folder / state)).partition("\n")[2]
        )


@pytest.mark.slow
@pytest.mark.parametrize("value", ["NaN", "infinity"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_checkpoint_that_holds_no_numbers_is_damaged_and_an_older_one_resumed(
    trained, value, name, tmp_path
):
    """The resumed run is equal to one whose newest checkpoint does not exist."""
    kind, folder = trained
    runs = {each: Path(shutil.copytree(folder / "unfinished", tmp_path / each)) for each in ("bad", "cut")}
    newest = {each: max((run / "checkpoints").iterdir()) for each, run in runs.items()}
    TENSORS[value](newest["bad"] / name)
    seal(runs["bad"], newest["bad"] / name)
    shutil.rmtree(newest["cut"])
    intact = max((runs["cut"] / "checkpoints").iterdir()).name
    with pytest.raises(DamagedError, match=rf"{name}: damaged: .* contains {value}; .* --resume.*{intact}"):
        predict(kind, runs["bad"])
    for run in runs.values():
        resume(kind, run)
    weights = [(run / "weights.safetensors").read_bytes() for run in runs.values()]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_a_changed_digit_of_any_stored_result_is_noticed(trained, tmp_path, amount):
    """One digit at a time, without new hashes: of the best head, the report of the data, and the card."""
    kind, folder = trained
    run = Path(shutil.copytree(folder / "finished", tmp_path / "run"))
    readers = {
        "alignment.json": explain,
        "data.json": compare,
        "run.json": predict,
        "thresholds.json": predict,
    }
    for name, verb in readers.items():
        if not (path := run / name).exists():
            continue
        content = path.read_bytes()
        digits = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
        for i in digits[:: max(1, len(digits) // amount(4, 40))]:
            path.write_bytes(content[:i] + str((int(chr(content[i])) + 1) % 10).encode() + content[i + 1 :])
            with pytest.raises(HeedfulError, match=re.escape(str(path))):
                verb(kind, run)
        path.write_bytes(content)
        verb(kind, run)


LOGS = {"metrics.jsonl": b'\xff\n{"a": [\n{}\n', "tensorboard/events.out.tfevents.1.x.1.0": b"\x00\xff" * 50}


@pytest.mark.slow
def test_a_damaged_log_stops_no_training_and_no_comparison(trained, tmp_path):
    kind, folder = trained
    run = Path(shutil.copytree(folder / "unfinished", tmp_path / "run"))
    for name, content in LOGS.items():
        (run / name).parent.mkdir(exist_ok=True)
        with (run / name).open("ab") as file:
            file.write(content)
    compared = heedful.compare([folder / "finished", run])
    assert [note for note in compared.notes if str(run / "metrics.jsonl") in note]
    resume(kind, run)
    compared = heedful.compare([folder / "finished", run])
    assert compared.runs[1].updates == 5
    assert not [note for note in compared.notes if "damaged" in note]
