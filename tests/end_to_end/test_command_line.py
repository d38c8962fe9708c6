"""The command line is stable: verbs and options are only ever added, and then here too."""

import pytest
import typer
from commands import ENVIRONMENT

from heedful import __version__
from heedful.cli.main import app

VERBS = {
    "train": {
        "recipe", "overrides", "--data", "--column", "--out", "--overwrite",
        "--resume", "--device", "--print", "--tensorboard", "--json", "--seeds",
    },
    "predict": {
        "run", "file", "--data", "--jsonl", "--beam", "--n-best", "--decoding", "--attention", "--device",
        "--alignment", "--alignment-head", "--alignment-step",
        "--max-new-tokens", "--stop", "--prefix", "--gap", "--stream", "--whole", "--precision",
        "--column", "--out", "--temperature", "--top-p", "--top-k", "--threshold", "--otherwise",
        "--must", "--must-not", "--target-prefix", "--terminology", "--regex", "--json-schema",
        "--from", "--to", "--words", "--ensemble",
    },
    "score": {
        "run", "file", "--data", "--jsonl", "--from", "--to", "--column", "--whole", "--ensemble", "--device",
    },
    "evaluate": {
        "run", "file", "--split", "--data", "--output", "--limit", "--beam", "--decoding", "--device",
        "--json",
        "--text", "--table", "--column", "--folder", "--stride", "--precision",
        "--alignments", "--first-word", "--dev", "--evaluation", "--head", "--links", "--step",
        "--faithfulness", "--accuracy", "--ensemble",
        "--temperature", "--top-p", "--top-k",
    },
    "embed": {
        "run", "file", "--data", "--jsonl", "--from", "--column", "--pooling", "--layer", "--device", "--out",
    },
    "describe": {
        "what", "overrides", "--batch", "--length", "--source-length", "--time", "--device", "--json",
        "--plot", "--out", "--memory",
    },
    "explain": {
        "run", "input", "--inputs", "--column", "--pair", "--target", "--layer", "--head", "--kind", "--view",
        "--decoding", "--alternative", "--exact", "--tokens", "--limit", "--out", "--json", "--device",
        "--temperature", "--top-p", "--top-k", "--id", "--memory",
    },
    "serve": {
        "runs", "--host", "--port", "--workers", "--api-key-file", "--no-auth", "--allowed-host",
        "--engine-timeout", "--drain-delay", "--drain-timeout", "--request-timeout",
        "--send-timeout", "--queue-seconds", "--precision", "--device",
    },
    "recipes": {"name", "--json"},
    "demo": {"--language", "--out", "--quick", "--device", "--json"},
    "lab": {"names", "--all", "--short", "--control", "--out", "--json"},
    "compare": {
        "runs", "--metric", "--out", "--json", "--data", "--split", "--column", "--limit", "--device",
    },
    "pack": {"run", "out"},
    "clean": {"run", "--resumable", "--yes"},
    "import": {"source", "run"},
    "export": {"run", "folder", "--to", "--out"},
}  # fmt: skip
REQUIRED = {
    "serve": ["runs"],
    "train": ["recipe"],
    "predict": ["run"],
    "score": ["run"],
    "evaluate": ["run"],
    "embed": ["run"],
    "describe": ["what"],
    "explain": ["run"],
    "recipes": [],
    "demo": [],
    "lab": [],
    "compare": ["runs"],
    "pack": ["run", "out"],
    "clean": ["run"],
    "import": ["source", "run"],
    "export": ["run", "to"],
}


def verbs():
    return typer.main.get_command(app).commands


def test_no_verb_is_lost_or_new():
    assert set(verbs()) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_no_option_is_lost_or_new(verb):
    parameters = verbs()[verb].params
    options = {name for p in parameters if p.param_type_name == "option" for name in p.opts}
    arguments = {p.name for p in parameters if p.param_type_name == "argument"}
    assert (options - {"--help", "-h"}) | arguments == VERBS[verb]
    assert [p.name for p in parameters if p.required] == REQUIRED[verb]
    assert all(p.help for p in parameters)


HELP = """
import sys
sys.argv[0] = "heedful"
from heedful.cli.main import main
try:
    main()
except SystemExit as end:
    heavy = "torch", "numpy", "tokenizers", "datasets", "sacrebleu", "matplotlib"
    print([name for name in heavy if name in sys.modules], file=sys.stderr)
    sys.exit(end.code)
"""


@pytest.mark.parametrize("verb", [None, *VERBS, "--version"])
def test_help_loads_nothing_heavy(process, verb, tmp_path):
    arguments = ["--help"] if verb is None else [verb, *([] if verb == "--version" else ["--help"])]
    done = process("-c", HELP, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    if verb == "--version":
        assert done.stdout == f"heedful {__version__}\n"
    else:
        assert done.stdout.startswith(f"Usage: heedful{'' if verb is None else ' ' + verb} [OPTIONS]")


@pytest.mark.parametrize(
    "words, expected",
    [
        ("heedful tr", ["train"]),
        ("heedful train wikitext2-m", ["wikitext2-masked"]),
        ("heedful recipes my-own-t", ["my-own-tags", "my-own-text"]),
        ("heedful predict --pre", ["--prefix", "--precision"]),
        ("heedful nothing", []),
    ],
)
def test_a_shell_completes_commands_options_and_recipes(process, tmp_path, words, expected):
    question = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    environment = {**ENVIRONMENT, **question, "_HEEDFUL_COMPLETE": "complete_bash"}
    done = process("-c", HELP, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout.split()) == (0, expected)
    assert done.stderr == "[]\n"


def test_no_arguments_shows_help_and_is_wrong(process, tmp_path):
    done = process("-m", "heedful", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "train" in done.stdout + done.stderr
