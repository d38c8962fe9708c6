"""The page of a service in a real browser: typed in, pressed, read; with runs of several tasks."""

import json
import os
import re
import signal
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from browser import Browser, missing
from services import Service, another
from tiny_runs import make

KINDS = [
    "translation",
    "language-modelling",
    "classification",
    "multilabel-classification",
    "regression",
    "tagging",
    "image-classification",
]
AXE = Path(__file__).parents[2] / ".venv" / "node_modules" / "axe-core" / "axe.min.js"
WAIT = 30

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"missing: {', '.join(missing())}"),
]

CONTRAST = """\
const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const colour = parse(getComputedStyle(node).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const weak = [];
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
  if (node.closest("button:disabled, .tagged")) continue;
  const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) weak.push(walker.currentNode.data);
}
return weak;
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        make(kind, folder / kind)
    return {kind: folder / kind / "finished" for kind in KINDS}


@pytest.fixture(scope="module")
def service(runs):
    running = Service(runs, timeout=180)
    yield running
    running.close()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


class Page:
    """The page of a service in a browser."""

    def __init__(self, chromium, service):
        self.chromium, self.service = chromium, service
        self.run = chromium.execute

    def open(self, path, *, dark=False, width=1100, height=900):
        self.chromium.show(dark=dark, width=width, height=height)
        self.chromium.load("about:blank")
        self.chromium.log("browser")
        self.chromium.load(f"http://127.0.0.1:{self.service.port}/#/{path}")
        self.until("document.querySelector('.form, dialog, .error')")
        return self

    def until(self, condition):
        end = time.monotonic() + WAIT
        while not (found := self.run(f"return {condition}")):
            assert time.monotonic() < end, (condition, self.text(), self.chromium.log("browser"))
            time.sleep(0.05)
        return found

    def text(self, selector="main"):
        return self.run("return document.querySelector(arguments[0])?.innerText", selector)

    def fill(self, text, number=0, selector="textarea"):
        self.run(
            "const node = document.querySelectorAll(arguments[0])[arguments[1]]; node.value = arguments[2];"
            "node.dispatchEvent(new Event('input', {bubbles: true}))",
            selector,
            number,
            text,
        )

    def click(self, selector, number=0):
        self.run("document.querySelectorAll(arguments[0])[arguments[1]].click()", selector, number)

    def said(self):
        """What a screen reader announces, once there is an answer."""
        return self.until("document.querySelector('.answers [role=status]').textContent")

    def explain(self):
        self.run("document.querySelector('.panel > .more').open = true")
        self.until("document.querySelector('iframe.there')")

    def choose_image(self, content):
        script = (
            "const data = new DataTransfer();"
            "data.items.add(new File([Uint8Array.from(arguments[0])], 'a.png', {type: 'image/png'}));"
            "const input = document.querySelector('input[type=file]'); input.files = data.files;"
            "input.dispatchEvent(new Event('change', {bubbles: true}))"
        )
        self.run(script, list(content))

    def is_quiet(self):
        assert self.chromium.log("browser") == []


@pytest.fixture
def page(chromium, service):
    page = Page(chromium, service)
    yield page
    page.is_quiet()


def continued(page):
    for name, value in (("Most tokens", "4"), ("Seed", "3")):
        fields = page.run("return [...document.querySelectorAll('.row label')].map(e => e.textContent)")
        page.fill(value, selector=".row input, .row select", number=fields.index(name))
    page.click("button.main")
    page.until("document.querySelector('.words.inline .word')")


def answered(page, kind, runs):
    """Open the form of a run, and have it answer something."""
    if kind == "image-classification":
        file = sorted(runs[kind].parent.glob("*.png"))[0]
        page.choose_image(file.read_bytes())
    else:
        page.fill("a b c")
    if kind == "language-modelling":
        continued(page)
    return page.said()


def test_a_slow_answer_is_announced(page, service):
    page.open("classification")
    engines = service.engines()
    try:
        for engine in engines:
            os.kill(engine, signal.SIGSTOP)
        page.fill("a b c")
        page.until("document.querySelector('.answer').innerText.includes('Computing')")
    finally:
        for engine in engines:
            os.kill(engine, signal.SIGCONT)
    page.said()
    assert "Computing" not in page.text(".answer")


def test_translations_are_typed_and_read_with_their_alignment(page, service):
    (expected,) = service.predictions("translation", ["a b c"], beam=3, n_best=3, alignment=True)
    page.open("translation").fill("a b c")
    assert page.said() == expected["output"]
    words = page.run("return [...document.querySelectorAll('.output .word')].map(e => e.textContent)")
    assert words == expected["output"].split()
    others = page.run("return [...document.querySelectorAll('.others li')].map(e => e.innerText)")
    assert [line.rpartition(" ")[0].strip() for line in others] == [
        each["output"].strip() for each in expected["alternatives"]
    ]
    for read, written in expected["alignment"]:
        page.run(
            "document.querySelectorAll('.output .word')[arguments[0]].dispatchEvent(new Event('mouseenter'))",
            written,
        )
        linked = page.run(
            "return [...document.querySelectorAll('.aligned .word')].map(e => e.className.includes('linked'))"
        )
        assert linked[read]


def test_an_answer_is_that_of_the_last_text(page, service):
    (expected,) = service.predictions("classification", ["a b c"], n_best=4)
    page.open("classification")
    for end in range(1, 6):
        page.fill("a b c"[:end])
    label = page.said().split(",")[0]
    page.until("!document.querySelector('[aria-busy=true]')")
    assert label == expected["output"]
    names = page.run("return [...document.querySelectorAll('.bar .name')].map(e => e.firstChild.data)")
    chances = expected["probabilities"]
    assert names == sorted(chances, key=chances.get, reverse=True)
    page.fill("")
    page.until("document.querySelector('.answer').innerText.includes('appears here')")


def test_a_continuation_is_streamed_and_branched_off(page):
    page.open("language-modelling").fill("a b")
    continued(page)
    page.click(".words.inline .word", 1)
    page.until("document.querySelector('.choices-of button')")
    before = page.run(
        "return [...document.querySelectorAll('.words.inline .word')].slice(0, 1).map(e => e.textContent)"
    )
    choices = page.run("return [...document.querySelectorAll('.choices-of button')].map(e => e.disabled)")
    assert len(choices) >= 2
    # What is offered at a token holds it, or is all that is more probable.
    texts = page.run("return [...document.querySelectorAll('.choices-of .number')].map(e => e.textContent)")
    noted = page.run("return document.querySelectorAll('.words.inline .word')[1].title")
    chosen = page.run("return document.querySelector('.choices-of .chosen .number')?.textContent")
    assert chosen in (noted, None)
    assert len(texts) == len(choices)
    free = choices.index(False)
    chosen = page.run(
        "return document.querySelectorAll('.choices-of button')[arguments[0]].textContent", free
    )
    page.click(".choices-of button", free)
    kept = page.until("document.querySelector('.kept')?.textContent")
    assert kept.strip().startswith(before[0].strip("·⏎"))
    assert kept.replace("\n", "⏎").strip().endswith(chosen.strip("␣"))
    page.until("[...document.querySelectorAll('.answer button')].some(e => e.textContent.startsWith('Back'))")
    page.run(
        "[...document.querySelectorAll('.answer button')].find(e => e.textContent.startsWith('Back')).click()"
    )
    page.until("document.querySelector('.kept')?.textContent === ''")
    page.until("document.querySelector('.words.inline')")


def stream_of(page, *events):
    """Answer streams with these events, and then with nothing, until the page gives them up."""
    text = "".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in events)
    page.run(
        """
        const asked = window.fetch;
        window.fetch = (address, settings) =>
          !String(address).endsWith("/stream") ? asked(address, settings) :
          Promise.resolve(new Response(new ReadableStream({ start(controller) {
            controller.enqueue(new TextEncoder().encode(arguments_[0]));
            settings.signal.addEventListener("abort", () => controller.error(settings.signal.reason));
          } })));
        """.replace("arguments_[0]", json.dumps(text))
    )


def test_what_is_written_stays_when_it_is_stopped_or_lost_and_one_goes_on_from_there(page):
    page.open("language-modelling").fill("a b")
    stream_of(page, ("piece", {"text": " c c"}))
    page.click(".buttons [type=submit]")
    page.until("document.querySelector('.new')?.textContent === ' c c'")
    page.run("[...document.querySelectorAll('.buttons button')].find(e => e.textContent === 'Stop').click()")
    page.until("document.querySelector('.answer .note')")
    assert page.text(".answer .output") == "a b c c"
    assert page.said() == "Stopped"
    assert page.text(".problem") == ""
    stream_of(page, ("piece", {"text": " b"}), ("error", {"status": 503, "message": "the engine was lost"}))
    page.run("[...document.querySelectorAll('.answer button')].find(e => e.textContent === 'Go on').click()")
    page.until("document.querySelector('.problem .error')")
    assert page.text(".answer .output") == "a b c c b"
    assert "the engine was lost" in page.text(".problem")
    stream_of(page, ("error", {"status": 503, "message": "the engine was lost"}))
    page.click(".buttons [type=submit]")
    page.until("document.querySelector('.answer')?.textContent.includes('Nothing was written')")


@pytest.mark.parametrize("kind", KINDS)
def test_each_task_answers_and_explains(page, service, runs, kind):
    page.open(kind)
    said = answered(page, kind, runs)
    assert said
    assert page.text(".problem") == ""
    page.explain()
    assert page.text(".panel > .more [role=alert]") == ""
    height = page.run("return document.querySelector('iframe').getBoundingClientRect().height")
    assert height > 200
    # What is explained follows the choices.
    page.click(".views input:not(:checked)")
    page.until("document.querySelector('.explanation[aria-busy]')")
    page.until("!document.querySelector('.explanation[aria-busy]')")
    calls = page.run("return [...document.querySelectorAll('.calls pre')].map(e => e.textContent)")
    assert len(calls) == 2
    assert all(f"/v1/runs/{kind}/" in call for call in calls)


def test_the_call_in_python_gives_the_answer(page, tmp_path, process):
    page.open("classification").fill("a 'b' \"c\" \\ ☃")
    label = page.said().split(",")[0]
    _, code = page.run("return [...document.querySelectorAll('.calls pre')].map(e => e.textContent)")
    done = process("-c", code, cwd=tmp_path)
    assert f"'output': {label!r}" in done.stdout, done.stderr


def test_vectors_are_neighbours(page):
    page.open("classification/neighbours").fill("a b c")
    page.fill("c c c\na b c d\n\na b", number=1)
    assert page.said().startswith("The nearest:")
    numbers = page.run("return [...document.querySelectorAll('.near .number')].map(e => e.textContent)")
    cosines = [float(number.replace("−", "-")) for number in numbers]
    assert len(cosines) == 3
    assert cosines == sorted(cosines, reverse=True)
    assert all(-1.001 <= cosine <= 1.001 for cosine in cosines)


def test_texts_are_never_markup(page):
    page.open("tagging").fill("<img src=x onerror=alert(1)> <b>a</b>")
    page.said()
    assert page.run("return document.querySelectorAll('main img, main b').length") == 0
    assert "<b>a</b>" in page.run("return document.querySelector('textarea').value")


def test_errors_are_the_services_own_words(chromium, service):
    page = Page(chromium, service).open("translation")
    page.fill("a b c")
    page.said()
    _, found = service.post("translation", "predict", {"inputs": ["a " * 70_000]})
    page.fill("a " * 70_000)
    page.until("document.querySelector('.problem .error')")
    assert page.text(".problem .error").startswith(re.split(r"\d", found["error"]["message"])[0])
    # Only the browser's own report of the status of the response.
    assert all("the server responded with a status" in entry["message"] for entry in chromium.log("browser"))


def recorded(page):
    """Record the bodies of requests from now on; return what reads those of a verb."""
    page.run(
        "window.bodies = []; const fetch_ = window.fetch;"
        "window.fetch = (url, settings) => {"
        " bodies.push([String(url), settings.body]); return fetch_(url, settings); }"
    )
    return lambda verb: [json.loads(body) for url, body in page.run("return bodies") if url.endswith(verb)]


def test_a_tagger_explains_the_words_of_its_answer(page, service):
    text = "a, b (c)"
    (expected,) = service.predictions("tagging", [text], words="raw")
    assert expected["words"] == ["a", ",", "b", "(", "c", ")"]
    page.open("tagging").fill(text)
    bodies = recorded(page)
    page.said()
    page.explain()
    assert bodies("explain")[-1]["inputs"] == [{"words": expected["words"]}]
    page.click("#split-words")
    page.until("bodies.filter(([url]) => url.endsWith('explain')).length === 2")
    assert bodies("explain")[-1]["inputs"] == [{"words": text.split()}]


@pytest.mark.parametrize("kind", ["translation", "tagging"])
def test_each_line_is_an_input_of_its_own(page, service, kind):
    lines = ["a b c", "c c a", "b"]
    page.open(kind).fill("\n\n".join(["a b c", " \t", "c c a", "b\n"]))
    bodies = recorded(page)
    assert page.said().startswith("3 lines")
    (asked,) = bodies("predict")
    column = {"translation": "source", "tagging": "words"}[kind]
    assert asked["inputs"] == [{column: line} for line in lines]
    expected = service.predictions(kind, **asked)
    if kind == "translation":
        # Blank lines stay, also in what is copied.
        text = page.run("return document.querySelector('.output').textContent")
        assert text == "{}\n\n\n\n{}\n\n{}".format(*(each["output"] for each in expected))
        page.run("document.querySelectorAll('.answer > .words > .word')[1].click()")
        assert page.text(".line-of h2") == "Line 2 of 3"
        words = page.run(
            "return [...document.querySelectorAll('.line-of .output .word')].map(e => e.textContent)"
        )
        assert words == expected[1]["output"].split()
    else:
        tags = page.run(
            "return [...document.querySelectorAll('.line')]"
            ".map(e => [...e.querySelectorAll('.tagged .tag')].map(e => e.textContent))"
        )
        assert tags == [each["output"] for each in expected]
        page.click(".line:nth-child(2) .word")
    page.explain()
    explained = lines[1] if kind == "translation" else lines[1].split()
    assert bodies("explain")[-1]["inputs"] == [{column: explained}]
    # Only the line that has changed is asked for again.
    page.fill("a b c\n\nc c a a\nb")
    page.until("bodies.filter(([url]) => url.endsWith('predict')).length === 2")
    assert bodies("predict")[-1]["inputs"] == [{column: "c c a a"}]


def test_many_lines_are_asked_for_in_parts(page, service):
    lines = [f"{'a ' * (n % 7)}b {'c ' * (n // 7)}" for n in range(70)]
    page.open("tagging").fill("\n".join(lines))
    bodies = recorded(page)
    assert page.said() == "70 lines"
    asked = bodies("predict")
    assert len(asked) == 3
    assert [line["words"] for body in asked for line in body["inputs"]] == lines
    expected = service.predictions("tagging", lines, words="raw")
    tags = page.run(
        "return [...document.querySelectorAll('.line')]"
        ".map(e => [...e.querySelectorAll('.tagged .tag')].map(e => e.textContent))"
    )
    assert tags == [each["output"] for each in expected]


def test_of_a_very_long_line_the_first_words_are_shown(page):
    page.open("tagging").fill("a b " * 3000)
    page.said()
    assert page.run("return document.querySelectorAll('.tagged').length") == 2000
    assert "The first 2,000 of 6,000 words" in page.text(".answer")


def test_a_number_out_of_its_range_is_not_sent(page):
    page.open("translation").fill("a b c")
    page.said()
    bodies = recorded(page)
    answers, beam = 0, 1
    page.fill("5", selector="input[type=number]", number=answers)
    page.until("bodies.length === 1")
    assert page.run("return document.querySelectorAll('input[type=number]')[1].value") == "5"
    for value, message in (("2", "from 5 to 64"), ("65", "from 5 to 64"), ("7.5", "a whole number")):
        page.fill(value, selector="input[type=number]", number=beam)
        page.until(f"document.querySelector('.problem').textContent.includes({message!r})")
        assert page.text(".problem").startswith("Beam: ")
        assert page.run("return document.querySelectorAll('input[type=number]')[1].ariaInvalid") == "true"
    assert page.text(".answer")
    page.fill("6", selector="input[type=number]", number=beam)
    page.until("!document.querySelector('.problem').textContent")
    page.until("bodies.length === 2")
    assert [(each["n_best"], each["beam"]) for each in bodies("predict")] == [(5, 5), (5, 6)]


def test_by_keyboard_alone(page):
    page.open("classification")
    page.chromium.move(1, 1, click=True)
    for _ in range(30):
        page.chromium.press("Tab")
        if page.run("return document.activeElement.tagName") == "TEXTAREA":
            break
    page.chromium.press(*"a b c")
    assert page.said()
    for _ in range(9):
        page.chromium.press("Tab")
        if page.run("return document.activeElement.textContent") == "Why?":
            break
    assert page.run("return document.activeElement.textContent") == "Why?"
    page.chromium.press("Enter")
    page.until("document.querySelector('iframe.there')")


def test_words_have_one_tab_stop_and_arrow_keys(page):
    page.open("translation").fill("a b c")
    page.said()
    stops = page.run("return document.querySelectorAll('.output .word[tabindex=\"0\"]').length")
    assert stops == 1
    n = page.run(
        "const words = document.querySelectorAll('.output .word'); words[0].focus(); return words.length"
    )
    page.chromium.press("End")
    assert (
        page.run("return [...document.querySelectorAll('.output .word')].indexOf(document.activeElement)")
        == n - 1
    )


def test_tabs_keep_what_was_typed(page):
    page.open("classification").fill("a b c")
    page.said()
    page.run("location.hash = '#/translation'")
    page.until("document.querySelector('h1').textContent === 'translation'")
    page.run("location.hash = '#/classification'")
    page.until("document.querySelector('h1').textContent === 'classification'")
    assert page.run("return document.querySelector('textarea').value") == "a b c"
    assert page.run("return document.title").startswith("classification")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_narrow_and_legible(page, runs, kind, dark):
    page.open(kind, dark=dark, width=360, height=740)
    answered(page, kind, runs)
    page.explain()
    page.run("document.querySelectorAll('details').forEach(e => { e.open = true })")
    assert page.run("return document.documentElement.scrollWidth") <= 360
    assert page.run(CONTRAST) == []


@pytest.mark.skipif(not AXE.is_file(), reason="missing: axe-core (make .venv/node_modules)")
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_no_violations(page, runs, kind):
    page.open(kind)
    answered(page, kind, runs)
    page.run("document.querySelectorAll('.panel > .more').forEach(e => { e.open = true })")
    page.until("document.querySelector('iframe.there')")
    # Beside the content security policy of the page.
    page.chromium.devtools("Runtime.evaluate", expression=AXE.read_text(encoding="utf-8"))
    page.run(
        "window.found = null; axe.run(document, {iframes: false, preload: false})"
        ".then(r => { window.found = r.violations.map(v => [v.id, v.nodes.map(n => n.html)]) })"
    )
    page.until("window.found !== null")
    assert page.run("return window.found") == []


def test_a_key_is_asked_for(chromium, runs, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("open-sesame-open-sesame\n")
    with another({"c": runs["classification"]}, "--api-key-file", str(keys)) as service:
        page = Page(chromium, service)
        page.open("c")
        for key in ("wrong", "open-sesame-open-sesame"):
            page.until("document.querySelector('dialog[open] input')")
            page.run("document.querySelector('dialog input').value = arguments[0]", key)
            page.click("dialog button")
            refused = "document.querySelector('dialog p').textContent.includes('not accepted')"
            page.until(f"!document.querySelector('dialog') || {refused}")
        page.until("document.querySelector('textarea')")
        page.fill("a b c")
        assert page.said()
        calls = page.run("return [...document.querySelectorAll('.calls pre')].map(e => e.textContent)")
        assert "open-sesame-open-sesame" not in "".join(calls)
        assert "$KEY" in calls[0]
        assert page.run("return localStorage.length") == 0
        chromium.log("browser")


def test_the_files_of_the_page(service):
    status, body = service.get("/")
    assert status == 200
    assert body.startswith(b"<!doctype html>")
    assert b"<script>" not in body
    assert b"style=" not in body
    for path in re.findall(rb'(?:href|src)="(page/[^"]+)"', body):
        assert service.get(f"/{path.decode()}")[0] == 200
    with urlopen(f"http://127.0.0.1:{service.port}/") as response:
        headers = response.headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self';" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers.get_all("cache-control") == ["no-cache"]
    assert service.request("GET", "/", headers={"if-none-match": headers["etag"]}) == (304, b"")
    assert service.get("/page/nothing.js")[0] == 404
    assert service.get("/page/../app.py")[0] == 404
    openapi = json.loads(service.get("/openapi.json")[1])
    assert not [path for path in openapi["paths"] if path.startswith("/page") or path == "/"]
