"""Error rates of heads: constructed links with known rates, runs whose own links are the gold, guidance."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from heedful.api.run import load
from heedful.config import merged
from heedful.data.corpora.phrasebook import phrasebook
from heedful.errors import DataError, RequestError
from heedful.explain.alignment.error_rates import (
    AlignmentEvaluation,
    attention_between_words,
    evaluate_alignments,
    links_of,
    most_accurate,
    rate_heads,
)
from heedful.explain.alignment.word_alignment import (
    HeadChoice,
    WordAttention,
    attention_between_ids,
    links,
    merge_subwords,
)
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.tasks.generation.sequence_formats import EncoderDecoderFormat
from heedful.tasks.metrics.alignment import Alignment
from heedful.text.configuration import PreprocessingConfig
from heedful.text.words import surface_words, word_ids_of_all
from heedful.training.callbacks import JsonLines

A, B = HeadChoice(0, 0), HeadChoice(1)


def gold_of(*pairs):
    return [Alignment(frozenset(sure), frozenset()) for sure in pairs]


def test_rates_of_two_heads_on_both_parts():
    """Head A is right on the first pair and half right on the rest; B is wrong, then right."""
    gold = gold_of({(0, 0), (1, 1)}, {(0, 1)}, {(2, 2)})
    right, wrong = [frozenset(g.sure) for g in gold], frozenset({(5, 5)})
    found = {A: [right[0], right[1], wrong], B: [wrong, right[1], right[2]]}
    a, b = rate_heads(found, gold, 1)
    assert (a.choice, b.choice) == (A, B)
    assert (a.development.value, b.development.value) == (0.0, 1.0)
    assert (a.score.value, b.score.value) == (pytest.approx(0.5), 0.0)
    assert most_accurate([a, b]) is a
    assert a.score.details == {"precision": 0.5, "recall": 0.5}
    assert a.to_dict() == {
        "layer": 0,
        "head": 0,
        "step": "output",
        "development": 0.0,
        "value": 0.5,
        "precision": 0.5,
        "recall": 0.5,
    }
    assert (b.to_dict()["layer"], b.to_dict()["head"]) == (1, None)
    # Without a development part, the best on all is chosen: A has 3 of 4 links right, B 2 of 3.
    a, b = rate_heads(found, gold)
    assert a.development is None
    assert a.rate == a.score.value == pytest.approx(1 - 6 / 8)
    assert b.rate == pytest.approx(1 - 4 / 7)


SHARP = [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]
CROSSED = [[0.2, 0.6, 0.2], [0.5, 0.3, 0.2], [0.0, 0.0, 1.0]]
FLAT = [[0.3, 0.3, 0.4], [0.4, 0.3, 0.3], [1.0, 0.0, 0.0]]


def test_the_most_accurate_head_is_the_one_that_has_the_gold_links():
    weights = np.array([[SHARP, FLAT], [SHARP, CROSSED]])
    seen = WordAttention(("a", "b", "</s>"), ("x", "y", "</s>"), weights)
    table = rate_heads(links_of([seen]), gold_of({(1, 0), (0, 1)}))
    rates = {each.choice: each.score.value for each in table}
    assert most_accurate(table).choice == HeadChoice(1, 1)
    assert rates[HeadChoice(1, 1)] == 0.0
    assert rates[HeadChoice(0, 0)] == 1.0
    # FLAT links target 1 to source 0, and target 0 to none: AER = 1 - (1 + 1) / (1 + 2)
    assert rates[HeadChoice(0, 1)] == pytest.approx(1 / 3)
    assert most_accurate([each for each in table if each.choice.layer == 0]).choice == HeadChoice(0, 1)


def test_a_head_without_links_has_no_rate_where_none_is_sure_and_the_others_stand():
    gold = [Alignment(frozenset(), frozenset({(0, 0)}))] * 2
    none, right = frozenset(), frozenset({(0, 0)})
    found = {A: [none, none], B: [right, none], HeadChoice(1, 0): [none, right]}
    table = rate_heads(found, gold)
    assert [each.to_dict()["value"] for each in table] == [None, 0.0, 0.0]
    assert most_accurate(table).choice == B
    table = rate_heads(found, gold, 1)
    assert [each.to_dict()["development"] for each in table] == [None, 0.0, None]
    assert [each.to_dict()["value"] for each in table] == [None, None, 0.0]
    chosen = most_accurate(table)
    assert chosen.choice == B
    _, *lines = AlignmentEvaluation("test", [chosen.score], table, chosen, 1, 1, found[B]).lines()
    assert [line.split() for line in lines] == [
        ["1", "1", "output", "-", "-", "-", "-"],
        ["2", "mean", "output", "0.0000", "-", "-", "-", "*"],
        ["2", "1", "output", "-", "0.0000", "1.0000", "-"],
    ]
    with pytest.raises(RequestError, match="no head has links, and there are no sure gold links"):
        rate_heads({A: [none]}, gold[:1])


def test_nothing_can_be_judged_without_pairs():
    with pytest.raises(RequestError, match="at least one sentence pair"):
        rate_heads({}, [])


@pytest.mark.parametrize(
    ("text", "choice"), [("3.1", HeadChoice(2, 0)), ("2", HeadChoice(1)), ("10.12", HeadChoice(9, 11))]
)
def test_heads_are_named_from_1(text, choice):
    assert HeadChoice.parse(text, "--head") == choice


@pytest.mark.parametrize("text", ["", "0.1", "1.0", "1.", ".1", "a", "1.1.1", "-1", "1,2", "²"])
def test_other_names_are_refused(text):
    with pytest.raises(RequestError, match=r"--head must be LAYER\.HEAD"):
        HeadChoice.parse(text, "--head")


# A run, held against its own links -------------------------------------------------------------------------

SOURCES = ["The cat sees a dog", "a Dog", "The old cat and the dog", "dog", "cat sees cat", "a cat and a dog"]
TARGETS = ["der Hund sieht", "ein Hund", "die Katze", "Hund und Katze", "sieht", "eine Katze und ein Hund"]
ROWS = [{"source": s, "target": t} for s, t in zip(SOURCES, TARGETS, strict=True)] * 3
RECIPE = {
    "task": {"kind": "translation"},
    "tokenizer": {
        "subwords": {"kind": "bpe", "merges": 9},
        "source": {"lowercase": True},
        "target": {"lowercase": True},
    },
    "model": {
        "kind": "transformer",
        "d_model": 12,
        "n_layers": 2,
        "dropout": 0.0,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 3},
            "channels": {"kind": "feed-forward", "d_ff": 17},
        },
    },
}


@pytest.fixture(scope="module")
def run(make_run, tmp_path_factory):
    found = load(make_run(tmp_path_factory.mktemp("judged") / "run", RECIPE, ROWS), device="cpu")
    with torch.no_grad():
        for name, parameter in found.model.named_parameters():
            if "cross_attention.part.q" in name:
                parameter *= 8  # heads that differ
    return found


@pytest.fixture
def files(tmp_path):
    for side, texts in (("src", SOURCES), ("tgt", TARGETS)):
        (tmp_path / side).write_text("".join(text + "\n" for text in texts), "utf-8")
    return tmp_path


def judge(run, files, gold, **asked):
    (files / "gold").write_text("".join(line + "\n" for line in gold), "utf-8")
    ((name, source),) = chosen_splits(run, "test", [files / "src", files / "tgt"]).items()
    return evaluate_alignments(run, name, source, str(files / "gold"), **asked)


@pytest.fixture(scope="module")
def attentions(run):
    words = [[text.split(" ") for text in side] for side in (SOURCES, TARGETS)]
    return list(attention_between_words(run.model, run.processor, *words))


@pytest.fixture(scope="module")
def read_as_input(run):
    words = [[text.split(" ") for text in side] for side in (SOURCES, TARGETS)]
    return list(attention_between_words(run.model, run.processor, *words, steps=["input"]))


def own_links(attentions, choice, by="target", sign="-", first=0):
    return [
        " ".join(f"{i + first}{sign}{j + first}" for i, j in sorted(links(a.matrix(choice), by)))
        for a in attentions
    ]


def told_apart(attentions, by, development):
    """Heads with links on both parts, of which the first tell them from all others."""
    found = {choice: own_links(attentions, choice, by) for choice in attentions[0].choices()}
    first = [lines[:development] for lines in found.values()]
    return [
        choice
        for choice, lines in found.items()
        if any(lines[:development]) and any(lines[development:]) and first.count(lines[:development]) == 1
    ]


@pytest.mark.parametrize("by", ["target", "source", "both"])
def test_the_head_whose_links_are_the_gold_is_chosen_and_has_no_error(run, files, attentions, by):
    choice = told_apart(attentions, by, 3)[-1]
    gold = own_links(attentions, choice, by, first=1)
    for development in (0, 3):
        found = judge(run, files, gold, first=1, by=by, development=development)
        assert found.reported.choice == choice
        (score,) = found.scores
        assert score.value == 0.0
        assert score.details["precision"] == score.details["recall"] == 1.0
        assert (score.details["layer"], score.details["head"]) == (choice.layer, choice.head)
        how = "first-3" if development else "these-pairs"
        assert score.signature == f"possible:no|links:{by}|step:output|head:{how}"
        assert score.counts["sentences"] == len(SOURCES) - development
        assert list(found.pharaoh()) == own_links(attentions, choice, by)
        assert [row["value"] for row in score.details["table"]].count(0.0) >= 1
        assert len(score.details["table"]) == 2 * 2 * (1 + 3)
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_pairs_that_a_head_is_chosen_by_are_those_with_gold_links(run, files, attentions):
    gold = own_links(attentions, told_apart(attentions, "target", 3)[-1])
    gold[1] = ""
    sure = [i for i, line in enumerate(gold) if line]
    assert judge(run, files, gold).judged == len(sure)
    assert judge(run, files, gold, development=3).judged == sum(i < 3 for i in sure)
    assert judge(run, files, gold, limit=4).judged == sum(i < 4 for i in sure)


def test_a_head_may_align_where_it_reads_the_words(run, files, read_as_input):
    choice = told_apart(read_as_input, "target", 3)[-1]
    gold = own_links(read_as_input, choice)
    found = judge(run, files, gold, development=3)
    assert found.reported.choice == choice == HeadChoice(choice.layer, choice.head, "input")
    assert (found.scores[0].value, found.scores[0].details["step"]) == (0.0, "input")
    assert "step:input" in found.scores[0].signature
    assert list(found.pharaoh()) == gold
    assert {each.choice.step for each in found.table} == {"output", "input"}
    # Asked for the other step alone, it is another head, or has errors.
    other = judge(run, files, gold, steps=["output"])
    assert {each.choice.step for each in other.table} == {"output"}
    assert other.scores[0].value > 0
    # A head that is named is read where it is asked to be.
    given = replace(choice, step="output")
    assert judge(run, files, gold, choice=given).scores[0].value > 0
    assert judge(run, files, gold, choice=choice, steps=["input"]).scores[0].value == 0


def test_rows_of_input_are_those_of_the_next_piece_before_words_are_made(run, read_as_input):
    """Against the model's own rows, by loops over the pieces of each word."""
    sides = (("source", SOURCES), ("target", TARGETS))
    ids = [
        word_ids_of_all(getattr(run.processor, side), [t.split(" ") for t in texts]) for side, texts in sides
    ]
    flat = [[[i for word in text for i in word] for text in side] for side in ids]
    for rows, source, target, own in zip(
        attention_between_ids(run.model, *flat), *ids, read_as_input, strict=True
    ):
        read = 0
        for number, pieces in enumerate(target):
            mean = np.mean([rows[:, :, read + 1 + n] for n in range(len(pieces))], axis=0)
            read += len(pieces)
            column = 0
            for word, own_pieces in enumerate(source):
                wanted = mean[..., column : column + len(own_pieces)].sum(-1)
                np.testing.assert_allclose(own.weights[:, :, number, word], wanted, atol=1e-12)
                column += len(own_pieces)
        np.testing.assert_allclose(own.weights.sum(-1), 1, atol=1e-5)


