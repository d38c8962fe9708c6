"""Train, predict, evaluate, resume through the real command: results, their form, and what they say."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import heedful as package

# What is said of how a run decodes.
CHOICE = re.compile(r"heedful: decoding in fp32 on the (native engine|plain path \(.*\))\n")

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def check(name, value):
    text = (SCHEMAS / f"{name}.schema.json").read_text("utf-8")
    Draft202012Validator(json.loads(text)).validate(value)


def lines(done):
    """The lines of a result; only a newline ends a line."""
    assert done.status == 0, done.err
    assert done.out.endswith("\n") or not done.out
    return done.out.split("\n")[:-1]


def objects(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# Training


def test_a_run_holds_what_the_schemas_say(transformer):
    check("run", card := json.loads((transformer / "run.json").read_text("utf-8")))
    for name, facts in card["files"].items():
        content = (transformer / name).read_bytes()
        assert facts == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    metrics = objects(transformer / "metrics.jsonl")
    for line in metrics:
        check("metrics", line)
    updates = [line["update"] for line in metrics if line["event"] == "updated"]
    assert updates == list(range(1, 61))
    assert [line["update"] for line in metrics if line["event"] == "validated"] == [20, 40, 60]
    report = json.loads((transformer / "data.json").read_text("utf-8"))
    assert {part: report[part]["kept"] for part in ("train", "valid")} == {"train": 160, "valid": 23}


def test_training_gives_the_folder_or_one_json_object(heedful, corpus):
    done = heedful("train", "tiny.yaml", "training.max_updates=1", cwd=corpus)
    assert lines(done) == ["runs/tiny"]
    assert "heedful predict runs/tiny" in done.err
    outcome = heedful("train", "runs/tiny", "training.max_updates=2", "--resume", "--json", cwd=corpus).json()
    assert outcome["run"] == "runs/tiny"
    assert (outcome["updates"], outcome["stopped"], outcome["metric"]) == (2, "updates", "loss")


def test_seeds_train_a_run_each_and_their_spread_is_shown(heedful, corpus):
    short = "training.max_updates=2", "training.validate_every=2"
    done = heedful("train", "tiny.yaml", *short, "--seeds", "2", "--out", "runs/x", cwd=corpus)
    assert lines(done) == ["runs/x-1", "runs/x-2"]
    best = [float(value) for value in re.findall(r"best loss: ([0-9.]+) at update 2", done.err)]
    mean, deviation = sum(best) / 2, abs(best[0] - best[1]) / 2**0.5
    (shown,) = re.findall(r"best loss over 2 seeds: ([0-9.]+) ± ([0-9.]+) \(mean ± standard", done.err)
    assert [float(value) for value in shown] == pytest.approx([mean, deviation], abs=2e-4)
    # Each is the run that the seed alone trains.
    heedful("train", "tiny.yaml", *short, "training.seed=2", "--out", "runs/y", cwd=corpus)
    runs = corpus / "runs"
    weights = [(runs / name / "weights.safetensors").read_bytes() for name in ("x-1", "x-2", "y")]
    assert weights[1] == weights[2] != weights[0]
    comparison = lines(heedful("compare", runs / "x-1", runs / "x-2", cwd=corpus))
    assert any(re.match(r"x +2 +[0-9.]+ ± [0-9.]+", line) for line in comparison)
    check("comparison", found := heedful("compare", runs / "x-1", runs / "x-2", "--json", cwd=corpus).json())
    assert found["groups"][0]["metrics"]["loss"]["mean"] == pytest.approx(mean, abs=1e-4)


def test_seeds_are_resumed_where_they_stopped(heedful, corpus):
    short = "training.max_updates=2", "training.validate_every=2"
    assert heedful("train", "tiny.yaml", *short, "--seeds", "2", "--out", "x", cwd=corpus).status == 0
    shutil.rmtree(corpus / "x-2")
    refused = heedful("train", "tiny.yaml", *short, "--seeds", "3", "--out", "x", cwd=corpus)
    assert refused.status == 2
    assert "x-1" in refused.err
    assert not (corpus / "x-3").exists()
    before = (corpus / "x-1" / "run.json").read_bytes()
    arguments = "train", "tiny.yaml", *short, "--seeds", "3", "--out", "x", "--resume", "--json"
    found = heedful(*arguments, cwd=corpus).json()
    assert [(run["seed"], run["run"], run["updates"]) for run in found["runs"]] == [
        (seed, f"x-{seed}", 2) for seed in (1, 2, 3)
    ]
    values = [run["best"]["value"] for run in found["runs"]]
    assert found["mean"] == pytest.approx(sum(values) / 3)
    assert (corpus / "x-1" / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tiny.yaml", "--seeds", "2", "--print"], "--print: not supported with --seeds"),
        (["RUN", "--seeds", "2", "--resume"], "expected a recipe with --seeds, got a run folder"),
    ],
)
def test_seeds_that_have_no_meaning_are_refused(heedful, corpus, transformer, arguments, said):
    done = heedful("train", *(transformer if a == "RUN" else a for a in arguments), cwd=corpus)
    assert done.status == 2
    assert said in done.err


def test_a_resumed_run_keeps_the_recipe_that_it_was_resumed_with(heedful, own_run, tmp_path):
    change = ["training.max_updates=61", "decoding.beam=2"]
    assert heedful("train", own_run, *change, "--resume", cwd=tmp_path).status == 0
    recipe = package.load(own_run).recipe
    assert (recipe.training.max_updates, recipe.decoding.beam) == (61, 2)


def test_print_gives_a_recipe_that_trains_the_same(heedful, corpus):
    shown = heedful("train", "tiny.yaml", "model.layer.channels.d_ff=24", "--print", cwd=corpus)
    (corpus / "whole.yaml").write_text(shown.out, "utf-8")
    assert lines(heedful("train", "whole.yaml", "--print", cwd=corpus)) == lines(shown)
    assert "d_ff: 24" in shown.out
    assert not (corpus / "runs").exists()


def test_a_run_needs_neither_its_place_nor_its_corpus(heedful, corpus, tmp_path_factory):
    assert heedful("train", "tiny.yaml", "training.max_updates=3", "--out", "run", cwd=corpus).status == 0
    text = (corpus / "test.src").read_text("utf-8")
    before = lines(heedful("predict", "run", cwd=corpus, stdin=text))
    other = tmp_path_factory.mktemp("another machine")
    moved = Path(shutil.move(corpus / "run", other / "moved"))
    shutil.rmtree(moved / "cache")
    shutil.rmtree(moved / "checkpoints")
    shutil.rmtree(corpus)
    assert lines(heedful("predict", "moved", cwd=other, stdin=text)) == before


def test_a_run_without_validation_texts_resumes_without_its_corpus(heedful, corpus):
    short = ["training.max_updates=2", "validation.decode=0"]
    assert heedful("train", "tiny.yaml", *short, "--out", "run", cwd=corpus).status == 0
    for path in corpus.glob("*.???"):
        path.unlink()
    done = heedful("train", "run", "training.max_updates=3", "--resume", cwd=corpus)
    assert done.status == 0, done.err


# Prediction: as many outputs as inputs, in their order

STRANGE = {
    "empty": "",
    "spaces": "   ",
    "a tab": "\t",
    "words": "red dog sleeps",
    "emoji": "😀🦊",
    "a special token": "</s> <s> <pad> <unk>",
    "other line ends": "red\x0bdog\x85cat\u2028bird\x0ceats\rruns",
    "a NUL": "red\0dog",
    "right to left": "‏שלום",
    "combining": "é ̈",
    "long": "red dog " * 12_500,
}


@pytest.mark.parametrize("run", ["transformer", "recurrent"])
def test_every_input_has_one_output_in_order(heedful, run, tmp_path, request):
    folder = request.getfixturevalue(run)
    text = "".join(line + "\n" for line in STRANGE.values())
    done = heedful("predict", folder, cwd=tmp_path, stdin=text)
    outputs = dict(zip(STRANGE, lines(done), strict=True))
    assert outputs["empty"] == outputs["spaces"] == outputs["a tab"] == ""
    assert re.search(r"source cut from \d+ to 1024 tokens", done.err)
    assert CHOICE.match(done.err)
    logged = [line for line in done.err.splitlines() if not line.startswith("heedful: output cut at ")]
    unknown = [line for line in logged if " unknown to this run" in line]
    line = "heedful: 1 input with NUL characters, which are read as text (first at standard input:8)"
    assert line in logged
    for number, shown in enumerate(("", ": '   '", ": '\\t'"), 1):
        assert f"heedful: standard input:{number}: the input is empty{shown}" in logged
    assert len(logged) == 6 + len([line for line in unknown if "source cut" not in line])
    own = package.load(folder, device="cpu")
    for name in ("words", "emoji", "a special token", "other line ends", "spaces", "a NUL"):
        alone = heedful("predict", folder, "-", cwd=tmp_path, stdin=STRANGE[name])
        assert lines(alone) == [outputs[name]], name
        assert own.predict([STRANGE[name]])[0].text.replace("\n", "\\n") == outputs[name]


def test_text_that_spells_a_special_token_is_text(transformer):
    run = package.load(transformer)
    tokens = run.predict(["</s>"], attention=True)[0].source_tokens
    assert tokens[-1] == "</s>"
    assert "</s>" not in tokens[:-1]
    assert len(tokens) > 4


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_the_last_line_may_lack_its_end(heedful, transformer, tmp_path, ending):
    plain = lines(heedful("predict", transformer, cwd=tmp_path, stdin="red dog\ncat\n"))
    separator = ending or "\n"
    text = separator.join(["red dog", "cat"]) + ending
    (tmp_path / "in.txt").write_bytes(text.encode())
    assert lines(heedful("predict", transformer, cwd=tmp_path, stdin=text)) == plain
    assert lines(heedful("predict", transformer, "in.txt", cwd=tmp_path)) == plain


def test_a_byte_order_mark_is_no_text(heedful, transformer, tmp_path):
    plain = lines(heedful("predict", transformer, cwd=tmp_path, stdin="red dog\n"))
    assert lines(heedful("predict", transformer, cwd=tmp_path, stdin="\ufeffred dog\n")) == plain


@pytest.mark.parametrize("name", ["none.txt", "none.jsonl"])
def test_nothing_in_nothing_out(heedful, transformer, tmp_path, name):
    (tmp_path / name).touch()
    assert lines(heedful("predict", transformer, cwd=tmp_path, stdin="")) == []
    assert lines(heedful("predict", transformer, name, cwd=tmp_path)) == []


def test_a_pipe_is_a_file_too(transformer, tmp_path, environment):
    text = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -m heedful predict "{transformer}" <(printf "red dog\\ncat\\n")'],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=True,
    ).stdout  # fmt: skip
    assert text.count("\n") == 2


def test_a_newline_inside_an_output_is_written_as_backslash_n(heedful, recurrent, tmp_path):
    assert lines(heedful("predict", recurrent, cwd=tmp_path, stdin="abad\n\nccd\n")) == [r"x\ny", "", r"x\ny"]
    whole = heedful("predict", recurrent, "--jsonl", cwd=tmp_path, stdin='{"source": "abad"}\n')
    assert json.loads(whole.out)["output"] == "x\ny"


@pytest.mark.parametrize("run", ["transformer", "recurrent"])
def test_a_prediction_does_not_depend_on_its_company(heedful, run, tmp_path, request):
    """One by one, all at once, and in another order; the words and the figures."""
    folder = request.getfixturevalue(run)
    texts = ["red", "blue dog", "abcd a", "", "cat cat cat cat runs", "sleeps 😀 eats", "d"]

    def answers(inputs):
        text = "".join(json.dumps({"source": x}) + "\n" for x in inputs)
        done = heedful("predict", folder, "--jsonl", "--n-best", "3", cwd=tmp_path, stdin=text)
        return [json.loads(line) for line in lines(done)]

    same = {"input", "output", "tokens"}
    together = answers(texts)
    backwards = answers(texts[::-1])[::-1]
    single = [answers([text])[0] for text in texts]
    for a, b, c in zip(together, backwards, single, strict=True):
        for other in (b, c):
            assert other.keys() == a.keys()
            assert [other[key] for key in same & a.keys()] == [a[key] for key in same & a.keys()]
            assert other.get("score", 0) == pytest.approx(a.get("score", 0), abs=1e-4)
            assert [x["output"] for x in other.get("alternatives", ())] == [
                x["output"] for x in a.get("alternatives", ())
            ]


def test_samples_are_drawn_for_each_place_by_itself(transformer):
    run = package.load(transformer)
    decoding = package.load(transformer).recipe.decoding.model_copy()
    from heedful.decoding.config import SampleConfig

    decoding = SampleConfig(seed=3)
    texts = ["red dog"] * 5
    together = [p.text for p in run.predict(texts, decoding=decoding)]
    assert len(set(together)) > 1
    parts = [p.text for i in range(5) for p in run.predict(texts[:1], decoding=decoding, first=i)]
    assert parts == together


def test_the_command_gives_what_python_gives(heedful, transformer, tmp_path):
    texts = (transformer.parent / "test.src").read_text("utf-8").splitlines()
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"source": x}) + "\n" for x in texts))
    done = heedful("predict", transformer, "in.jsonl", "--n-best", "2", "--attention", cwd=tmp_path)
    expected = package.load(transformer, device="cpu").predict(texts, n_best=2, attention=True)
    for line, text, prediction in zip(lines(done), texts, expected, strict=True):
        found = json.loads(line)
        check("prediction", found)
        assert found["input"] == {"source": text}
        for key, value in prediction.to_dict().items():
            if key in ("output", "tokens", "source_tokens"):
                assert found[key] == value
        assert found["score"] == pytest.approx(prediction.score, abs=1e-5)
        assert len(found["alternatives"]) == 1
        rows = len(found["log_probs"])
        (layer,) = found["attention"]
        assert len(layer) == 2
        for head in layer:
            assert [len(row) for row in head] == [len(found["source_tokens"])] * len(head)
            assert len(head) in (rows, rows + 1)
            assert [sum(row) for row in head] == pytest.approx([1.0] * len(head), abs=1e-5)


def test_other_keys_are_handed_through(heedful, transformer, tmp_path):
    record = {
        "id": 7,
        "source": "red dog",
        "meta": {"deep": [1, None, "ä"]},
        "text": "older",
        "half": "\ud800",
    }
    (tmp_path / "in.jsonl").write_text(json.dumps(record) + "\n")
    found = json.loads(lines(heedful("predict", transformer, "in.jsonl", cwd=tmp_path))[0])
    check("prediction", found)
    assert found["input"] == record
    assert found["output"] == package.load(transformer).predict(["red dog"])[0].text
    # An answer that is asked again is an input like any other, whose source is named.
    (tmp_path / "again.jsonl").write_text(json.dumps(found) + "\n")
    options = ["again.jsonl", "--column", "source=input.source"]
    again = json.loads(heedful("predict", transformer, *options, cwd=tmp_path).out)
    assert again == {**found, "input": found}


def test_empty_inputs_in_json_have_whole_answers(heedful, transformer, tmp_path):
    done = heedful(
        "predict",
        transformer,
        "--jsonl",
        "--n-best",
        "2",
        "--attention",
        cwd=tmp_path,
        stdin='{"source": ""}\n',
    )
    check("prediction", found := done.json())
    assert found["output"] is None
    assert found["input"] == {"source": ""}
    assert found["notes"] == ["standard input:1: the input is empty"]


def test_a_note_about_a_cut_input_stands_in_the_answer(heedful, transformer, tmp_path):
    text = json.dumps({"source": STRANGE["long"]}) + "\n"
    done = heedful("predict", transformer, "--jsonl", cwd=tmp_path, stdin=text)
    check("prediction", found := done.json())
    first, *others = found["notes"]
    assert re.fullmatch(r"source cut from \d+ to 1024 tokens", first)
    assert all(note.startswith("output cut at ") for note in others)
    assert "; ".join(found["notes"]) in done.err


def test_beam_of_one_is_greedy(heedful, transformer, tmp_path):
    text = (transformer.parent / "test.src").read_text("utf-8")
    one = heedful("predict", transformer, "--beam", "1", cwd=tmp_path, stdin=text)
    greedy = heedful("predict", transformer, "--decoding", "kind=greedy", cwd=tmp_path, stdin=text)
    assert lines(one) == lines(greedy)


def test_a_reader_who_leaves_is_no_failure(transformer, tmp_path, environment):
    """Through a real pipe, with more output than it holds."""
    (tmp_path / "in.txt").write_text("red dog\n" * 30_000)
    script = (
        f'set -o pipefail; "{sys.executable}" -m heedful predict "{transformer}" in.txt --beam 1 | head -1'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert CHOICE.fullmatch(done.stderr)


# Evaluation


def test_evaluation_is_one_object_and_a_record_for_each_sentence(heedful, transformer, tmp_path):
    done = heedful("evaluate", transformer, "--json", "--output", "rows.jsonl", cwd=tmp_path)
    check("evaluation", found := done.json())
    assert [split["split"] for split in found["splits"]] == ["own"]
    scores = {score["name"]: score for score in found["splits"][0]["scores"]}
    assert {"BLEU", "chrF2", "TER", "perplexity"} <= set(scores)
    assert "version:" in scores["BLEU"]["signature"]
    assert scores["BLEU"]["counts"]["sentences"] == 17
    rows = objects(tmp_path / "rows.jsonl")
    references = (transformer.parent / "test.tgt").read_text("utf-8").splitlines()
    assert [row["target"] for row in rows] == references
    for row in rows:
        check("prediction", row)
    outputs = lines(heedful("predict", transformer, transformer.parent / "test.src", cwd=tmp_path))
    assert [row["output"].replace("\n", "\\n") for row in rows] == outputs


def test_evaluation_for_people_names_scores_and_signatures(heedful, transformer, tmp_path):
    done = heedful("evaluate", transformer, "--limit", "5", cwd=tmp_path)
    assert lines(done)[0] == "own: 5 sentences"
    assert "BLEU" in done.out
    assert "version:" in done.out
    done = heedful("evaluate", transformer, "--limit", "5", "--evaluation", "language=zh", cwd=tmp_path)
    assert "|tok:zh|" in done.out


def test_validation_and_evaluation_agree(heedful, transformer, tmp_path):
    """BLEU and chrF at the end of the training are those of ``evaluate`` on the same sentences."""
    validated = [x for x in objects(transformer / "metrics.jsonl") if x["event"] == "validated"]
    best = min(validated, key=lambda line: line["metrics"]["loss"])["metrics"]
    found = heedful("evaluate", transformer, "--split", "valid", "--json", cwd=tmp_path).json()
    scores = {score["name"]: score["value"] for score in found["splits"][0]["scores"]}
    assert best["chrf"] > 1
    for name, key in (("BLEU", "bleu"), ("chrF2", "chrf"), ("perplexity", "perplexity")):
        assert scores[name] == pytest.approx(best[key], rel=1e-5), name


def test_validation_and_evaluation_agree_on_lower_case_and_cut_sources(heedful, corpus):
    """Outputs in lower case are scored without regard to case, and long sources are cut, in both."""
    changes = ["tokenizer.target.lowercase=true", "training.max_updates=40", "training.validate_every=40"]
    table = ["model.positions=learned", "model.max_length=6", "data.filter.max_length=5"]
    caps = ["decoding.max_length.cap=5", "validation.decoding.max_length.cap=5"]
    assert heedful("train", "tiny.yaml", *changes, *table, *caps, "--out", "run", cwd=corpus).status == 0
    (line,) = [x for x in objects(corpus / "run" / "metrics.jsonl") if x["event"] == "validated"]
    done = heedful("evaluate", "run", "--split", "valid", "--json", "--output", "rows", cwd=corpus)
    scores = {score["name"]: score["value"] for score in done.json()["splits"][0]["scores"]}
    assert line["metrics"]["chrf"] > 1
    assert scores["chrF2"] == pytest.approx(line["metrics"]["chrf"], rel=1e-9)
    assert scores["BLEU"] == pytest.approx(line["metrics"]["bleu"], rel=1e-9)
    assert any("notes" in row for row in objects(corpus / "rows"))
    assert max(row["scores"]["chrF"] for row in objects(corpus / "rows")) > 0


def test_any_two_files_can_be_scored(heedful, transformer, tmp_path):
    (tmp_path / "a.txt").write_text("red dog\n\ncat\n")
    (tmp_path / "b.txt").write_text("DOG RED\n\nCAT\n")
    found = heedful("evaluate", transformer, "--data", "a.txt", "b.txt", "--json", cwd=tmp_path).json()
    check("evaluation", found)
    assert found["splits"][0]["split"] == "a.txt"
    assert found["splits"][0]["scores"][0]["counts"]["sentences"] == 3


# The command itself


def test_a_whole_process_does_what_the_forks_do(heedful, process, transformer, tmp_path):
    text = (transformer.parent / "test.src").read_text("utf-8")
    done = process("-m", "heedful", "predict", transformer, cwd=tmp_path, input=text)
    assert done.returncode == 0
    assert CHOICE.match(done.stderr)
    assert done.stdout == heedful("predict", transformer, cwd=tmp_path, stdin=text).out
    wrong = process("-m", "heedful", "predict", transformer, "--beem", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Traceback" not in wrong.stderr


def test_results_are_utf8_wherever_the_command_runs(process, environment, transformer, tmp_path):
    done = process(
        "-m", "heedful", "predict", transformer, "--jsonl",
        input='{"source": "red", "id": "நாய்"}\n'.encode(),
        env={**environment, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"},
        cwd=tmp_path, text=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.decode("utf-8"))["input"]["id"] == "நாய்"


# Precisions


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_precision_may_be_chosen(heedful, transformer, tmp_path, precision):
    done = heedful("predict", transformer, "--precision", precision, cwd=tmp_path, stdin="red cat\n\n")
    assert len(lines(done)) == 2
    assert f"decoding in {precision} on the" in done.err
    done = heedful("evaluate", transformer, "--precision", precision, "--limit", "3", "--json", cwd=tmp_path)
    check("evaluation", done.json())


def test_the_engine_writes_what_the_plain_path_writes(heedful, transformer, tmp_path):
    text = "".join(line + "\n" for line in STRANGE.values())
    fast = heedful("predict", transformer, cwd=tmp_path, stdin=text)
    plain = heedful("predict", transformer, cwd=tmp_path, stdin=text, env={"HEEDFUL_NATIVE": "0"})
    assert "on the plain path (no native library: disabled by HEEDFUL_NATIVE=0)" in plain.err
    assert lines(fast) == lines(plain)


def test_a_precision_that_cannot_be_had_is_refused(heedful, transformer, recurrent, tmp_path):
    done = heedful("predict", transformer, "--precision", "fp16", cwd=tmp_path, stdin="red cat\n")
    assert (done.status, done.out) == (2, "")
    assert "unknown precision 'fp16'" in done.err
    done = heedful("predict", recurrent, "--precision", "int8", cwd=tmp_path, stdin="red cat\n")
    assert (done.status, done.out) == (2, "")
    assert "precision int8 needs the native engine" in done.err


# Comparing


def test_runs_stand_side_by_side(heedful, transformer, recurrent, tmp_path):
    done = heedful(
        "compare", transformer, recurrent, "--metric", "perplexity", "--out", "curves.svg", cwd=tmp_path
    )
    table = lines(done)
    assert table[0].split()[:5] == ["run", "updates", "minutes", "stopped", "by"]
    assert any(re.fullmatch(r"model\.kind +transformer +recurrent", line) for line in table)
    assert (tmp_path / "curves.svg").read_text("utf-8").count("perplexity over") == 2
    found = heedful("compare", transformer, recurrent, "--json", cwd=tmp_path).json()
    check("comparison", found)
    kept = [line for line in objects(transformer / "metrics.jsonl") if line["event"] == "validated"]
    assert [v["metrics"] for v in found["runs"][0]["curve"]] == [line["metrics"] for line in kept]


def test_one_run_has_its_losses_drawn(heedful, transformer, tmp_path):
    done = heedful("compare", transformer, "--out", "losses.svg", cwd=tmp_path)
    text = (tmp_path / "losses.svg").read_text("utf-8")
    assert "loss over updates" in text
    table = lines(done)
    assert any(line.startswith("· training loss   ● validation loss") for line in table)
    assert "all settings are equal" not in table
    (found,) = heedful("compare", transformer, "--json", cwd=tmp_path).json()["runs"]
    kept = [line for line in objects(transformer / "metrics.jsonl") if line["event"] == "updated"]
    assert found["training"] == [{"update": line["update"], "loss": line["loss"]} for line in kept]
    check("comparison", heedful("compare", transformer, "--json", cwd=tmp_path).json())


def test_the_scores_of_two_runs_have_tests_of_significance(heedful, transformer, recurrent, tmp_path):
    done = heedful("compare", transformer, recurrent, "--split", "valid", "--limit", "12", cwd=tmp_path)
    table = lines(done)
    (heading,) = [i for i, line in enumerate(table) if line.startswith("valid (12 rows): ")]
    assert table[heading + 1].split()[0] == "metric"
    assert table[heading + 2].split()[0] == "BLEU"
    assert re.search(r" (not significant at 0\.05|significant)$", table[heading + 2])
    assert "resampling, p-values by" in table[-2]
    arguments = "compare", transformer, recurrent, "--split", "valid", "--limit", "12", "--json"
    check("comparison", found := heedful(*arguments, cwd=tmp_path).json())
    assert heedful(*arguments, cwd=tmp_path).json() == found
    # The data set is the first run's, so that the rows are the same.
    files = transformer.parent / "valid.src", transformer.parent / "valid.tgt"
    for run, place in ((transformer, 0), (recurrent, 1)):
        scores = heedful("evaluate", run, *files, "--limit", "12", "--json", cwd=tmp_path).json()
        values = {score["name"]: score["value"] for score in scores["splits"][0]["scores"]}
        for entry in found["significance"]:
            assert entry["values"][place] == pytest.approx(values[entry["metric"]])
    by_name = {entry["metric"]: entry for entry in found["significance"]}
    assert {"BLEU", "chrF2", "TER"} <= by_name.keys()
    assert by_name["BLEU"]["test"]["rows"] == 12
    comparison = package.compare([transformer, recurrent], split="valid", limit=12)
    assert [entry.to_dict() for entry in comparison.significance] == found["significance"]
    of_files = package.compare([transformer, recurrent], data=files, limit=12)
    assert [entry.test for entry in of_files.significance] == [
        entry.test for entry in comparison.significance
    ]
    assert "approximate randomisation" in comparison._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["RUN", "--split", "valid"], "need two runs or more"),
        (["RUN", "OTHER", "--limit", "3"], "--limit: requires --data FILE or --split NAME"),
        (["RUN", "OTHER", "--column", "a=b"], "--column: requires --data FILE"),
        (["RUN", "OTHER", "--split", "vali"], "no such split (did you mean 'valid'?)"),
        (["RUN", "OTHER", "--split", "valid", "--data", "x"], "exclude each other"),
        (["RUN", "RUN"], "the run is given twice"),
        (["RUN", "OTHER", "--metric", "los"], "did you mean 'loss'?"),
        (["RUN", "OTHER", "--out", "curves.pdf"], "file name must end in .svg or .png"),
    ],
)
def test_comparisons_that_cannot_be_made_are_refused(
    heedful, transformer, recurrent, tmp_path, arguments, said
):
    runs = {"RUN": transformer, "OTHER": recurrent}
    done = heedful("compare", *(runs.get(argument, argument) for argument in arguments), cwd=tmp_path)
    assert done.status == 2
    assert said in done.err
    assert not done.out
