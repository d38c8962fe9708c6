"""Every shipped recipe trains in miniature, and every verb answers for the run that it made."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from miniature import Miniature, miniature, model_of, overrides, parts
from tiers import sampled

from heedful.files import sha256
from heedful.interop.conversion import FORMATS
from heedful.recipes.resolve import shipped_recipes
from heedful.runs.reading import read_recipe
from heedful.tasks.registry import task_for
from heedful.tasks.text_scoring import TextScoring

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
# Verbs that are not about a run, or are swept by tests of their own.
ELSEWHERE = {"demo", "recipes", "lab", "compare", "score", "pack", "clean", "serve"}
# Files of a run that tell the time.
TIMED = {"environment.json", "metrics.jsonl", "run.json"}
# One for each task and each family of models; the whole sweep runs all.
KEPT = (
    "phrasebook-ta",
    "multi30k-ende-rnn",
    "tatoeba-ende-lm",
    "scitldr-tdmca",
    "wikitext2-lm",
    "wikitext2-masked",
    "sst2",
    "sick-relatedness",
    "sick-embeddings",
    "my-own-tags",
    "my-own-questions",
    "digits",
    "fashion-resnet",
    "my-own-captions",
    "my-own-masks",
    "scenes-lstm",
)
# Of these, the ones that are also killed, and timed: one for each family of models.
KILLED = (
    "phrasebook-ta",
    "multi30k-ende-rnn",
    "wikitext2-lm",
    "wikitext2-masked",
    "digits",
    "my-own-captions",
)
SWEPT = {"train", "predict", "embed", "evaluate", "explain", "describe", "export", "import"}

HELD = ""
SUMS = "model.layer.norm_placement=pre: not supported by BERT: its norms follow the residual sums"
POOLS = "model.pooling=mean: not supported by ViT: it has a class token"
UNBIASED = "model.layer.mixer.bias=false: not supported by Marian: its attention has biases"
RECURS = "model.kind=recurrent: Marian's model is a transformer"
ONE_TEXT = "model.kind=language-model: Marian's model is a transformer"
RECURRENT = "model.layer.mixer.kind=recurrent: not supported by GPT-2: it uses attention"
WORDS = "tokenizer.subwords.kind=word: not supported by GPT-2"
CHARACTERS = "tokenizer.subwords.kind=character: not supported by GPT-2"
SEES_ALL = (
    "model.kind=encoder: not supported by GPT-2: each of its tokens sees only itself and earlier tokens"
)
# Why the format for its task (of labels and numbers: BERT) refuses the run of a recipe; those whose tasks no
# format holds are not named.
WRITTEN = {
    "agnews": SUMS,
    "digits": HELD,
    "fashion-mixer": "model.layer.mixer.kind=mlp: not supported by ViT: it uses attention",
    "fashion-resnet": "model.kind=resnet: not supported by ViT: expected kind vision",
    "fashion-vit": POOLS,
    "movie-reviews": SUMS,
    "multi30k-ende-rnn": RECURS,
    "multi30k-ende-tiny": HELD,
    "my-own-files": HELD,
    "my-own-labels": SUMS,
    "my-own-numbers": SUMS,
    "my-own-images": POOLS,
    "my-own-questions": SUMS,
    "my-own-tags": SUMS,
    "my-own-text": HELD,
    "phrasebook-de": HELD,
    "phrasebook-lm": WORDS,
    "phrasebook-lstm": RECURRENT,
    "phrasebook-questions": SUMS,
    "phrasebook-rnn": RECURS,
    "phrasebook-rnn-heads": RECURS,
    "phrasebook-ta": HELD,
    "phrasebook-ta-paper": UNBIASED,
    "phrasebook-tags": SUMS,
    "repeats": ONE_TEXT,
    "reverse": "model.layer.norm_placement=pre: not supported by Marian: it is a post-norm model",
    "shakespeare-char": CHARACTERS,
    "shakespeare-char-cpu": CHARACTERS,
    "sick": SUMS,
    "sick-relatedness": SUMS,
    "sst2": SUMS,
    "tatoeba-ende-lm": ONE_TEXT,
    "tatoeba-ende-small": HELD,
    "trec": SUMS,
    "wikitext2-lm": "model.layer.norm.kind=rms: not supported by GPT-2: its norms are layer norms",
    "wikitext2-masked": SUMS,
    "wikitext2-spans": SUMS,
}


BLOCKS = "mixer: {visible: blocks}"
EXPERTS = "channels: {kind: experts, n: 4, expert: {kind: feed-forward, activation: gelu}}"
LOCAL_ALONE = f"[{{{BLOCKS}}}, {{{BLOCKS}, {EXPERTS}}}]"


def check(name, value):
    text = (SCHEMAS / f"{name}.schema.json").read_text("utf-8")
    Draft202012Validator(json.loads(text)).validate(value)


@dataclass(frozen=True)
class Trained:
    """The run of a recipe, and the command in its folder."""

    made: Miniature
    folder: Path
    command: object
    recipe: str

    def lines(self):
        """What it is asked, a line an input."""
        return "".join("\t".join(texts.values()) + "\n" for texts in self.made.inputs())

    def __call__(self, *arguments, status=0, **settings):
        env = {"HEEDFUL_DATA": str(self.folder / "data"), **settings.pop("env", {})}
        done = self.command(*arguments, cwd=self.folder, env=env, **settings)
        assert done.status == status, done.err
        assert "Traceback" not in done.err
        return done


@pytest.fixture(scope="module", params=sampled(shipped_recipes(), KEPT))
def run(request, heedful, tmp_path_factory):
    """The recipe as a user starts it; those that read a user's own files are copied first, as they say."""
    folder = tmp_path_factory.mktemp(request.param)
    made = miniature(request.param, folder)
    trained = Trained(made, folder, heedful, "mine.yaml" if made.name.startswith("my-own") else made.name)
    if trained.recipe != made.name:
        (folder / trained.recipe).write_text(trained("recipes", made.name).out, "utf-8")
    done = trained("train", trained.recipe, *made.overrides, "--out", "run", "--json")
    assert done.json()["updates"] == 4
    return trained


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_miniature_has_parts_of_every_kind_that_its_recipe_has(name):
    whole = read_recipe(name)[0]
    small = read_recipe(name, list(overrides(whole)))[0]
    assert parts(model_of(small)) == parts(model_of(whole))


