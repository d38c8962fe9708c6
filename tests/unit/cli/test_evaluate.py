"""The choices of ``evaluate`` match the library; what it writes to which stream."""

import json
from typing import get_args, get_type_hints

import pytest
from typer.testing import CliRunner

import heedful
from heedful.cli.evaluate import AlignmentOptions, Sources
from heedful.cli.main import app
from heedful.errors import RequestError
from heedful.explain.alignment.word_alignment import STEPS, Direction
from heedful.objectives.guided import DecoderStep
from heedful.tasks.metrics.accuracy_thresholds import AccuracyThreshold, Kept
from heedful.tasks.metrics.calibration_tables import calibration_tables, threshold_lines


def test_links_and_steps_match_the_library():
    offered = get_type_hints(AlignmentOptions)
    assert offered["links"] == Direction
    assert offered["step"] == DecoderStep | None
    assert get_args(DecoderStep) == STEPS


def test_files_may_be_given_in_every_way_but_one(tmp_path):
    files = [tmp_path / "a", tmp_path / "b"]
    ways = [Sources(file=files), Sources(data=files), Sources(data=files[:1], file=files[1:])]
    assert [way.files() for way in ways] == [files] * 3
    for name in ("text", "table", "folder"):
        assert Sources(**{name: files}).files() == files
        with pytest.raises(RequestError, match=f"FILE and --{name}: expected only one of these"):
            Sources(data=files[:1], **{name: files}).files()


@pytest.fixture
def evaluate(letters, tmp_path):
    """Return ``evaluate(*options)`` of a classifier on a table of two rows."""
    (tmp_path / "rows.csv").write_text("text,label\na,a\nb b,a\n")
    command = ["evaluate", str(letters), "--table", str(tmp_path / "rows.csv"), "--device", "cpu"]
    return lambda *options: CliRunner().invoke(app, [*command, *options], catch_exceptions=False)


def test_records_go_to_standard_output_and_scores_to_standard_error(evaluate, tmp_path):
    scores = evaluate("--output", str(tmp_path / "rows.jsonl")).stdout
    done = evaluate("--output", "-")
    assert done.stdout == (tmp_path / "rows.jsonl").read_text("utf-8")
    assert scores in done.stderr
    for line in done.stdout.splitlines():
        record = json.loads(line)
        probabilities = record["probabilities"]
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
        assert record["output"] == max(probabilities, key=probabilities.get)


def test_records_and_json_do_not_share_standard_output(evaluate):
    with pytest.raises(RequestError, match="--output - is not supported with --json"):
        evaluate("--output", "-", "--json")


def test_scores_of_each_class_are_printed_below_the_others(evaluate):
    lines = [line.split() for line in evaluate().stdout.splitlines()]
    (details,) = (
        score["details"]
        for score in json.loads(evaluate("--json").stdout)["splits"][0]["scores"]
        if score["name"] == "accuracy"
    )
    start = lines.index(["class", "precision", "recall", "F1", "count"])
    assert [line[-1] for line in lines[start + 1 : start + 3]] == list(map(str, details["support"]))
    matrix = start + 3 + len(["", "heads"])
    assert [list(map(int, line[1:])) for line in lines[matrix : matrix + 2]] == details["confusion"]


def test_tables_of_probabilities_have_the_numbers_of_json(evaluate):
    text = evaluate().stdout
    scores = {
        score["name"]: score["details"]
        for score in json.loads(evaluate("--json").stdout)["splits"][0]["scores"]
    }
    assert "The probabilities are not calibrated" in text
    for entry in scores["calibration error"]["bins"]:
        numbers = f"{entry['count']} {entry['confidence']:.3f} {entry['accuracy']:.3f}"
        assert numbers in " ".join(text.split())
    whole = scores["AURC"]["coverage"][-1]
    assert f"100.0%      {whole['threshold']:.3f}     {whole['accuracy']:.3f}" in text


def test_python_prints_the_text_of_the_command(letters, tmp_path, evaluate):
    """It had neither the sentences on the probabilities nor the tables."""
    printed = evaluate().stdout.splitlines()
    found = heedful.load(letters, device="cpu").evaluate(data=tmp_path / "rows.csv")
    lines = str(found).splitlines()
    assert lines[: len(printed)] == printed
    assert lines[len(printed) :] == [*found.notes]
    assert any("The probabilities are not calibrated" in line for line in lines)
    assert repr(found) == str(found)


ERROR_BINS = {
    "within": (0.02, "is within what chance allows (0.0300 in 95 % of samples of this size): they may be"),
    "above": (0.04, "is above what chance allows (0.0300 in 95 % of samples of this size): they are not to"),
}


@pytest.mark.parametrize(("count", "judged"), [(5, "few answers"), (500, "too high")])
def test_a_bin_of_few_answers_is_not_judged(count, judged):
    """Its interval, 0.000 to 0.434, does not have the mean probability either."""
    bin = {"low": 0.8, "high": 1.0, "count": count, "confidence": 0.9, "accuracy": 0.0}
    details = {"temperature": None, "perfect": 0.01, "bins": [bin]}
    curve = {"coverage": [{"threshold": 0.8, "coverage": 1.0, "accuracy": 0.0}]}
    lines = [*calibration_tables(0.9, details, curve)]
    (line,) = [line for line in lines if line.startswith("0.80-1.00")]
    assert line.endswith(judged)
    assert ("They are too high in 0.80-1.00" in " ".join(lines)) == (judged == "too high")


