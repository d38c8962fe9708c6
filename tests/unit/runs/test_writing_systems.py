"""Runs on texts in twelve writing systems: trained, predicting, scored and explained."""

import json
from itertools import pairwise
from unicodedata import is_normalized, normalize

import pytest
import regex
from browser import Browser, missing
from matplotlib.font_manager import findSystemFonts

from heedful.api.run import load
from heedful.data.sources import JsonlSource
from heedful.explain.capture import explain_input
from heedful.explain.drawing.heat_map import figure_of, save
from heedful.explain.drawing.terminal import SHADES, heat_map
from heedful.explain.json_format import json_pieces
from heedful.explain.page.build import page
from heedful.explain.summary import summary_matrix, word_alignment
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import evaluate
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.text.scripts import segments

pytestmark = pytest.mark.slow

TEXTS = {
    "Latin": ["Déjà vu à Göteborg.", "Żółta łódka płynie.", "Mañana será otro día."],
    "Cyrillic": ["Кошка сидит у окна.", "Мой ёж спит.", "Дети читают книгу."],
    "Greek": ["Η γάτα κοιμάται.", "Το παιδί διαβάζει βιβλίο.", "Καλημέρα σας."],
    "Arabic": ["می‌خواهم اینجا بخوابم.", "الولد يقرأ كتابا.", "صباح الخير."],
    "Hebrew": ["החתול ישן כאן.", "הילד קורא ספר.", "בוקר טוב."],
    "Devanagari": ["बिल्ली सो रही है।", "बच्चा किताब पढ़ता है।", "नमस्ते दुनिया।"],
    "Tamil": ["பூனை தூங்குகிறது.", "குழந்தை படிக்கிறது.", "காலை வணக்கம்."],
    "Thai": ["แมวนอนอยู่ที่นี่", "เด็กอ่านหนังสือ", "สวัสดีตอนเช้า"],
    "Han": ["猫在这里睡觉。", "孩子正在看书。", "早上好，世界！"],
    "Japanese": ["猫がここで寝ている。", "子供が本を読む。", "おはようございます。"],
    "Hangul": ["고양이가 자고 있다.", "아이가 책을 읽는다.", "좋은 아침입니다."],
    "emoji": ["👩‍👩‍👧 ❤️ 🐈", "🐕 🏃🏽‍♀️ 🌳", "🌞 ☕️ 👍🏿"],
}
LETTERS = {
    "Japanese": r"[\p{Han}\p{Hiragana}\p{Katakana}]",
    "emoji": r"[\p{Emoji_Presentation}\p{Emoji_Modifier}\u200d\ufe0f❤☕♀]",
}
WITHOUT_SPACES = ("Thai", "Han", "Japanese")


def of_script(script):
    return regex.compile(LETTERS.get(script, rf"\p{{{script}}}"))