@pytest.mark.parametrize(
    "name, override",
    [
        ("scitldr-tdmca", "model.n_layers=1"),
        ("scitldr-tdmca", "model.n_layers=2"),  # without experts
        ("scitldr-tdmca", f"model.pattern={LOCAL_ALONE}"),
        ("scitldr-tdmca", "model.pattern.2.channels.gate=top-k"),
        ("scitldr-tdmca", "model.pattern.2.channels=feed-forward"),
        ("fashion-resnet", "model.n_blocks=[1]"),
        ("fashion-resnet", "model.n_blocks=[2]"),
        ("fashion-mixer", "model.layer.mixer=fourier"),
        ("wikitext2-lm", "model.layer.mixer.n_kv_heads=6"),
        ("wikitext2-lm", "model.layer.norm=layer"),
        ("wikitext2-masked", "model.positions=learned"),
    ],
)
def test_a_part_that_a_miniature_lacks_is_seen(name, override):
    without = parts(model_of(read_recipe(name, [override])[0]))
    assert without != parts(model_of(read_recipe(name)[0]))


of_each_family = pytest.mark.parametrize("run", sampled(shipped_recipes(), KILLED), indirect=True)


def test_every_input_has_an_answer(run):
    inputs = run.made.inputs()
    plain = run("predict", "run", stdin=run.lines()).out.split("\n")[:-1]
    records = "".join(json.dumps({**texts, "id": n}) + "\n" for n, texts in enumerate(inputs))
    options = ["--jsonl", "--precision", "bf16"]
    structured = [
        json.loads(line) for line in run("predict", "run", *options, stdin=records).out.splitlines()
    ]
    assert len(plain) == len(structured) == len(inputs)
    for number, record in enumerate(structured):
        assert record["input"]["id"] == number
        check("prediction", record)


