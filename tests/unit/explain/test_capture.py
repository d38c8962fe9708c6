"""Looking into runs of every task: the numbers are the model's own, and what cannot be shown is refused."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from heedful.api.run import Run
from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength
from heedful.errors import DataError, RequestError
from heedful.explain.attention_sites import NO_MAPS, Selection, capture_memory, find_sites
from heedful.explain.capture import explain_input, prepare_input, slots_axis
from heedful.nn.attention import kernels
from heedful.nn.taps import recording
from heedful.tasks.generation.generator import score_targets
from heedful.tasks.model_input import AnswerOptions, Axis
from heedful.tasks.prediction import GIVEN
from heedful.tasks.registry import TASKS, task_for
from heedful.text.specials import SPECIALS

WRITERS = ["translation", "summarisation", "one text", "additive", "recurrent", "recurrent, one head"]
WRITERS += ["language model", "local and compressed", "rotary, shared keys", "masked", "captions"]
CAPTIONERS = ["captions", "captions of cells", "show, attend and tell"]
WRITERS += CAPTIONERS[1:]


def test_every_task_is_among_the_runs(tasks):
    assert tasks == TASKS.keys()


# Every run ------------------------------------------------------------------------------------------------


def whole(seen):
    """The maps that are there as the model has them (parts: `tests/unit/explain/test_one_text.py`)."""
    return [each for each in seen.maps if not each.is_part]


@pytest.mark.slow
def test_every_row_sums_to_one_over_what_stands_along_it(explained, seeing):
    seen = explain_input(*explained(seeing))
    assert seen.maps
    for each in seen.maps:
        rows, columns = (len(seen.axes[name].tokens) for name in (each.queries, each.keys))
        assert each.weights.shape == (len(each.heads), rows, columns)
        assert each.weights.dtype == np.float32
        np.testing.assert_allclose(each.weights.sum(-1), 1.0, atol=1e-5)


@pytest.mark.slow
def test_weights_are_those_of_the_explicit_path(explained, seeing):
    run, given = explained(seeing)
    maps, batch = whole(explain_input(run, given)), prepare_input(run, given).batch
    with recording(run.model, [each.tap for each in maps]) as taps:
        run.model(batch.inputs, batch.source)
    for each in maps:
        (weights,) = taps[each.tap]
        np.testing.assert_allclose(each.weights, weights[0].detach().numpy(), atol=1e-6, rtol=0)


def test_all_attention_of_the_model_is_there(explained, seeing):
    run, given = explained(seeing)
    taps = {name for name, _ in run.model.named_modules() if name.endswith("weights")}
    # Heads (the decoder of masks) read what the model returned.
    taps = {name for name in taps if not name.startswith("heads.")}
    assert {each.tap for each in whole(explain_input(run, given))} == taps


@pytest.mark.slow
def test_the_answer_is_the_runs_own(explained, every):
    run, given = explained(every)
    (prediction,) = run.predict([given])
    seen = explain_input(run, given, maps=NO_MAPS)
    answer = {**seen.answer}
    if every == "sets of labels" and not seen.text:
        # Without a label, another one is explained.
        assert answer.pop("notes")[0].startswith("no label; explained is")
    assert answer == prediction.to_dict()
    assert (seen.task, seen.run, seen.maps) == (run.recipe.task.kind, "run", [])
    assert seen.input is given


def test_a_later_token_is_never_seen_by_causal_attention(explained, seeing):
    for each in explain_input(*explained(seeing)).maps:
        if each.kind == "causal" and each.keys != "memory":
            assert not np.triu(each.weights, 1).any()


@pytest.mark.parametrize("name", WRITERS)
def test_what_was_written_has_the_probabilities_with_which_it_was_written(explained, name):
    run, given = explained(name)
    seen = explain_input(run, given)
    ((side, written),) = seen.log_probs.items()
    assert len(written) == len(seen.axes[side].tokens)
    found = [value for value in written if value is not None]
    log_probs = seen.answer["log_probs"]
    # Where the length was the end of it, the end token was asked about, and not written.
    assert found[: len(log_probs)] == pytest.approx(log_probs, abs=1e-4)
    assert len(found) - len(log_probs) in {0, 1}


@pytest.mark.parametrize(
    "name",
    ["classification", "pairs", "fourier", "regression", "tagging", "answers", "images", "resnet", "masks"],
)
def test_what_writes_no_tokens_has_no_probabilities_of_tokens(explained, name):
    run, given = explained(name)
    assert explain_input(run, given, maps=NO_MAPS).log_probs == {}


# Sides -----------------------------------------------------------------------------------------------------


def test_translation_has_three_sides(explained):
    run, given = explained("translation")
    seen = explain_input(run, given)
    source, target, prefix = (seen.axes[name] for name in ("source", "target", "prefix"))
    ids = run.processor.source.encode(given)
    assert source.tokens == (*run.processor.source.tokens(ids), "</s>")
    assert source.surface == tuple(given.split())
    of_pieces = run.processor.source.split_words(ids)[1]
    assert len(source.words) == len(ids) + 1
    # White space alone belongs to the word that it stands before.
    assert all(own in {-1, word} for own, word in zip(of_pieces, source.words, strict=False))
    assert source.words[-1] == -1
    assert target.tokens == (*seen.answer["tokens"], "</s>")
    assert prefix.tokens == ("<s>", *seen.answer["tokens"])
    assert [(m.kind, m.layer, m.queries, m.keys) for m in seen.maps] == [
        ("self", 0, "source", "source"),
        ("self", 1, "source", "source"),
        ("causal", 0, "prefix", "prefix"),
        ("cross", 0, "target", "source"),
    ]


@pytest.mark.parametrize("name", ["translation", "additive", "recurrent", "recurrent, one head", *CAPTIONERS])
def test_cross_attention_is_the_alignment_of_predictions(explained, name):
    run, given = explained(name)
    (prediction,) = run.predict([given], attention=True)
    seen = explain_input(run, given, maps=Selection(kinds=["cross"]))
    weights = np.stack([each.weights for each in seen.maps])
    np.testing.assert_allclose(weights, np.asarray(prediction.attention), atol=1e-6, rtol=0)
    assert seen.axes["source"].grid == prediction.grid


def test_one_text_has_one_side_with_both_and_one_of_each(explained):
    run, given = explained("one text")
    seen = explain_input(run, given)
    side, read, written = (seen.axes[name] for name in ("input", "source", "target"))
    source = run.processor.source.tokens(run.processor.source.encode(given))
    assert side.tokens == ("<s>", *source, "<sep>", *seen.answer["tokens"], "</s>")
    assert (read.tokens, written.tokens) == ((*source, "<sep>"), (*seen.answer["tokens"], "</s>"))
    assert read.surface == tuple(given.split())
    assert (read.words[-1], written.words[-1]) == (-1, -1)
    first = len(source) + 2
    assert seen.log_probs["input"][:first] == [None] * first
    assert None not in seen.log_probs["input"][first:]


def test_the_end_token_is_left_out_where_source_and_target_fill_the_context(explained):
    run, _ = explained("one text")
    source, context = "red dog runs", run.recipe.model.context
    most = run.recipe.sequence_format.max_target_length(3) - 1
    ended = explain_input(run, source, options=AnswerOptions(target=" ".join(["RED"] * (most - 1))))
    assert ended.axes["input"].tokens[-1] == "</s>"
    full = explain_input(run, source, options=AnswerOptions(target=" ".join(["RED"] * most)))
    assert full.axes["input"].tokens[-1] == "RED"
    assert len(full.axes["input"].tokens) == len(full.log_probs["input"]) == context
    assert full.maps[-1].weights.shape == (3, most + 1, 4)
    with pytest.raises(RequestError, match=f"must have at most {most} tokens, got {most + 1}"):
        explain_input(run, source, options=AnswerOptions(target=" ".join(["RED"] * (most + 1))))


def test_a_prompt_and_its_completion_are_one_side(explained):
    run, given = explained("language model")
    seen = explain_input(run, given)
    (side,) = seen.axes.values()
    prompt = run.processor.text.tokens(run.processor.text.encode(given))
    both = (*prompt, *seen.answer["tokens"])
    assert side.tokens[: len(both)] == both
    assert seen.log_probs["input"][: len(prompt)] == [None] * len(prompt)
    assert None not in seen.log_probs["input"][len(prompt) :]


def test_an_empty_prompt_begins_with_the_end_token(explained):
    run, _ = explained("language model")
    seen = explain_input(run, "")
    assert seen.axes["input"].tokens[0] == "</s>"
    assert seen.answer == run.predict([""])[0].to_dict()
    found = [value for value in seen.log_probs["input"] if value is not None]
    assert found == pytest.approx(seen.answer["log_probs"], abs=1e-4)


def test_a_completion_is_cut_where_the_context_ends(explained):
    run, _ = explained("language model")
    prompt = "the cat sat "
    while len(run.processor.text.encode(prompt)) < run.recipe.model.context - 2:
        prompt += "a"
    room = run.recipe.model.context - len(run.processor.text.encode(prompt))
    seen = explain_input(run, prompt)
    assert len(seen.answer["tokens"]) <= room
    if len(seen.answer["log_probs"]) == len(seen.answer["tokens"]):
        assert seen.answer["notes"][0].startswith(f"cut after {room} tokens")
        assert len(seen.axes["input"].tokens) == run.recipe.model.context


def test_slots_of_a_compressed_memory_are_a_side_of_their_own(explained):
    run, given = explained("local and compressed")
    seen = explain_input(run, given)
    text, slots = seen.axes["input"], seen.axes["memory"]
    assert slots.tokens[0] == text.tokens[0]
    assert slots.tokens[2] == " ".join(text.tokens[3:6])
    assert len(slots.tokens) == 1 + len(text.tokens) // 3
    assert [each.keys for each in seen.maps] == ["input", "memory", "input"]
    assert "memory" not in explain_input(run, given, maps=Selection(layers=[0, 2])).axes
    # A local layer sees nothing beyond its blocks of four.
    block = np.arange(len(text.tokens)) // 4
    assert not seen.maps[0].weights[:, block[:, None] != block].any()


@pytest.mark.parametrize(
    ("n", "wanted"), [(1, ("a",)), (2, ("a",)), (3, ("a", "a b c")), (7, ("a", "a b c", "d e f"))]
)
def test_slots_are_the_first_token_and_whole_blocks(n, wanted):
    assert slots_axis(Axis(tuple("abcdefg"[:n])), 3).tokens == wanted


def test_gaps_are_shown_as_gaps_and_have_the_probabilities_of_what_fills_them(explained):
    run, given = explained("masked")
    seen = explain_input(run, given)
    side, written = seen.axes["input"], seen.log_probs["input"]
    assert (side.tokens[0], side.tokens[-1]) == ("<cls>", "<sep>")
    gaps = [i for i, token in enumerate(side.tokens) if token == "<mask>"]
    assert len(gaps) == 2
    assert [i for i, value in enumerate(written) if value is not None] == gaps
    assert [written[i] for i in gaps] == pytest.approx(seen.answer["log_probs"], abs=1e-5)


def test_a_text_without_a_gap_is_looked_at_all_the_same(explained):
    run, _ = explained("masked")
    seen = explain_input(run, "the cat")
    assert seen.maps
    assert seen.answer["notes"] == ["there is no [MASK] to fill"]


@pytest.mark.parametrize(
    "name, first_token, last_token", [("pairs", "<cls>", "<sep>"), ("pairs, to their end", "</s>", "</s>")]
)
def test_pairs_stand_one_after_the_other(explained, name, first_token, last_token):
    run, given = explained(name)
    side = explain_input(run, given).axes["input"]
    first, second = (run.processor.text.tokens(run.processor.text.encode(text)) for text in given)
    assert side.tokens == (first_token, *first, last_token, *second, last_token)
    assert side.surface == ("the", "cat", "a", "dog", "sat")
    assert [side.surface[word] for word in dict.fromkeys(side.words) if word >= 0] == list(side.surface)


def test_the_words_of_a_tagger_are_those_that_were_given(explained):
    run, _ = explained("tagging")
    for given in ("the dog sat", ["the dog", "sat"]):
        seen = explain_input(run, given)
        side = seen.axes["input"]
        assert list(side.surface) == seen.answer["words"]
        reading = prepare_input(run, given)
        assert [side.words[place] for place in reading.targets.positions] == list(range(len(side.surface)))
        assert reading.targets.names == seen.answer["output"]
        scores = reading.targets.scores(run.model(reading.batch.inputs), reading.batch)
        assert scores.tolist() == pytest.approx(seen.answer["log_probs"], abs=1e-5)


def test_the_ends_of_an_answer_have_its_score(explained):
    run, given = explained("answers")
    reading = prepare_input(run, given)
    scores = reading.targets.scores(run.model(reading.batch.inputs), reading.batch)
    assert scores.sum().item() == pytest.approx(reading.answer.score, abs=1e-5)
    tokens = reading.axes["input"].tokens
    assert reading.targets.names == [tokens[place] for place in reading.targets.positions]


@pytest.mark.parametrize(
    "name", ["classification", "pairs", "pairs, to their end", "images", "fourier", "resnet"]
)
def test_a_class_has_its_score(explained, name):
    run, given = explained(name)
    reading = prepare_input(run, given)
    scores = reading.targets.scores(run.model(reading.batch.inputs), reading.batch)
    assert scores.tolist() == pytest.approx([reading.answer.score], abs=1e-5)
    assert reading.targets.names == [reading.answer.text]


def test_a_number_is_in_the_unit_of_the_data(explained):
    run, given = explained("regression")
    reading = prepare_input(run, given)
    scores = reading.targets.scores(run.model(reading.batch.inputs), reading.batch)
    assert scores.tolist() == pytest.approx([reading.answer.to_dict()["output"]], rel=1e-5)


@pytest.mark.parametrize(("name", "before"), [("images", 1), ("images without class token", 0)])
def test_patches_stand_row_by_row_behind_the_class_token(explained, name, before):
    run, given = explained(name)
    side = explain_input(run, given).axes["input"]
    assert (side.grid, side.before) == ((2, 2), before)
    assert side.tokens == (*["<cls>"] * before, "1,1", "1,2", "2,1", "2,2")


@pytest.mark.parametrize(("name", "side"), [("images", "input"), *((name, "source") for name in CAPTIONERS)])
def test_an_image_is_kept_as_the_model_reads_it(explained, name, side):
    import io

    from PIL import Image

    run, given = explained(name)
    content = explain_input(run, given).axes[side].image
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), given)


# What is asked for -----------------------------------------------------------------------------------------


def test_layers_heads_and_kinds_are_parts_of_all(explained):
    run, given = explained("translation")
    everything = explain_input(run, given)
    part = explain_input(run, given, maps=Selection(layers=[0], heads=[2, 0], kinds=["self", "cross"]))
    assert [(m.kind, m.layer, m.heads) for m in part.maps] == [("self", 0, (0, 2)), ("cross", 0, (0, 2))]
    for each in part.maps:
        whole = everything.map(each.kind, each.layer)
        np.testing.assert_array_equal(each.weights, whole.weights[[0, 2]])
        np.testing.assert_array_equal(each.head(2), whole.head(2))


@pytest.mark.parametrize("name", ["translation", "rotary, shared keys", "recurrent"])
def test_one_head_is_that_head(explained, name):
    run, given = explained(name)
    for whole in explain_input(run, given).maps:
        one = explain_input(
            run, given, maps=Selection(heads=[1], kinds=[whole.kind], layers=[whole.layer])
        ).maps[0]
        np.testing.assert_allclose(one.weights[0], whole.weights[1], atol=1e-7)


def test_a_layer_that_one_stack_has_is_taken_there(explained):
    run, given = explained("translation")
    assert [(m.kind, m.layer) for m in explain_input(run, given, maps=Selection(layers=[1])).maps] == [
        ("self", 1)
    ]


def test_the_kernels_stay_as_they_are(explained, monkeypatch):
    run, given = explained("translation")
    taken, choose = [], kernels.choose

    def told(*args, **options):
        taken.append((choose(*args, **options), options["wants_weights"]))
        return taken[-1][0]

    monkeypatch.setattr(kernels, "choose", told)
    explain_input(run, given)
    assert taken
    assert not any(wants or kernel == "explicit" for kernel, wants in taken)


def test_a_target_that_is_given_is_looked_at_instead(explained):
    run, given = explained("translation")
    target = "BLUE DOG"
    ids = run.processor.target.encode(target)
    batch = run.recipe.sequence_format.collate([run.processor.source.encode(given)], [ids])
    (result,) = score_targets(run.model, batch, attention=True)
    seen = explain_input(run, given, options=AnswerOptions(target=target))
    np.testing.assert_allclose(seen.map("cross", 0).weights, result.attention[0].numpy(), atol=1e-6)
    assert seen.log_probs["target"] == pytest.approx(result.log_probs.tolist(), abs=1e-6)
    assert seen.answer["log_probs"] == seen.log_probs["target"]
    assert seen.answer["score"] == pytest.approx(sum(result.log_probs.tolist()), abs=1e-5)
    assert (seen.answer["output"], seen.answer["notes"]) == (target, [GIVEN])


def test_an_empty_target_ends_at_once(explained):
    seen = explain_input(*explained("translation"), options=AnswerOptions(target=""))
    assert seen.axes["target"].tokens == ("</s>",)
    assert len(seen.log_probs["target"]) == 1


@pytest.mark.parametrize(("prompt", "target"), [("the cat", " sat on"), ("the c", "at sat"), ("", "the")])
def test_a_completion_that_is_given_is_encoded_with_its_prompt(explained, prompt, target):
    run, _ = explained("language model")
    seen = explain_input(run, prompt, options=AnswerOptions(target=target))
    ids = run.processor.text.encode(prompt + target)
    shown = seen.axes["input"].tokens
    assert shown == (*["</s>"] * (not prompt), *run.processor.text.tokens(ids))
    written = [value for value in seen.log_probs["input"] if value is not None]
    assert shown[len(shown) - len(written) :] == tuple(seen.answer["tokens"])
    assert written == seen.answer["log_probs"]
    read_ids = [*([] if prompt else [SPECIALS.end]), *ids]
    log_probs = _all_log_probs(run, read_ids)
    assert written == pytest.approx(log_probs[len(log_probs) - len(written) :], abs=1e-5)


def test_an_end_that_a_stop_text_forced_is_not_the_models(explained):
    run, given = explained("rotary, shared keys")
    (free,) = run.predict([given])
    assert free.text
    completion = run.recipe.completion.model_copy(update={"stop": [free.text[0]]})
    recipe = run.recipe.model_copy(update={"completion": completion})
    seen = explain_input(Run(run.folder, task_for(recipe, run.processor), run.model), given)
    assert seen.answer["tokens"] == free.tokens[:1]
    # The end token was forced: with certainty.
    assert seen.answer["log_probs"] == pytest.approx([free.log_probs[0], 0.0], abs=1e-6)
    prompt = run.processor.text.tokens(run.processor.text.encode(given))
    assert seen.axes["input"].tokens == (*prompt, *free.tokens[:1])
    found = [value for value in seen.log_probs["input"] if value is not None]
    assert found == pytest.approx(free.log_probs[:1], abs=1e-5)


def _all_log_probs(run, ids):
    """Of every token but the first, by a loop over prefixes."""
    from heedful.nn.layout import Tokens

    found = []
    for n in range(1, len(ids)):
        with torch.no_grad():
            hidden = run.model(Tokens.of([ids[:n]]))
            found.append(run.model.heads["token"](hidden[-1]).log_softmax(-1)[ids[n]].item())
    return found


@pytest.mark.parametrize("name", ["classification", "images", "sets of labels"])
def test_a_label_that_is_given_is_the_answer_and_the_notes_have_the_predicted_one(explained, name):
    run, given = explained(name)
    (predicted,) = run.predict([given])
    label = next(label for label in run.labels if label not in predicted.text)
    seen = explain_input(run, given, options=AnswerOptions(target=label), views=["occlusion"])
    assert seen.text == label
    assert seen.views["occlusion"]["answers"] == [label]
    given_note, own, *_ = seen.answer["notes"]
    assert given_note == GIVEN
    if name == "sets of labels":
        found = [f"{each} (probability {predicted.probabilities[each]:.4g})" for each in predicted.labels]
        assert own == f"the run itself answers {', '.join(found) or 'no label'}"
    else:
        assert seen.answer["score"] == pytest.approx(np.log(predicted.label_probabilities()[label]), abs=1e-5)
        assert own == f"the run itself answers {predicted.text} (probability {predicted.confidence:.4g})"


@pytest.mark.parametrize("name", ["classification", "images", "sets of labels"])
def test_a_given_label_that_is_predicted_changes_nothing(explained, name):
    run, given = explained(name)
    (predicted,) = run.predict([given])
    seen = explain_input(run, given, options=AnswerOptions(target=predicted.text))
    assert seen.answer == predicted.to_dict()


def test_without_a_label_the_most_probable_one_is_explained_as_the_notes_say(explained):
    run, given = explained("sets of labels")
    (predicted,) = run.predict([given])
    empty = replace(predicted, labels=[], text="")
    reading = run.task.model_input(run.model, given, AnswerOptions(), empty)
    best = max(predicted.probabilities, key=predicted.probabilities.__getitem__)
    assert reading.targets.names == [best]
    assert f"explained is the most probable one, {best} (" in reading.answer.notes[0]


def test_a_class_of_patches_that_is_given_is_noted(explained):
    run, given = explained("masks")
    label = prepare_input(run, given).targets.names[0]
    reading = prepare_input(run, given, options=AnswerOptions(target=label))
    assert {*reading.targets.names} == {label}
    assert f"only patches of {label} are explained" in reading.answer.notes


def test_every_beam_can_be_looked_at(explained):
    run, given = explained("translation")
    (best,) = run.predict([given])
    assert len(best.alternatives) <= 2  # distinct texts
    for number, prediction in enumerate([best, *best.alternatives]):
        seen = explain_input(run, given, options=AnswerOptions(alternative=number))
        assert seen.answer["output"] == prediction.text
        assert seen.axes["target"].tokens == (*prediction.tokens, "</s>")
        n = len(prediction.log_probs)
        assert seen.log_probs["target"][:n] == pytest.approx(prediction.log_probs, abs=1e-4)


def test_another_decoding_answers(explained):
    run, given = explained("translation")
    short = GreedyConfig(max_length=MaxLength(ratio=0, extra=1))
    assert len(explain_input(run, given, options=AnswerOptions(decoding=short)).axes["target"].tokens) <= 2
    wide = BeamConfig(beam=5, n_best=2)
    (answer,) = run.predict([given], decoding=wide)
    assert explain_input(run, given, options=AnswerOptions(decoding=wide)).answer == answer.to_dict()


@pytest.mark.parametrize("options", [{"alternative": 1}, {"target": "red dog"}])
def test_what_was_cut_of_the_input_is_told_with_every_answer(explained, options):
    run, _ = explained("one text")
    long = "red dog runs " * 5
    wide = BeamConfig(beam=3, n_best=2, max_length=MaxLength(ratio=0, extra=5))
    best = explain_input(run, long, options=AnswerOptions(decoding=wide)).answer["notes"]
    assert best == ["source cut from 15 to 10 tokens"]
    other = explain_input(run, long, options=AnswerOptions(decoding=wide, **options))
    assert other.answer["notes"][-1:] == best


# Refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "options", "message"),
    [
        ("translation", "", {}, "the input must not be empty"),
        ("translation", ("a", "b"), {}, "must be a text, got 2 texts"),
        (
            "translation",
            "red",
            {"maps": Selection(layers=[2])},
            "layers: expected indices from 0 to 1 .*, got 2 .*between 1 and 2, got 3",
        ),
        (
            "translation",
            "red",
            {"maps": Selection(layers=[-1])},
            "layers: expected indices from 0 to 1 .*, got -1",
        ),
        ("translation", "red", {"maps": Selection(heads=[3])}, "heads: expected indices from 0 to 2, got 3"),
        (
            "translation",
            "red",
            {"maps": Selection(kinds=["crss"])},
            r"unknown kind of attention 'crss' \(did you mean 'cross'\?\)",
        ),
        (
            "classification",
            "cat",
            {"maps": Selection(kinds=["cross"])},
            "unknown kind of attention 'cross'; expected self",
        ),
        (
            "translation",
            "red",
            {"options": AnswerOptions(alternative=9)},
            "set the beam of the decoding to 10",
        ),
        (
            "summarisation",
            "red",
            {"options": AnswerOptions(alternative=1)},
            "greedy decoding returns one answer; set the kind of decoding to beam",
        ),
        (
            "translation",
            "red",
            {"options": AnswerOptions(alternative=1, target="dog")},
            "alternative=1 is not supported if a target is given",
        ),
        ("translation", "red", {"views": ["lense"]}, r"unknown view 'lense' \(did you mean 'lens'\?\)"),
        ("masked", "", {}, "the input must not be empty"),
        (
            "masked",
            "a [MASK]",
            {"options": AnswerOptions(target="b")},
            "replace the masks in the input by words",
        ),
        ("classification", "", {}, "the input must not be empty"),
        ("classification", "cat", {"options": AnswerOptions(target="none")}, "unknown label 'none'"),
        ("pairs", "the cat", {}, r"must be 2 texts \(text, pair\), got (a list of )?one text"),
        ("pairs", ("the cat",), {}, r"must be 2 texts \(text, pair\), got (a list of )?one text"),
        ("pairs", ("the", "cat", "sat"), {}, r"must be 2 texts \(text, pair\), got 3 texts"),
        ("pairs", ("the cat",), {}, "must be 2 texts"),
        ("pairs", ("", ""), {}, "the input must not be empty"),
        ("regression", ("a", "b"), {"options": AnswerOptions(target="3")}, "the answer is a number"),
        (
            "regression",
            ("a", "b"),
            {"options": AnswerOptions(alternative=1)},
            "alternative 1 does not exist: the run returned 1 answer; expected 0",
        ),
        ("tagging", " ", {}, "the input must not be empty"),
        ("tagging", "the cat " * 20, {}, r"must fit into one part of \d+ tokens, got \d+ parts"),
        ("answers", ("who ?", ""), {}, "the input must not be empty"),
        ("answers", ("who ?", "a dog " * 20), {}, r"must fit into one window, got \d+ windows"),
        ("language model", "the cat", {"options": AnswerOptions(target="")}, "must add at least one token"),
        ("language model", "the cat", {"views": "lens"}, r"views must be a list of names.*\['lens'\]"),
        (
            "language model",
            "the cat",
            {"maps": Selection(kinds="causal")},
            r"kinds must be a list of names.*\['causal'\]",
        ),
        ("language model", "the mat " * 9, {}, "must have at most 18 tokens"),
        (
            "language model",
            "the",
            {"options": AnswerOptions(target=" mat" * 20)},
            "must have at most 19 tokens",
        ),
        (
            "fourier",
            "the cat",
            {},
            "model.layer.mixer.kind=fourier has no attention.*available views: lens, losses, occlusion",
        ),
        (
            "recurrent language model",
            "the cat",
            {},
            r"mixer.kind=recurrent has no attention.*lens, losses, occlusion.*; gradients: gradient x input",
        ),
        ("recurrent without attention", "red", {}, "kind=recurrent.*available views: losses, occlusion"),
        ("resnet", None, {}, "kind=resnet.*available views: losses"),
    ],
)
def test_what_cannot_be_explained_is_told(explained, name, given, options, message):
    run, own = explained(name)
    with pytest.raises(RequestError, match=message):
        explain_input(run, own if given is None else given, **options)


def test_an_image_that_is_not_there_is_named(explained, tmp_path):
    for name in ("images", "captions"):
        with pytest.raises(DataError, match=r"none\.png: no such file"):
            explain_input(explained(name)[0], str(tmp_path / "none.png"))


def test_what_would_take_too_much_memory_is_refused_before_the_model_runs(explained, monkeypatch):
    run, given = explained("classification")
    n = len(explain_input(run, given, maps=NO_MAPS).axes["input"].tokens)
    wanted = find_sites(run.model)
    sides = explain_input(run, given).axes
    # Two layers of three heads, and three rectangles of a layer while it works.
    needed = 4 * n * n * (2 * 3 + 3 * 3)
    assert capture_memory(wanted, sides) == needed
    explain_input(run, given, limit=needed)
    answered = run.predict([given])
    answering = SimpleNamespace(predict=lambda inputs: answered)
    monkeypatch.setattr(run, "predictor", lambda **options: answering)
    monkeypatch.setattr(run.model, "forward", None)
    with pytest.raises(RequestError, match=f"attention of 6 heads over up to {n} tokens needs .* MiB"):
        explain_input(run, given, limit=needed - 1)