def put(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def train(folder, kind, rows, model, updates, **sections):
    """Train on these rows for a few updates."""
    put(folder / "rows.jsonl", rows)
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": {key: key for key in rows[0]}}
    layer = {"mixer": {"kind": "attention", "n_heads": 4}, "channels": {"kind": "feed-forward", "d_ff": 64}}
    tree = {
        "task": {"kind": kind},
        "data": {"train": source, "valid": source},
        "tokenizer": {"subwords": {"kind": "bpe", "merges": 200, "min_frequency": 1}},
        "model": {"d_model": 48, "n_layers": 1, "dropout": 0.0, "layer": layer, **model},
        "schedule": {"kind": "constant", "peak": 5e-3},
        "training": {"max_updates": updates, "tokens_per_update": 600, "precision": "fp32", "average": 1},
        "root": str(folder),
        **sections,
    }
    train_run(recipe_from(Tree.of(tree, Mark("r"))), folder / "run", device="cpu")
    return load(folder / "run", device="cpu")


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """Return a run that learned which sentence of its script follows each sentence."""
    folder = tmp_path_factory.mktemp("translator")
    rows = [
        {"source": source, "target": target}
        for texts in TEXTS.values()
        for source, target in pairwise([*texts, texts[0]])
    ]
    return train(folder, "translation", rows, {"kind": "transformer"}, 90)


@pytest.mark.parametrize("script", TEXTS)
def test_texts_come_back_in_their_script(translator, script):
    texts = TEXTS[script]
    found = translator.predict([*texts, ""])
    assert len(found) == len(texts) + 1
    assert not any(prediction.error for prediction in found)
    for prediction in found[:-1]:
        assert of_script(script).search(prediction.text)
        others = [name for name in TEXTS if name not in (script, "Japanese", "Han")]
        assert not any(of_script(name).search(prediction.text) for name in others)
        assert is_normalized("NFC", prediction.text)
    # The same texts, decomposed as on another system.
    decomposed = translator.predict([normalize("NFD", text) for text in texts])
    assert [prediction.text for prediction in decomposed] == [prediction.text for prediction in found[:-1]]


@pytest.mark.parametrize("script", TEXTS)
def test_scores_count_words_of_the_script(translator, tmp_path, script):
    texts = TEXTS[script]
    rows = [
        {"source": normalize("NFD", source), "target": target}
        for source, target in pairwise([*texts, texts[0]])
    ]
    put(tmp_path / "rows.jsonl", rows)
    columns = {"source": "source", "target": "target"}
    found = evaluate(translator, "own", JsonlSource(paths=str(tmp_path / "rows.jsonl"), columns=columns))
    scores = {score.name: score for score in found.scores}
    tokeniser = {"Thai": "char", "Han": "zh", "Japanese": "(char|ja-mecab[^|]*)"}.get(script, "13a")
    assert regex.search(rf"\|tok:{tokeniser}\|", scores["BLEU"].signature)
    assert any("no spaces between words" in note for note in found.notes) == (script in WITHOUT_SPACES)
    assert scores["chrF2"].value > 70
    assert scores["BLEU"].value > 50 or script not in WITHOUT_SPACES  # few of the others have four words
    assert scores["TER"].value < 50
    assert len(list(found.rows())) == len(rows)


@pytest.mark.filterwarnings("ignore:no installed font has characters of")
@pytest.mark.parametrize("script", TEXTS)
def test_explanations_are_between_words(translator, tmp_path, script):
    text = TEXTS[script][0]
    explanation = explain_input(translator, text)
    source, target = (explanation.axes[side] for side in ("source", "target"))
    assert "".join(source.surface) == "".join(text.split())
    assert "".join(target.surface) == "".join(explanation.text.split())
    if script in WITHOUT_SPACES:
        assert len(source.surface) > 1
        assert max(map(len, source.surface)) < len(text) - 1
        assert word_alignment(summary_matrix(explanation)) != "0-0"
    else:
        assert list(source.surface) == text.split() == segments(text)
    matrix = summary_matrix(explanation).to_words()
    assert ("each piece is a word" in matrix.title) == (script in WITHOUT_SPACES)
    assert matrix.weights.shape == (len(target.surface) + 1, len(source.surface) + 1)
    shown = heat_map(matrix.keys.tokens, matrix.queries.tokens, matrix.weights, style=SHADES, width=120)
    assert len(shown.splitlines()) > len(target.surface)
    record = json.loads("".join(json_pieces(explanation)))
    assert {axis["name"]: axis["surface"] for axis in record["sides"]}["source"] == list(source.surface)
    save(figure_of(explanation), tmp_path / "map.svg")
    assert "<svg" in (tmp_path / "map.svg").read_text("utf-8")
    html = page(explanation)
    assert 'dir="auto"' in html
    assert text in html


SHOWN = """
const chips = [...document.querySelectorAll("[role=listbox] .chip")];
return {
  texts: chips.map((chip) => chip.textContent.trim()),
  lefts: chips.map((chip) => chip.getBoundingClientRect().left),
  widths: chips.map((chip) => chip.getBoundingClientRect().width),
  lines: new Set(chips.map((chip) => chip.offsetTop)).size,
  direction: getComputedStyle(chips[0].parentElement).direction,
}
"""
"""Script that returns the tokens of the prediction as the page draws them."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if missing():
        pytest.skip(f"not on this machine: {', '.join(missing())}")
    opened = Browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.mark.parametrize("script", TEXTS)
def test_pages_show_the_text_in_the_direction_of_its_script(translator, browser, script):
    explanation = explain_input(translator, TEXTS[script][0])
    browser.show(width=1400)
    browser.log("browser"), browser.log("performance")
    address = browser.open(page(explanation))
    shown = browser.execute(SHOWN)
    # Without the marks of spaces, and joiners, whose bytes are tokens.
    letters = regex.sub("\N{LOWER ONE EIGHTH BLOCK}|<0x[0-9A-F]{2}>", "", "".join(shown["texts"]))
    assert letters.startswith(regex.sub(r"\s|\u200d", "", explanation.text))
    assert min(shown["widths"]) > 0
    to_left = script in ("Arabic", "Hebrew")
    assert shown["direction"] == ("rtl" if to_left else "ltr")
    if shown["lines"] == 1:
        assert shown["lefts"] == sorted(shown["lefts"], reverse=to_left)
    assert browser.log("browser") == []
    assert {url for url in browser.requested() if not url.startswith("data:")} <= {address}


def fonts_of(package):
    """Return whether the fonts of a Debian package are installed."""
    names = {"fonts-noto-core": "NotoSansTamil", "fonts-noto-cjk": "NotoSansCJK", "fonts-symbola": "Symbola"}
    return any(names[package] in path for path in findSystemFonts())


@pytest.mark.filterwarnings("error:no installed font has characters of")
@pytest.mark.parametrize("script", TEXTS)
def test_pictures_have_letters_where_the_fonts_of_the_script_are_installed(translator, tmp_path, script):
    package = "fonts-noto-cjk" if script in ("Han", "Japanese", "Hangul") else "fonts-noto-core"
    package = "fonts-symbola" if script == "emoji" else package
    if not fonts_of(package):
        pytest.skip(f"not on this machine: the package {package}")
    save(figure_of(explain_input(translator, TEXTS[script][0])), tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 2000


TAGGED = {
    "Arabic": ("القطة نائمة هنا", "N V A"),
    "Devanagari": ("बिल्ली यहाँ सोती है", "N A V V"),
    "Thai": ("แมว นอน ที่นี่", "N V A"),
    "Japanese": ("猫 が ここ で 寝る", "N P A P V"),
    "Hangul": ("고양이가 여기서 잔다", "N A V"),
}


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    rows = [{"words": words, "tags": tags} for words, tags in TAGGED.values()]
    return train(
        tmp_path_factory.mktemp("tagger"), "tagging", rows, {"kind": "encoder", "max_length": 60}, 40
    )


@pytest.mark.parametrize("script", TAGGED)
def test_words_of_any_script_get_their_tags(tagger, script):
    words, tags = TAGGED[script]
    found = tagger.predict([words, normalize("NFD", words)])
    assert [prediction.text for prediction in found] == [tags, tags]
    assert found[0].words == words.split()
    assert explain_input(tagger, words).axes["input"].surface == tuple(words.split())


ASKED = {
    "Arabic": ("أين القطة؟", "القطة في البيت الكبير.", "البيت الكبير"),
    "Devanagari": ("बिल्ली कहाँ है?", "बिल्ली बड़े घर में है।", "बड़े घर"),
    "Thai": ("แมวอยู่ที่ไหน", "แมวอยู่ในบ้านหลังใหญ่", "บ้านหลังใหญ่"),
    "Japanese": ("猫はどこですか。", "猫は大きな家でごはんを食べる。", "大きな家"),
    "Hangul": ("고양이는 어디에 있나?", "고양이는 큰 집에 있다.", "큰 집에"),
}


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    rows = [dict(zip(("question", "passage", "answer"), texts, strict=True)) for texts in ASKED.values()]
    folder = tmp_path_factory.mktemp("answerer")
    model = {"kind": "encoder", "max_length": 150}
    return train(folder, "question-answering", rows, model, 60, tokenizer={"subwords": {"kind": "character"}})


@pytest.mark.parametrize("script", ASKED)
def test_answers_are_cut_out_of_passages_as_they_are_written(answerer, script):
    for form in ("NFC", "NFD"):
        question, passage, answer = (normalize(form, text) for text in ASKED[script])
        (found,) = answerer.predict([(question, passage)])
        assert passage[found.start : found.end] == found.text
        assert found.text == answer