def test_a_table_of_answers_has_the_form_of_those_that_are_printed(run):
    if run.made.recipe.task.kind == "segmentation":
        pytest.skip("writes a folder of masks")
    inputs = [{**texts, "id": n} for n, texts in enumerate(run.made.inputs())]
    (run.folder / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in inputs), "utf-8")
    run("predict", "run", "in.jsonl", "--out", "out.jsonl")
    written = (run.folder / "out.jsonl").read_text("utf-8")
    assert written == run("predict", "run", "in.jsonl").out
    for found, given in zip(map(json.loads, written.splitlines()), inputs, strict=True):
        check("prediction", found)
        assert found["input"] == given


def test_scores_of_texts_have_the_form_of_answers(run):
    if not isinstance(task := task_for(run.made.recipe), TextScoring):
        pytest.skip("the task scores no texts")
    columns = task.scored.inputs
    inputs = [dict(zip(columns, [*texts.values()] * 2, strict=False)) for texts in run.made.inputs()]
    records = [{**texts, "id": n} for n, texts in enumerate(inputs)]
    text = "".join(json.dumps(record) + "\n" for record in records)
    lines = run("score", "run", "--jsonl", stdin=text).out.splitlines()
    for found, given in zip(map(json.loads, lines), records, strict=True):
        check("prediction", found)
        assert found["input"] == given


def test_every_input_has_a_vector(run):
    """Of the first of several texts; empty ones have vectors too."""
    key = next(iter(run.made.inputs()[0]))
    inputs = [{key: texts[key]} for texts in run.made.inputs()]
    text = "".join(texts[key] + "\n" for texts in inputs)
    run("embed", "run", "--out", "vectors.npy", stdin=text)
    vectors = np.load(run.folder / "vectors.npy")
    assert vectors.dtype == np.float32
    assert len(vectors) == len(inputs)
    assert np.isfinite(vectors).all()
    records = "".join(json.dumps({**texts, "id": n}) + "\n" for n, texts in enumerate(inputs))
    lines = [json.loads(line) for line in run("embed", "run", "--jsonl", stdin=records).out.splitlines()]
    for number, record in enumerate(lines):
        check("embedding", record)
        assert record["id"] == number
    np.testing.assert_array_equal([record["vector"] for record in lines], vectors)


def test_it_is_scored(run):
    found = run("evaluate", "run", "--split", run.made.split, "--limit", "5", "--json").json()
    check("evaluation", found)
    assert found["splits"]
    assert all(split["scores"] for split in found["splits"])


def test_scores_are_shown_to_a_person(run):
    options = ["--split", "valid", "--limit", "3", "--output", "rows.jsonl"]
    shown = run("evaluate", "run", *options).out
    assert shown.startswith("valid: ")
    layers = getattr(run.made.recipe.model, "layers", ())
    has_experts = any(layer.channels.kind == "experts" for layer in layers)
    assert ("share of tokens: " in shown) == has_experts
    rows = [json.loads(row) for row in (run.folder / "rows.jsonl").read_text("utf-8").splitlines()]
    assert all(row["split"] == "valid" for row in rows)
    for row in rows:
        check("document" if "document" in row else "prediction", row)


def test_where_it_looks_is_shown_or_why_not(run):
    line = run.lines().split("\n")[0]
    done = run.command("explain", "run", line, "--json", cwd=run.folder)
    if done.status:
        assert done.status == 2, done.err
        assert "has no attention weights; choose a view (available views: " in done.err
        assert "Traceback" not in done.err
        done = run("explain", "run", line, "--view", "losses", "--json")
    found = done.json()
    check("explanation", found)
    assert found["maps"] or found["more"]
    options = [] if found["maps"] else ["--view", "losses"]
    assert run("explain", "run", line, *options).out.startswith(f"{run.made.recipe.task.kind}: ")


