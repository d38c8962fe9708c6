"""The command on runs of other tasks than translation: images, pairs, models without attention."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.errors import RequestError
from heedful.explain.attention_sites import Selection
from heedful.explain.capture import explain_input
from heedful.explain.drawing.heat_map import figure_of
from heedful.explain.json_format import json_pieces
from heedful.explain.page import build
from heedful.explain.patterns.classes import CLASSES
from heedful.explain.summary import ABOUT_ATTENTION, summary_matrix
from heedful.explain.views import VIEWS


@pytest.fixture
def command(explained):
    """The standard output of the command for a run; its errors are raised."""

    def call(name, *arguments):
        run, _ = explained(name)
        given = ["explain", str(run.folder.path), *map(str, arguments), "--device", "cpu"]
        outcome = CliRunner().invoke(app, given)
        if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
            raise outcome.exception
        assert outcome.exit_code == 0
        return outcome.stdout

    return call


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "p.png"
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (6, 6), dtype=np.uint8)).save(path)
    return path


@pytest.mark.parametrize(
    "name", ["images", "images without class token", "captions", "show, attend and tell"]
)
def test_images_are_given_by_their_paths(command, explained, image, tmp_path, name):
    out = tmp_path / "x.png"
    found = json.loads(command(name, image, "--json", "--out", out))
    assert found["input"] == str(image)
    (prediction,) = explained(name)[0].predict([image])
    assert found["answer"]["output"] == prediction.text
    assert imread(out).shape[2] == 4


def test_pairs_stand_behind_a_tab_or_an_option(command):
    both = json.loads(command("pairs", "the cat\ta dog", "--json"))
    assert both == json.loads(command("pairs", "the cat", "--pair", "a dog", "--json"))
    assert both["input"] == ["the cat", "a dog"]
    with pytest.raises(RequestError, match="must be 2 texts"):
        command("pairs", "the cat")


def test_a_masked_language_model_reads_one_text_or_two(command):
    both = json.loads(command("masked pairs", "the [MASK] sat", "--pair", "the log", "--json"))
    assert both == json.loads(command("masked pairs", "the [MASK] sat\tthe log", "--json"))
    (side,) = both["sides"]
    assert side["tokens"].count("<sep>") == 2
    shown = command("masked pairs", "the [MASK] sat", "--pair", "the log")
    assert f"probability that the second text follows the first: {both['answer']['follows']:.2f}" in shown
    one = json.loads(command("masked pairs", "the [MASK] sat", "--json"))
    assert "follows" not in one["answer"]
    with pytest.raises(RequestError, match="must be 2 texts"):
        command("masked pairs", "the\tcat\tsat")


def test_the_json_of_a_file_and_of_the_output_is_that_of_the_whole(command, explained, tmp_path):
    run, given = explained("classification")
    shown = command("classification", given, "--json", "--out", tmp_path / "x.json")
    assert shown == "".join(json_pieces(explain_input(run, given))) + "\n"
    assert (tmp_path / "x.json").read_text("utf-8") == shown


def test_words_or_tokens_are_shown_with_what_they_look_at(command, explained):
    run, given = explained("classification")
    lines = command("classification", given).splitlines()
    assert lines[0] == f"classification: {run.predict([given])[0].text}"
    assert "self-attention: mean of 2 layers, 3 heads" in lines
    rows = [line.split()[0] for line in lines if "→" in line]
    assert rows == ["<cls>", *given.split(), "<sep>"]
    subwords = [
        line.split()[0] for line in command("classification", given, "--tokens").splitlines() if "→" in line
    ]
    assert subwords == [
        "<cls>",
        *run.processor.text.tokens(run.processor.text.encode(given)),
        "<sep>",
    ]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("fourier", "the cat"),
        ("recurrent language model", "the cat"),
        ("recurrent without attention", "red dog"),
    ],
)
def test_a_model_without_attention_has_its_views(command, name, given):
    with pytest.raises(RequestError, match="has no attention weights; choose a view "):
        command(name, given)
    assert "gradient \N{MULTIPLICATION SIGN} input" in command(name, given, "--view", "gradients")
    with pytest.raises(RequestError, match="has no attention weights"):
        command(name, given, "--kind", "self", "--view", "gradients")


def test_losses_of_a_prompt_are_in_brackets(command, explained):
    run, given = explained("language model")
    shown = command("language model", given, "--view", "losses")
    tokens = run.processor.text.tokens(run.processor.text.encode(given))
    for token in tokens[1:]:
        assert f"({token})" in shown


def test_what_looks_at_what_is_drawn_by_words(command, tmp_path):
    command("tagging", "the dog sat", "--out", tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text("utf-8").startswith("<?xml")


# Several inputs, and views of all of them ------------------------------------------------------------------


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a dog lay\n\nthe mat\r\n  \nthe cat sat\n", "utf-8")
    return path


def test_a_census_of_a_file_of_inputs(command, explained, lines, tmp_path, published):
    run, given = explained("classification")
    found = json.loads(
        command(
            "classification",
            given,
            "--inputs",
            lines,
            "--view",
            "census",
            "--json",
            "--out",
            tmp_path / "x.svg",
        )
    )
    published("explanation", found)
    assert found["input"] == given
    others = ["a dog lay", "the mat", "the cat sat"]
    assert found["more"] == explain_input(run, given, views=["census"], others=others).views
    assert found["more"]["census"]["inputs"] == 4
    assert (tmp_path / "x.svg").read_text("utf-8").startswith("<?xml")
    shown = command("classification", given, *others, "--view", "census")
    assert "Census of 6 heads over 4 inputs" in shown
    rows = shown[shown.index("Each head") :].split("\n\n")[0].splitlines()[2:]
    heads = [line.split()[:2] for line in rows]
    assert heads == [[f"{layer}.{head}", "self"] for layer in (1, 2) for head in (1, 2, 3)]


def test_a_file_is_enough(command, lines):
    found = json.loads(command("classification", "--inputs", lines, "--view", "distances", "--json"))
    assert found["input"] == "a dog lay"
    assert found["more"]["distances"]["inputs"] == 3


def test_lines_of_pairs_have_a_tab(command, tmp_path):
    file = tmp_path / "pairs.txt"
    file.write_text("the cat\ta dog\nthe mat\tthe log\n", "utf-8")
    found = json.loads(command("pairs", "--inputs", file, "--view", "census", "--json"))
    assert found["input"] == ["the cat", "a dog"]
    assert found["more"]["census"]["inputs"] == 2
    with pytest.raises(RequestError, match="--pair: not supported with several inputs"):
        command("pairs", "the cat", "the dog", "--pair", "a dog", "--view", "census")


FILES = {
    "in.txt": "the cat\n\nthe mat\n",
    "in.csv": 'id,body\n1,"the cat"\n2,\n3,the mat\n',
    "in.tsv": "id\tbody\n1\tthe cat\n2\t \n3\tthe mat\n",
    "in.jsonl": '{"body": "the cat", "id": 1}\n{"body": ""}\n{"body": "the mat"}\n',
}


@pytest.mark.parametrize("view", ["census", "distances", "patching"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_predict_reads_it(command, tmp_path, name, view):
    (tmp_path / name).write_text(FILES[name], "utf-8")
    named = [] if name == "in.txt" else ["--column", "text=body"]
    options = ["--inputs", tmp_path / name, *named, "--view", view, "--json"]
    found = json.loads(command("classification", *options))
    alone = json.loads(command("classification", "the cat", "the mat", "--view", view, "--json"))
    assert found["input"] == "the cat"
    assert found["more"] == alone["more"]


def test_what_a_file_does_not_have_is_refused_as_by_predict(command, tmp_path):
    (tmp_path / "in.csv").write_text("id,body\n1,a\n", "utf-8")
    for options, message in (
        ([], "in.csv:1: has the columns id, body, but the run reads .*--column text=NAME"),
        (["--column", "txt=body"], r"--column txt=body: unknown key 'txt'; .* \(did you mean 'text'\?\)"),
        (["--column", "b"], "in.csv:1: no column 'b'"),
    ):
        with pytest.raises(RequestError, match=message):
            command("classification", "--inputs", tmp_path / "in.csv", "--view", "census", *options)
    with pytest.raises(RequestError, match="--column: names the columns of a file; add --inputs FILE"):
        command("classification", "a", "--column", "text=body")
    with pytest.raises(RequestError, match=r"to pass a text: heedful explain .* 'a cat'"):
        command("classification", "--inputs", "a cat")


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_has_no_input(command, lines, content):
    lines.write_text(content, "utf-8")
    with pytest.raises(RequestError, match=r"lines\.txt: contains no input"):
        command("classification", "--inputs", lines, "--view", "census")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("classification", [], "no input: give INPUT or --inputs FILE"),
        (
            "classification",
            ["the", "cat"],
            "only the views patching, census and distances support .* got 2 inputs.* in quotes",
        ),
        ("classification", ["-", "--inputs", "-", "--view", "census"], "INPUT already reads standard input"),
        ("classification", ["a", "--inputs", "none.txt"], "none.txt: no such file"),
        ("fourier", ["the cat", "--view", "census"], "view census needs attention between tokens"),
        ("classification", ["the cat", "--view", "filters"], "view filters needs image patches"),
        (
            "images without class token",
            ["IMAGE", "--view", "class-token"],
            "and a class token, which this",
        ),
        ("images", ["IMAGE", "--view", "losses", "--view", "head"], "unknown view 'head'"),
        (
            "resnet",
            ["IMAGE", "--view", "rollout"],
            r"\(available: losses, occlusion, replacement, integrated-gradients, gradients\)",
        ),
        (
            "classification",
            ["the cat", "--view", "losses", "--view", "heads", "--out", "x.svg"],
            "an image must show one view, got losses and heads; .* or write .html",
        ),
    ],
)
def test_wrong_requests_get_a_clear_answer(command, image, name, arguments, message):
    given = [image if argument == "IMAGE" else argument for argument in arguments]
    with pytest.raises(RequestError, match=message):
        command(name, *given)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--memory", "inf", "--memory must be a positive number of GiB, got inf"),
        ("--memory", "nan", "--memory must be a positive number of GiB, got nan"),
        ("--memory", "0", "--memory must be a positive number of GiB, got 0"),
        ("--memory", "1e308", "--memory must be a positive number of GiB, got 1e+308"),
        ("--exact", "2.1", "--exact: requires a page (--out NAME.html)"),
        (
            "--out",
            "none/x.png",
            "--out none/x.png: cannot be written: the folder none does not exist; create it: mkdir -p none",
        ),
        (
            "--out",
            "none/x.html",
            "--out none/x.html: cannot be written: the folder none does not exist; create it: mkdir -p none",
        ),
    ],
)
def test_what_can_never_be_is_refused_before_the_run_is_read(option, value, message):
    error = CliRunner().invoke(app, ["explain", "no-run", "the cat", option, value]).exception
    assert isinstance(error, RequestError)
    assert message in str(error)


def test_heads_that_are_asked_for_have_all_their_weights(command, explained, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "MAX_WHOLE_WEIGHTS", 0)  # as if the input were long
    run, given = explained("translation")
    out = tmp_path / "x.html"
    command("translation", given, "--out", out, "--exact", "1.1", "--exact", "2")
    whole = {
        (each["kind"], each["layer"], view["head"])
        for each in json.loads(re.findall(r'id="data">(.*?)</script>', out.read_text("utf-8"))[0])["maps"]
        for view in each["views"]
        if "levels" in view
    }
    maps = explain_input(run, given).maps
    first = {(each.kind, 0, 0) for each in maps}
    second = {(each.kind, 1, head) for each in maps if each.layer == 1 for head in (*each.heads, None)}
    assert second
    assert whole == first | second
    for name, options in [("3.1", []), ("1.9", []), ("2", ["--layer", 1]), ("1.2", ["--head", 1])]:
        with pytest.raises(RequestError, match=rf"--exact {name}: this head is not shown; expected layers 1"):
            command("translation", given, "--out", out, "--exact", name, *options)
    with pytest.raises(RequestError, match=r"--exact must be LAYER\.HEAD.*, got 1:1"):
        command("translation", given, "--out", out, "--exact", "1:1")


@pytest.mark.slow
@pytest.mark.parametrize("view", [name for name in VIEWS if name not in ("gradients", "mask", "patching")])
def test_every_view_of_an_image_in_every_form(command, image, tmp_path, published, view):
    shown = command("images", image, "--view", view)
    assert len(shown.splitlines()) > len(command("images", image).splitlines()) + 1
    for suffix in ("html", "svg", "png", "json"):
        command("images", image, "--view", view, "--out", tmp_path / f"x.{suffix}")
    published("explanation", json.loads((tmp_path / "x.json").read_text("utf-8")))
    assert imread(tmp_path / "x.png").shape[2] == 4
    assert "</html>" in (tmp_path / "x.html").read_text("utf-8")


def test_several_images(command, image, tmp_path):
    other = tmp_path / "q.png"
    Image.fromarray(np.random.default_rng(4).integers(0, 256, (6, 6), dtype=np.uint8)).save(other)
    found = json.loads(command("images", image, other, "--view", "distances", "--json"))
    assert found["more"]["distances"]["inputs"] == 2
    assert found["input"] == str(image)
    with pytest.raises(RequestError, match=r"is a folder; .* or --inputs") as refusal:
        command("images", tmp_path, "--view", "distances")
    assert "(several need --view" in str(refusal.value)
    read = json.loads(command("images", "--inputs", tmp_path, "--view", "distances", "--json"))
    assert read["more"]["distances"] == found["more"]["distances"]


@pytest.mark.parametrize("name", ["images", "translation", "tagging", "fourier"])
def test_two_inputs_are_patched_in_every_form(command, image, others, tmp_path, published, explained, name):
    given, (other,) = explained(name)[1], others(name)
    if name == "images":
        given, other = image, tmp_path / "q.png"
        Image.fromarray(np.random.default_rng(4).integers(0, 256, (6, 6), dtype=np.uint8)).save(other)
    shown = command(name, given, other, "--view", "patching")
    assert "Activation patching of the residual stream: restored share of the log-" in shown
    assert ("Activation patching of heads of self-attention: " in shown) == (name != "fourier")
    for suffix in ("html", "svg", "png", "json"):
        command(name, given, other, "--view", "patching", "--out", tmp_path / f"x.{suffix}")
    published("explanation", json.loads((tmp_path / "x.json").read_text("utf-8")))


def test_the_help_tells_views_and_classes_of_heads():
    shown = CliRunner().invoke(app, ["explain", "--help"]).stdout
    for name, view in VIEWS.items():
        assert f"{name} {view.description}" in " ".join(shown.split())
    columns = {
        line.find(view.description[:20]) for name, view in VIEWS.items() for line in shown.splitlines()
    }
    assert len(columns - {-1}) == 1
    for name, each in CLASSES.items():
        assert f"{name} {each.meaning}" in " ".join(shown.split())


@pytest.mark.parametrize("name", ["images", "classification", "regression", "fourier"])
def test_all_views_are_those_of_the_run_and_the_input(explained, name):
    run, given = explained(name)
    kinds = () if name == "fourier" else None
    seen = explain_input(run, given, maps=Selection(kinds=kinds), views=["all"])
    for view in VIEWS:
        try:
            alone = explain_input(run, given, maps=Selection(kinds=kinds), views=[view]).views
        except RequestError:
            assert view not in seen.views
        else:
            assert json.dumps(seen.views[view]) == json.dumps(alone[view])


def test_a_view_that_the_input_has_not_is_left_out_with_the_reason(explained):
    run, _ = explained("masked")
    arguments = ["explain", str(run.folder.path), "the cat", "--device", "cpu", "--view", "all"]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0
    assert "view gradients is not available: the answer is empty, so there is no score" in outcome.stderr


def test_views_that_are_left_out_are_named(explained):
    run, given = explained("classification")
    arguments = ["explain", str(run.folder.path), given, "--device", "cpu", "--view", "all", "--json"]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0
    left = {name for name in VIEWS if f"view {name} is not available: it needs " in outcome.stderr}
    assert "view patching is not available: activation patching needs two inputs, got 1" in outcome.stderr
    assert left | {"patching"} == VIEWS.keys() - json.loads(outcome.stdout)["more"].keys()
    assert "class-token" in left


def test_a_class_token_is_to_be_trained(explained):
    run, given = explained("images without class token")
    with pytest.raises(RequestError, match=r"model\.pooling=first"):
        explain_input(run, given, views=["class-token"])


def test_a_caption_is_drawn_a_panel_a_word(explained):
    run, given = explained("captions")
    seen = explain_input(run, given)
    panels = [axes for axes in figure_of(seen).axes if axes.get_title()]
    shown = summary_matrix(seen).to_words()
    assert [axes.get_title() for axes in panels] == ["the image", *shown.queries.tokens]
    for axes, weights in zip(panels[1:], shown.weights, strict=True):
        drawn = np.asarray(axes.images[0].get_array())
        np.testing.assert_allclose(drawn, weights.reshape(seen.axes["source"].grid))


def test_a_text_that_is_the_name_of_a_file_is_told(explained, tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("x", "utf-8")
    folder = str(explained("translation")[0].folder.path)
    for given, is_told in ((str(path), True), ("no such file", False)):
        outcome = CliRunner().invoke(app, ["explain", folder, given, "--json", "--device", "cpu"])
        assert json.loads(outcome.stdout)["input"] == given
        remedy = "to read the inputs in this file, use --inputs (several need --view patching, census or "
        assert (remedy in outcome.stderr) == is_told


def test_views_come_before_attention_everywhere_and_attention_can_be_left_out(command, explained, tmp_path):
    run, given = explained("classification")
    view = ["--view", "occlusion"]
    shown = command("classification", given, *view, "--out", tmp_path / "both.html")
    assert shown.index("if a word is left out") < shown.index("self-attention")
    html = (tmp_path / "both.html").read_text("utf-8")
    assert html.index('id="more"') < html.index('id="written"') < html.index('id="desk"')
    names = [*json.loads(command("classification", given, *view, "--json"))]
    assert names.index("more") < names.index("maps")

    shown = command("classification", given, *view, "--kind", "none", "--out", tmp_path / "words.html")
    assert "if a word is left out" in shown
    assert "self-attention" not in shown
    data = build.page_data(explain_input(run, given, maps=Selection(kinds=()), views=["occlusion"]))
    assert build.as_script(data) in (tmp_path / "words.html").read_text("utf-8")
    assert data["maps"] == []
    found = json.loads(command("classification", given, *view, "--kind", "none", "--json"))
    assert (found["maps"], [*found["more"]]) == ([], ["occlusion"])
    with pytest.raises(RequestError, match="none cannot be combined with kinds of attention"):
        command("classification", given, "--kind", "none", "--kind", "self")


@pytest.mark.parametrize("name", ["classification", "translation", "images", "regression", "tagging"])
def test_an_image_names_the_run_the_probability_and_the_notes_as_the_other_media_do(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given)
    seen = replace(seen, answer={**seen.answer, "notes": ["cut from 9 to 7 tokens", "2 unknown words"]})
    note = " ".join(figure_of(seen).get_supxlabel().split())
    weights = seen.provenance["weights"][:12]
    model = f"run {seen.run}, weights {weights}, heedful {seen.provenance['heedful']} ({seen.task}); "
    shown = "" if name == "images" else f"input: {given if isinstance(given, str) else ' | '.join(given)} "
    assert note.startswith(shown + model)
    assert note.endswith("cut from 9 to 7 tokens; 2 unknown words")
    on_page = re.findall(r"probability [\d.e-]+", build._facts_html(seen))
    assert ("probability of the answer" in note) == (name != "regression")
    for probability in on_page[:1]:
        assert probability.replace(" ", " of the answer: ") in note


@pytest.mark.parametrize("name", ["classification", "translation", "images"])
def test_attention_is_not_shown_as_a_reason_and_where_reasons_are_is_said(command, explained, image, name):
    given = image if name == "images" else explained(name)[1]
    plain = " ".join(command(name, given).split())
    assert plain.endswith(f"{ABOUT_ATTENTION} --view occlusion shows what decided.")
    with_reason = command(name, given, "--view", "occlusion")
    assert " ".join(with_reason.split()).endswith(ABOUT_ATTENTION)
    assert ABOUT_ATTENTION not in " ".join(
        command(name, given, "--view", "occlusion", "--kind", "none").split()
    )


def test_the_help_says_what_the_command_does_and_that_attention_is_no_reason():
    shown = " ".join(CliRunner().invoke(app, ["explain", "--help"]).stdout.split())
    assert "Explain an answer: which words decided (--view occlusion)" in shown
    assert "does not say why the answer was given" in shown


def test_the_old_name_of_the_memory_limit_is_refused_and_names_the_new_one(command):
    with pytest.raises(RequestError, match=r"--limit 3: not supported; .*--memory GIB; .* shorter file"):
        command("classification", "the cat", "--limit", "3")
