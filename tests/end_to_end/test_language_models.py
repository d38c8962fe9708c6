"""A language model by the real command: trained, resumed, completing, scored, and what it refuses."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
TEXT = "the cat sat on the mat.\nthe dog sat on the log.\n\n" * 12
RECIPE = """\
task: {kind: language-modelling}
data:
  train: {kind: text, paths: corpus, documents: blank-lines}
  valid: {kind: text, paths: valid.txt}
  test:
    own: {kind: text, paths: valid.txt, documents: line}
tokenizer: {subwords: {kind: character}}
model:
  {kind: language-model, n_layers: 1, d_model: 16, context: 16, dropout: 0.1, layer: {mixer: {n_heads: 2}}}
schedule: {kind: constant, peak: 2e-2, warmup: 5}
training:
  {max_updates: 60, tokens_per_update: 160, validate_every: 20, save_every: 10, precision: fp32}
decoding: {kind: sample, temperature: 0.7, seed: 3}
completion: {max_new_tokens: 40}
evaluation: {stride: 4}
"""
PROMPTS = ["the cat", "", "the dog sat on the log. the cat"]


def write(folder):
    (folder / "corpus").mkdir()
    half = len(TEXT) // 2
    (folder / "corpus" / "1.txt").write_text(TEXT[:half], "utf-8")
    (folder / "corpus" / "2.txt").write_text(TEXT[half:], "utf-8")
    (folder / "valid.txt").write_text("the dog sat on the mat.\nthe cat sat on the log.\n", "utf-8")
    (folder / "lm.yaml").write_text(RECIPE, "utf-8")


def check(name, value):
    text = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    Draft202012Validator(json.loads(text)).validate(value)


@pytest.fixture(scope="module")
def model(heedful, tmp_path_factory):
    """A trained run; nobody may change it."""
    folder = tmp_path_factory.mktemp("language-model")
    write(folder)
    done = heedful("train", "lm.yaml", "--out", "run", cwd=folder)
    assert done.status == 0, done.err
    return folder / "run"


LINES = "\n".join(PROMPTS) + "\n"


def predict(heedful, model, *options, stdin=LINES):
    done = heedful("predict", model, *options, cwd=model.parent, stdin=stdin)
    assert done.status == 0, done.err
    return done


def test_one_completion_for_each_prompt_in_order(heedful, model):
    done = predict(heedful, model)
    outputs = done.out.split("\n")[:-1]
    assert len(outputs) == len(PROMPTS)
    again = [predict(heedful, model, "-", stdin="".join(f"{p}\n" for p in PROMPTS)).out for _ in range(2)]
    assert again == [done.out] * 2
    assert "the last 16 were read" in done.err


def test_prompts_in_json_lines_are_answered_in_json_lines(heedful, model):
    lines = "".join(json.dumps({"prompt": prompt, "id": n}) + "\n" for n, prompt in enumerate(PROMPTS))
    done = predict(heedful, model, "--jsonl", "--n-best", "2", stdin=lines)
    records = [json.loads(line) for line in done.out.splitlines()]
    plain = predict(heedful, model).out.split("\n")
    for number, record in enumerate(records):
        check("prediction", record)
        assert record["input"] == {"prompt": PROMPTS[number], "id": number}
        assert len(record["alternatives"]) == 1
        assert record["output"].replace("\\", "\\\\").replace("\n", "\\n") == plain[number]
        assert record["score"] == pytest.approx(sum(record["log_probs"]), abs=1e-4)


def test_a_prompt_that_cannot_be_read_takes_nothing_from_the_others(heedful, model):
    """They are sampled as if it could be: by their numbers."""
    prompts = ["the", "the", None, "the", "the"]
    lines = "".join(json.dumps({"prompt": prompt or "a"}) + "\n" for prompt in prompts)
    wanted = [json.loads(line) for line in predict(heedful, model, "--jsonl", stdin=lines).out.splitlines()]
    lines = "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
    done = heedful("predict", model, "--jsonl", cwd=model.parent, stdin=lines)
    assert done.status == 1
    found = [json.loads(line) for line in done.out.splitlines()]
    check("prediction", found[2])
    assert (found[2]["input"], found[2].keys()) == ({"prompt": None}, {"version", "input", "error"})
    assert [found[i]["output"] for i in (0, 1, 3, 4)] == [wanted[i]["output"] for i in (0, 1, 3, 4)]
    assert len({record["output"] for record in wanted}) > 1


def test_a_prompt_that_is_not_utf8_is_left_out_of_what_is_shown(heedful, model):
    done = heedful("predict", model, "--stream", cwd=model.parent, stdin=b"the\n\xff\nthe\n")
    assert done.status == 1
    assert "heedful: standard input:2: byte 1 of the line is not UTF-8" in done.err
    shown = predict(heedful, model, "--stream", stdin="the\n").out
    assert done.out.startswith(shown + "\n")


def test_answers_are_shown_as_they_are_written(heedful, model):
    plain = predict(heedful, model).out
    streamed = predict(heedful, model, "--stream").out
    assert streamed == plain.replace("\\n", "\n")


def test_limits_of_a_completion(heedful, model):
    outputs = predict(heedful, model, "--max-new-tokens", "5").out.split("\n")[:-1]
    assert all(len(text.replace("\\n", "\n")) <= 5 for text in outputs)
    stopped = predict(heedful, model, "--stop", "t", "--stop", "\n").out
    assert "t" not in stopped
    assert "\\n" not in stopped
    assert predict(heedful, model, "--stop", "t", "--stop", "\n", "--stream").out == stopped


def test_a_file_may_be_one_prompt(heedful, model):
    (model.parent / "prompt").write_text("the cat sat\nthe dog", "utf-8")
    whole = predict(heedful, model, "prompt", "--whole").out
    record = json.dumps({"prompt": "the cat sat\nthe dog"}) + "\n"
    (answer,) = predict(heedful, model, "--jsonl", stdin=record).out.splitlines()
    assert whole == json.loads(answer)["output"].replace("\n", "\\n") + "\n"


def test_a_text_may_be_read_before_every_prompt(heedful, model):
    (model.parent / "before").write_text("the dog ", "utf-8")
    with_prefix = predict(heedful, model, "--prefix", "before", stdin="sat\n\n").out
    assert with_prefix == predict(heedful, model, stdin="the dog sat\nthe dog \n").out
    streamed = predict(heedful, model, "--prefix", "before", "--stream", stdin="sat\n\n").out
    assert streamed == with_prefix.replace("\\n", "\n")


def test_evaluation_is_one_object_and_a_record_for_each_document(heedful, model):
    done = heedful("evaluate", model, "--json", "--output", "rows.jsonl", cwd=model.parent)
    check("evaluation", found := done.json())
    (split,) = found["splits"]
    assert split["split"] == "own"
    strides = [score["signature"].rpartition(":")[2] for score in split["scores"]]
    assert strides == ["16"] * 5 + ["4"] * 5
    rows = [json.loads(line) for line in (model.parent / "rows.jsonl").read_text("utf-8").splitlines()]
    for row in rows:
        check("document", row)
    assert [row["document"] for row in rows] == ["valid.txt:1", "valid.txt:2"]
    nats = next(s for s in split["scores"][5:] if s["name"] == "nats per token")
    assert nats["value"] * nats["counts"]["tokens"] == pytest.approx(sum(row["nll"] for row in rows))


def test_evaluation_for_people(heedful, model):
    done = heedful("evaluate", model, "--text", "valid.txt", "--stride", "8", cwd=model.parent)
    first, *scores = done.out.splitlines()
    assert first == "valid.txt: 48 tokens"
    assert len(scores) == 10
    assert all("|stride:16" in line for line in scores[:5])
    assert all("|stride:8" in line for line in scores[5:])


def test_a_run_is_resumed_and_described(heedful, tmp_path):
    write(tmp_path)
    done = heedful("train", "lm.yaml", "training.max_updates=20", "--out", "run", cwd=tmp_path)
    assert done.status == 0, done.err
    more = heedful("train", "run", "--resume", "training.max_updates=30", "--json", cwd=tmp_path)
    assert more.json()["updates"] == 30
    ledger = heedful("describe", "run", "--json", cwd=tmp_path).json()
    check("ledger", ledger)
    # V holds the 7 specials and the characters; 16 places; attention, feed-forward, norms.
    v, d = 7 + len(set(TEXT)), 16
    layer = 4 * d * d + 4 * d + 8 * d * d + 5 * d + 4 * d
    assert ledger["total"] == v * d + 16 * d + layer + 2 * d


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--attention", "--jsonl"], "a language model has no source, so there is no attention over one"),
        (["--beam", "3"], "not supported by sampling"),
        (["--decoding", "max_length.cap=9"], "decoding.max_length is not supported here"),
        (["--stream", "--decoding", "kind=beam"], "a beam search has no final token before its end"),
        (["--stream", "--jsonl"], "remove --jsonl"),
        (
            ["--prefix", "corpus/1.txt"],
            "prefix: must leave room for a prompt within the context of 16 tokens, got 294",
        ),
        (["--prefix", "corpora/1.txt"], "corpora/1.txt"),
        (["--stop", ""], "stop: expected a list of texts that are not empty"),
        (["--max-new-tokens", "0"], "--max-new-tokens"),
    ],
)
def test_wrong_requests_are_told_without_a_traceback(heedful, model, options, message):
    line = json.dumps({"prompt": "the"}) + "\n"
    done = heedful("predict", model, *options, cwd=model.parent, stdin=line)
    assert done.status == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_json_lines_of_another_task_are_told_what_they_lack(heedful, model):
    done = heedful("predict", model, "--jsonl", cwd=model.parent, stdin='{"source": "x"}\n')
    assert done.status == 2
    assert "standard input:1: no field 'prompt'; there are source" in done.err


def test_a_translator_has_no_options_of_language_models(heedful, transformer, tmp_path):
    (tmp_path / "words").write_text("red", "utf-8")
    for options, message in (
        (["--max-new-tokens", "3"], "--max-new-tokens: not supported for task translation"),
        (["--max-new-tokens", "3"], "set --decoding max_length.cap=3"),
        (["--stop", "x"], "--stop: not supported for task translation"),
        (["--prefix", "words"], "--prefix: not supported for task translation"),
        (["--stream", "--beam", "2"], "set beam to 1"),
    ):
        done = heedful("predict", transformer, *options, cwd=tmp_path, stdin="red\n")
        assert (done.status, message in done.err) == (2, True), done.err
    done = heedful("evaluate", transformer, "--stride", "3", cwd=tmp_path)
    assert (done.status, "has no windows" in done.err) == (2, True)
    done = heedful("evaluate", transformer, "--text", "x", cwd=tmp_path)
    assert (
        done.status,
        "x: no such file" in done.err,
    ) == (2, True)