@of_each_family
def test_it_is_described(run):
    found = run("describe", "run", "--time", "--json").json()
    check("ledger", found)
    assert found["timing"]["seconds"] > 0


@pytest.mark.parametrize("name", FORMATS)
def test_it_is_written_in_another_format_and_comes_back_or_is_refused_as_the_table_says(run, name):
    task, tasks, why = run.made.recipe.task.kind, FORMATS[name].loaders, WRITTEN.get(run.made.name)
    if name == "gpt2" and run.made.recipe.model.kind == "encoder":
        why = SEES_ALL
    if task not in tasks:
        why = f"format {name}: expected a run of task {' or '.join(tasks)}, got {task}"
    assert why is not None, f"a line in WRITTEN for {run.made.name}, which {name} may hold"
    done = run("export", "run", "--to", name, "--out", f"as-{name}", status=2 if why else 0)
    if why:
        assert done.err.startswith(f"heedful: {why}")
        assert not (run.folder / f"as-{name}").exists()
    else:
        run("import", f"as-{name}", f"again-{name}")
        lines = run("predict", f"again-{name}", stdin=run.lines()).out.split("\n")[:-1]
        assert len(lines) == len(run.made.inputs())


def test_the_table_of_formats_has_lines_for_recipes_that_some_format_may_hold():
    tasks = {task for form in FORMATS.values() for task in form.loaders}
    assert {*WRITTEN} == {name for name in shipped_recipes() if read_recipe(name)[0].task.kind in tasks}


def timeless(value):
    """Figures without how long it took."""
    if not isinstance(value, dict):
        return value
    return {key: timeless(each) for key, each in value.items() if key not in ("seconds", "elapsed")}


def made(run):
    """Hashes of all files that a run is made of and goes on from, and its figures; no times."""
    files = [*run.glob("*"), *run.glob("checkpoints/*/*.safetensors")]
    hashes = {
        str(path.relative_to(run)): sha256(path)
        for path in files
        if path.is_file() and path.name not in TIMED
    }
    states = [json.loads(path.read_text("utf-8")) for path in sorted(run.glob("checkpoints/*/state.json"))]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    figures = [line for line in lines if line["event"] in ("updated", "validated")]
    return hashes, [timeless(each) for each in (*states, *figures)]


@of_each_family
def test_another_run_of_its_seed_that_is_killed_and_resumed_is_bit_for_bit_the_same(run):
    """Laws 5 and 9: it goes on in the middle of an epoch, from before an update that was lost."""
    start = ["train", run.recipe, *run.made.overrides, "--out", "again"]
    run(*start, env={"HEEDFUL_FAULT": "after-update:3"}, status=-signal.SIGKILL)
    state = run.folder / "again" / "checkpoints" / "step-00000002" / "state.json"
    assert json.loads(state.read_text("utf-8"))["training"]["cursor"]["segments"]
    run(*start, "--resume")
    hashes, figures = made(run.folder / "run")
    assert {"weights.safetensors", "checkpoints/step-00000004/optimizer.safetensors"} <= hashes.keys()
    assert [each["update"] for each in figures if each.get("event") == "updated"] == [1, 2, 3, 4]
    assert made(run.folder / "again") == (hashes, figures)


def test_a_finished_run_is_not_trained_further(run):
    before = (run.folder / "run" / "weights.safetensors").read_bytes()
    outcome = run("train", "run", "--resume", "--json").json()
    assert (outcome["stopped"], outcome["updates"]) == ("updates", 4)
    assert (run.folder / "run" / "weights.safetensors").read_bytes() == before


def test_every_verb_is_swept():
    from heedful.cli.main import app

    assert {command.name for command in app.registered_commands} == SWEPT | ELSEWHERE