def test_what_is_chosen_by_one_part_is_reported_on_the_other(run, files, attentions):
    """The first three pairs have the links of one head, the others of another."""
    first, second = HeadChoice(0, 1), HeadChoice(1, 2)
    gold = [*own_links(attentions[:3], first), *own_links(attentions[3:], second)]
    found = judge(run, files, gold, development=3)
    by_choice = {each.choice: each for each in found.table}
    assert found.reported is by_choice[first]
    assert found.reported.development.value == 0.0
    assert found.scores[0].value == by_choice[first].score.value > 0.0
    assert by_choice[second].score.value == 0.0
    marked = [line for line in found.lines() if line.endswith("*")]
    assert len(marked) == 1
    assert marked[0].split()[:4] == ["1", "2", "output", "0.0000"]


def test_a_head_can_be_given(run, files, attentions):
    gold = own_links(attentions, HeadChoice(0, 1))
    found = judge(run, files, gold, choice=HeadChoice(1, 1))
    assert found.reported.choice == HeadChoice(1, 1)
    assert found.scores[0].value > 0
    assert found.scores[0].signature.endswith("head:given")
    for choice, message in ((HeadChoice(2, 0), "at most 2 .* got 3"), (HeadChoice(0, 3), "at most 3, got 4")):
        with pytest.raises(RequestError, match=message):
            judge(run, files, gold, choice=choice)
    with pytest.raises(RequestError, match="remove one of them"):
        judge(run, files, gold, choice=HeadChoice(0), development=2)