@pytest.mark.parametrize("case", ERROR_BINS)
def test_the_verdict_on_probabilities_is_in_words(case):
    error, sentence = ERROR_BINS[case]
    bins = [
        {"low": 0.2, "high": 0.4, "count": 5, "confidence": 0.3, "accuracy": 0.2},
        {"low": 0.4, "high": 0.6, "count": 900, "confidence": 0.5, "accuracy": 0.6},
        {"low": 0.6, "high": 0.8, "count": 900, "confidence": 0.7, "accuracy": 0.71},
        {"low": 0.8, "high": 1.0, "count": 900, "confidence": 0.9, "accuracy": 0.8},
    ]
    details = {"temperature": None, "perfect": 0.03, "bins": bins}
    curve = {"coverage": [{"threshold": 0.2, "coverage": 1.0, "accuracy": 0.7}]}
    lines = [*calibration_tables(error, details, curve)]
    assert max(map(len, lines)) <= 78
    text = " ".join(" ".join(lines).split())
    assert sentence in text
    where = "They are too high in 0.80-1.00 and too low in 0.40-0.60."
    assert (where in text) == (case == "above")
    rows = {line.split()[0]: line.split()[-1] for line in lines if line}
    ends = [rows[name] for name in ("0.20-0.40", "0.40-0.60", "0.60-0.80", "0.80-1.00")]
    assert ends[0] == "answers"  # few
    assert [end in ("low", "high") for end in ends] == [False, case == "above", False, case == "above"]


ALL, HALF = Kept(0.0, 400, 390, 400), Kept(0.75, 200, 198, 400)
HALF_TEXT = "threshold 0.75, 50.0% of the answers, 198 of 200 right: 0.990, 95 % interval 0.964-0.997"
NONE = "accuracy 0.9: no threshold is known to keep it on other rows"
SURE = "on other rows of the same kind, it is at least 0.9, with a confidence of 95 %"
CHOSEN = "it is chosen on these rows, and"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            AccuracyThreshold(0.9, None, None),
            f"{NONE}; no threshold has this accuracy on these rows; ask for less, or improve the model",
        ),
        (
            AccuracyThreshold(0.9, ALL, ALL),
            "accuracy 0.9: no threshold is needed; 390 of 400 right: 0.975, 95 % interval 0.955-0.986; "
            f"{SURE}",
        ),
        (
            AccuracyThreshold(0.9, None, HALF, rows_needed=1600),
            f"{NONE}; about 1,600 rows may show one; or ask for less on these rows alone: {HALF_TEXT}; "
            f"{CHOSEN} on others the accuracy is lower about every second time",
        ),
        (
            AccuracyThreshold(0.9, HALF, HALF),
            f"accuracy 0.9: {HALF_TEXT}; {SURE}",
        ),
        (
            AccuracyThreshold(0.9, None, HALF, is_tested=False),
            f"accuracy 0.9: {HALF_TEXT}; {CHOSEN} words of a sentence, or labels of a text, depend on each "
            "other, so nothing is known about others",
        ),
    ],
)
def test_what_a_wanted_accuracy_prints(found, text):
    lines = [*threshold_lines(found)]
    assert " ".join(lines) == text
    assert max(map(len, lines)) <= 78


def test_the_thresholds_are_those_of_json_and_of_python(evaluate):
    (entry,) = json.loads(evaluate("--json", "--accuracy", "0").stdout)["splits"]
    assert entry["accuracy_threshold"]["wanted"] == 0
    assert "accuracy_threshold" not in json.loads(evaluate("--json").stdout)["splits"][0]
    text = " ".join(evaluate("--accuracy", "0").stdout.split())
    found = entry["accuracy_threshold"]["on_these_rows"] or entry["accuracy_threshold"]["holds"]
    assert f"{found['right']} of {found['answers']} right: {found['accuracy']:.3f}" in text


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("95", "got '95'; write 0.95"),
        ("95%", "got '95%'; write 0.95"),
        ("0,8366", "expected a number from 0 to 1, got '0,8366'; write 0.8366"),
        ("1.5", "expected a number from 0 to 1, got '1.5'"),
        ("much", "expected a number from 0 to 1, got 'much'"),
        ("80,5%", "got '80,5%'; write 0.805"),
        ("nan", "expected a number from 0 to 1, got 'nan'"),
    ],
)
@pytest.mark.parametrize("arguments", [["evaluate", "RUN", "--accuracy"], ["predict", "RUN", "--threshold"]])
def test_a_probability_is_written_from_0_to_1_and_the_message_says_how(arguments, written, hint):
    done = CliRunner().invoke(app, [*arguments, written])
    assert done.exit_code == 2
    message = " ".join(done.stderr.replace("│", " ").split())
    assert message.rstrip(" ╯─╰").endswith(hint)