def test_a_limit_takes_the_first_pairs(run, files, attentions):
    gold = own_links(attentions, HeadChoice(0, 1))
    found = judge(run, files, gold, limit=4, development=1)
    assert found.scores[0].counts["sentences"] == 3
    assert len(list(found.pharaoh())) == 4
    for development in (4, 9):
        with pytest.raises(RequestError, match=rf"--dev must be less than .* \(4\), got {development}"):
            judge(run, files, gold, limit=4, development=development)


def test_gold_of_other_sentences_is_refused(run, files, attentions):
    gold = own_links(attentions, HeadChoice(0, 1))
    with pytest.raises(DataError, match=r"gold: expected 6 lines, one per sentence pair, got 5"):
        judge(run, files, gold[:-1])
    with pytest.raises(DataError, match=r"gold, pair 4: link 1-0 is outside"):
        judge(run, files, [*gold[:3], "1-0", *gold[4:]])


# Words of the file -----------------------------------------------------------------------------------------


def test_words_are_those_of_the_file_whatever_case_they_have(run, attentions):
    for attention, source, target in zip(attentions, SOURCES, TARGETS, strict=True):
        assert attention.source == (*source.split(), "</s>")
        assert attention.target == (*target.split(), "</s>")
        np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
    # Where nothing is cut differently, the weights are those of the text as a whole.
    texts = (run.processor.source, SOURCES), (run.processor.target, TARGETS)
    ids = [tokenizer.encode_batch(sentences) for tokenizer, sentences in texts]
    whole = attention_between_ids(run.model, *ids)
    for attention, weights, *pair in zip(attentions, whole, *ids, strict=True):
        indices = [surface_words(tokenizer, own)[1] for (tokenizer, _), own in zip(texts, pair, strict=True)]
        np.testing.assert_allclose(attention.weights, merge_subwords(weights, *indices), atol=1e-6)


def test_what_moses_cuts_is_one_word(run):
    moses = replace(
        run.processor, source=run.processor.source.with_preprocessing(PreprocessingConfig(moses="en"))
    )
    (found,) = attention_between_words(run.model, moses, [["don't", "see", "cats,"]], [["nicht"]])
    assert found.source == ("don't", "see", "cats,", "</s>")
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)


def test_empty_sides_have_their_end(run):
    (found,) = attention_between_words(run.model, run.processor, [[]], [["ein"]])
    assert found.weights.shape == (2, 3, 2, 1)
    assert links(found.matrix(HeadChoice(0))) == frozenset()


def test_sentences_without_positions_are_named(run):
    with pytest.raises(
        RequestError, match=r"sentence pair 2 must have at most 4 tokens on one side, got \d+"
    ):
        list(
            attention_between_words(
                run.model, run.processor, [["a"], ["old"] * 5], [["a"], ["a"]], EncoderDecoderFormat(5)
            )
        )


def test_a_run_without_attention_over_a_source_is_refused(make_run, tmp_path, files):
    model = {"kind": "recurrent", "d_embedding": 4, "d_hidden": 3, "decoder": "plain", "attention": None}
    model |= {"direction": "left-to-right", "bridge": "copy", "tie": "none"}
    recipe = {**RECIPE, "tokenizer": {"subwords": {"kind": "word"}}, "model": model}
    with pytest.raises(RequestError, match="the model has no attention between source and target"):
        judge(load(run_of(make_run, tmp_path, recipe), device="cpu"), files, [""] * 6)


# A language model that reads the source before the target --------------------------------------------------

LANGUAGE_MODEL = {
    "kind": "language-model",
    "d_model": 12,
    "n_layers": 2,
    "context": 64,
    "layer": {"mixer": {"kind": "attention", "n_heads": 3}, "channels": {"kind": "feed-forward", "d_ff": 7}},
}
DELIMITED = {**RECIPE, "tokenizer": {"subwords": {"kind": "bpe", "merges": 9}, "shared": True}}


@pytest.fixture(scope="module")
def delimited(make_run, tmp_path_factory):
    recipe = {**DELIMITED, "model": LANGUAGE_MODEL}
    return load(run_of(make_run, tmp_path_factory.mktemp("delimited"), recipe), device="cpu")


def test_a_language_models_head_whose_links_are_the_gold_has_no_error(delimited, files):
    words = [[text.split(" ") for text in side] for side in (SOURCES, TARGETS)]
    seen = list(
        attention_between_words(
            delimited.model, delimited.processor, *words, delimited.recipe.sequence_format
        )
    )
    for attention, source, target in zip(seen, *words, strict=True):
        assert attention.source == (*source, "</s>")
        assert attention.target == (*target, "</s>")
        assert attention.weights.shape[:2] == (2, 3)
        np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
    choice = told_apart(seen, "target", 3)[-1]
    found = judge(delimited, files, own_links(seen, choice, first=1), first=1, development=3)
    assert found.reported.choice == choice
    assert found.scores[0].value == 0.0
    assert list(found.pharaoh()) == own_links(seen, choice)


def test_pairs_that_are_too_long_for_the_context_are_named(delimited):
    pairs = [["a"], ["old"] * 40], [["a"], ["Hund"] * 40]
    with pytest.raises(RequestError, match=r"pair 2 must have at most 62 tokens on both sides, got \d+"):
        list(
            attention_between_words(
                delimited.model, delimited.processor, *pairs, delimited.recipe.sequence_format
            )
        )


def test_a_compressed_memory_has_no_words(make_run, tmp_path, files):
    model = merged(
        LANGUAGE_MODEL,
        {
            "pattern": [
                {"mixer": {"visible": {"kind": "blocks", "size": 4}}},
                {"mixer": {"kind": "compressed-attention", "n_heads": 3, "factor": 3}},
            ]
        },
    )
    run = load(run_of(make_run, tmp_path, {**DELIMITED, "model": model}), device="cpu")
    with pytest.raises(RequestError, match="every layer must have attention between tokens"):
        judge(run, files, [""] * 6)


def run_of(make_run, folder, recipe):
    limits = {"max_length": {"source": 9, "target": 9}}
    files = {"kind": "jsonl", "paths": "x", "columns": {"source": "x", "target": "x"}}
    return make_run(
        folder / "run", {**recipe, "data": {"train": files, "valid": files, "filter": limits}}, ROWS
    )


# Guided ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_guidance_lowers_the_error_rate_on_held_out_sentences(tmp_path, monkeypatch):
    """The phrasebook's own alignments, a training too short to find them by itself."""
    monkeypatch.chdir(tmp_path)
    pairs = phrasebook("de", "valid")[:120]
    for name in ("source", "target"):
        side = {"source": "src", "target": "tgt"}[name]
        (tmp_path / side).write_text("".join(getattr(p, name) + "\n" for p in pairs), "utf-8")
    gold = [" ".join(f"{i}-{j}" for i, j in p.alignment) for p in pairs]
    rates = {}

    def listeners(folder):
        return [JsonLines(folder.metrics)]

    for name, guided in (("plain", None), ("guided", {"weight": 0.5, "layer": 1, "head": 2})):
        torch.manual_seed(0)
        train_run(phrasebook_recipe(guided), tmp_path / name, device="cpu", callbacks=listeners)
        found = judge(load(tmp_path / name, device="cpu"), tmp_path, gold, development=40)
        rates[name] = [score.value for score in found.scores]
    assert rates["guided"][1] < 0.75 * rates["plain"][0]
    events = [json.loads(line) for line in (tmp_path / "guided" / "metrics.jsonl").read_text().splitlines()]
    told = [event["terms"]["alignment"] for event in events if event["event"] == "updated"]
    print("AER", rates, "TOLD", told[0], told[-1])
    assert told[-1] < 0.8 * told[0]


def phrasebook_recipe(guided):
    corpus = {"kind": "built-in", "name": "phrasebook-de", "limit": 1500}
    model = {
        "kind": "transformer",
        "d_model": 32,
        "n_layers": 2,
        "dropout": 0.0,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 2},
            "channels": {"kind": "feed-forward", "d_ff": 48},
        },
    }
    tree = {
        "task": {"kind": "translation"},
        "data": {"train": {**corpus, "split": "train"}, "valid": {**corpus, "split": "valid", "limit": 50}},
        "tokenizer": {"subwords": {"kind": "word"}, "shared": False},
        "model": {**model, "tie": "target"},
        "objective": {"label_smoothing": 0.1, "guided": guided},
        "schedule": {"kind": "constant", "peak": 5e-3, "warmup": 10},
        "training": {
            "max_updates": 80,
            "tokens_per_update": 600,
            "validate_every": 80,
            "save_every": 80,
            "precision": "fp32",
        },
    }
    return recipe_from(Tree.of(tree, Mark("here")))
