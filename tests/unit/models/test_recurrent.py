"""Recurrent encoder-decoders: published sizes, the contract of a model, and what a configuration refuses."""

import pytest
import torch
from pydantic import ValidationError

from heedful.models import recurrent, sections
from heedful.models.recurrent import PRESETS, RecurrentConfig, build
from heedful.models.registry import preset_trees
from heedful.nn.layout import Tokens
from heedful.nn.taps import recording
from heedful.recipes.problems import kinds_of
from heedful.recipes.trees import Mark, Tree, merge

V_S, V_T = 31, 37
SOURCES = [[3, 4, 5, 6, 7], [8, 9], [10, 11, 12]]
TARGETS = [[1, 5, 6], [1, 7, 8, 9, 2], [1]]

SMALL = {
    "d_embedding": 5,
    "d_hidden": 7,
    "d_readout": 11,
    "attention": {"kind": "additive", "d_attention": 13},
}
LOCATION = {"kind": "multi-head-location", "n_heads": 3, "d_k": 5, "d_v": 4, "channels": 2, "half_width": 4}
CASES = {
    "bahdanau": SMALL,
    "bahdanau, 2 layers, fed": {
        **SMALL,
        "n_layers": 2,
        "input_feeding": True,
        "cell": "lstm",
        "residual": True,
    },
    "fixed": {**SMALL, "attention": None, "cell": "rnn", "direction": "left-to-right"},
    "luong, cosine": {
        **SMALL,
        "decoder": "luong",
        "attention": {"kind": "cosine", "key_strength": 2.0},
        "direction": "right-to-left",
        "bridge": "copy",
        "cell": "lstm",
        "n_layers": 2,
        "input_feeding": True,
    },
    "luong, dot": {
        **SMALL,
        "decoder": "luong",
        "attention": {"kind": "scaled-dot"},
        "direction": "left-to-right",
    },
    "luong, bilinear": {**SMALL, "decoder": "luong", "attention": {"kind": "bilinear"}, "bridge": "zero"},
    "plain": {
        "d_embedding": 5,
        "d_hidden": 7,
        "decoder": "plain",
        "attention": None,
        "direction": "right-to-left",
        "bridge": "copy",
        "n_layers": 3,
        "cell": "lstm",
        "residual": True,
    },
    "tied": {**SMALL, "d_readout": 5, "tie": "target"},
    "heads": {**SMALL, "attention": {"kind": "multi-head-additive", "n_heads": 3, "d_k": 5, "d_v": 4}},
    "location": {**SMALL, "attention": LOCATION, "decoder": "luong", "input_feeding": True},
    "multi-resolution": {**SMALL, "attention": {**LOCATION, "kind": "multi-head-multi-resolution"}},
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def model_of(case, seed=1):
    torch.manual_seed(seed)
    return build(RecurrentConfig.model_validate(case), V_S, V_T)


def size(name: str, source: int, target: int) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build(PRESETS[name], source, target).parameters())


def gated(gates, d_in, d_h):
    return gates * (d_h * d_h + d_h * d_in + d_h)


def test_sutskevers_model_has_its_published_384_million_parameters():
    """Section 3.4: 384M parameters, 64M of them pure recurrent connections; 160k and 80k words."""
    recurrent = 8 * gated(4, 1000, 1000)
    words = 160_000 * 1000 + 80_000 * 1000 + 80_000 * 1000 + 80_000
    assert size("seq2seq", 160_000, 80_000) == recurrent + words
    assert round(recurrent / 1e6) == 64
    assert round((recurrent + words) / 1e6) == 384


def test_rnnsearch_is_counted_from_the_matrices_of_its_appendix():
    k, m, n, n_a, out = 30_000, 620, 1000, 1000, 500
    encoder = 2 * gated(3, m, n)
    decoder = gated(3, m, n) + 3 * n * (2 * n)  # W, U, b; C over the 2n wide annotations
    alignment = n_a * n + n_a * 2 * n + n_a  # W_a, U_a, v_a
    bridge = n * n + n
    readout = 2 * out * (n + m + 2 * n) + 2 * out  # U_o, V_o, C_o
    words = 2 * k * m + k * out + k
    assert size("rnnsearch", k, k) == encoder + decoder + alignment + bridge + readout + words


def test_rnnencdec_has_one_direction_no_alignment_and_a_narrower_context():
    k, m, n, out = 30_000, 620, 1000, 500
    body = 2 * gated(3, m, n) + 3 * n * n + n * n + n + 2 * out * (n + m + n) + 2 * out
    assert size("rnnencdec", k, k) == body + 2 * k * m + k * out + k


def test_luongs_model_feeds_its_readout_into_the_first_layer():
    k, n = 50_000, 1000
    body = 8 * gated(4, n, n) + 4 * n * n + n * n + (2 * n * n + n)  # fed; W_a; W_c
    assert size("luong", k, k) == body + 2 * k * n + k * n + k


def test_the_reversal_model_is_counted():
    k, m, n = 54, 16, 64
    encoder, decoder = 2 * gated(4, m, n), gated(4, m, n) + 4 * n * n
    attention, readout = n * 2 * n, n * 3 * n + n
    assert size("reverse-rnn", k, k) == encoder + decoder + attention + readout + 2 * k * m + k * n + k


def test_the_table_of_presets_tells_the_parameters():
    rows = [line.split("|") for line in recurrent.__doc__.splitlines() if " V |" in line]
    told = {row[1].strip(): [int(n.replace(",", "").strip(" V")) for n in row[4].split("+")] for row in rows}
    assert told.keys() == PRESETS.keys()
    for name, (body, per_word) in told.items():
        assert size(name, 53, 53) == body + 53 * per_word


def test_the_tiny_model_shares_the_target_embedding_with_its_output_layer():
    model = build(PRESETS["rnn-tiny"], 100, 100)
    assert model.heads["token"].weight is model.target_embedding.weight
    assert model.heads["token"].weight is not model.source_embedding.weight
    tied = build(PRESETS["rnn-tiny"].model_copy(update={"tie": "three-way"}), 100, 100)
    assert tied.heads["token"].weight is tied.source_embedding.weight


@every_case
def test_every_parameter_gets_a_gradient(case):
    model = model_of(case)
    # Embeddings reach only the rows that occur: use every id of both vocabularies.
    inputs = Tokens.of([*TARGETS[:2], list(range(V_T))])
    source = Tokens.of([*SOURCES[:2], list(range(V_S))])
    logits = model.heads["token"](model(inputs, source))
    logits.log_softmax(-1).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        rows = parameter.grad.reshape(len(parameter) if parameter.dim() else 1, -1)
        assert rows.any(dim=1).all(), name


def steps(model, source, targets, chunk):
    """Hidden states of all targets, written ``chunk`` tokens at a time, ragged at the ends."""
    state, rows = model.start(Tokens.of(source)), [[] for _ in targets]
    for t in range(0, max(map(len, targets)), chunk):
        now = [target[t : t + chunk] for target in targets]
        layout = state.next_layout([len(n) for n in now])
        ids = torch.tensor([i for n in now for i in n], dtype=torch.int64)
        hidden, state = model.extend(Tokens(ids, layout), state)
        for row, part in zip(rows, hidden.split([len(n) for n in now])):
            row.append(part)
    return torch.cat([torch.cat(row) for row in rows]), state


@pytest.mark.slow
@every_case
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_written_step_by_step_equals_teacher_forced(case, chunk):
    model = model_of(case).eval()
    whole = model(Tokens.of(TARGETS), Tokens.of(SOURCES))
    hidden, state = steps(model, SOURCES, TARGETS, chunk)
    torch.testing.assert_close(hidden, whole)
    assert state.lengths == (3, 5, 1)


@every_case
def test_batched_equals_single(case):
    model = model_of(case).eval()
    together = model(Tokens.of(TARGETS), Tokens.of(SOURCES)).split([3, 5, 1])
    for row in range(3):
        alone = model(Tokens.of([TARGETS[row]]), Tokens.of([SOURCES[row]]))
        torch.testing.assert_close(alone, together[row])


@every_case
def test_beams_of_a_sentence_equal_sentences_of_their_own(case):
    """Widened to 3, reordered within each sentence, one sentence dropped: still the same numbers."""
    model = model_of(case).eval()
    beams = [[[1, 4, 9], [1, 5, 8], [1, 6, 7]], [[1, 10, 12], [1, 11, 13], [1, 14, 15]]]
    parents, kept = [2, 0, 0, 4, 5, 3], [1]
    state = model.start(Tokens.of(SOURCES[:2])).expand(3)
    for t in range(2):
        ids = torch.tensor([beam[t] for sentence in beams for beam in sentence])
        hidden, state = model.extend(Tokens(ids, state.next_layout([1] * 6)), state)
    state = state.select(torch.tensor(parents)).keep(kept)
    last = torch.tensor([20, 21, 22])
    hidden, state = model.extend(Tokens(last, state.next_layout([1] * 3)), state)
    histories = [beam[:2] for sentence in beams for beam in sentence]
    alone = [[*histories[parent], int(i)] for parent, i in zip(parents[3:], last)]
    wanted = model(Tokens.of(alone), Tokens.of([SOURCES[1]] * 3))
    torch.testing.assert_close(hidden, wanted.view(3, 3, -1)[:, -1])
    assert (state.width, state.lengths) == (3, (3, 3, 3))


@pytest.mark.slow
@every_case
def test_a_later_target_changes_nothing_earlier_but_the_source_changes_all(case):
    model = model_of(case).eval()
    inputs, source = Tokens.of(TARGETS), Tokens.of(SOURCES)
    clean = model(inputs, source)
    changed = model(Tokens.of([[1, 5, 30], [1, 7, 8, 9, 30], [1]]), source)
    assert torch.equal(clean[[0, 1, 3, 4, 5, 6, 8]], changed[[0, 1, 3, 4, 5, 6, 8]])
    assert not (clean[[2, 7]] == changed[[2, 7]]).all(dim=1).any()
    other = model(inputs, Tokens.of([[3, 4, 5, 6, 30], [30, 9], [10, 30, 12]]))
    assert not (clean == other).all(dim=1).any()


@every_case
def test_alignments_are_told_where_there_is_attention(case):
    model = model_of(case).eval()
    inputs, source = Tokens.of(TARGETS), Tokens.of(SOURCES)
    with recording(model, model.alignment_taps) as record:
        model(inputs, source)
    if case.get("attention") is None:
        assert not any(record.values())
        return
    (weights,) = record["decoder.weights"]
    assert weights.shape == (3, case["attention"].get("n_heads", 1), 5, 5)
    torch.testing.assert_close(weights.mean(1).sum(-1), inputs.layout.real.float())


def test_reversed_sources_still_align_with_their_own_tokens():
    model = model_of(CASES["luong, cosine"]).eval()
    annotations = model.encode(Tokens.of(SOURCES)).annotations
    # The first token was read last, so it knows the whole sentence; the last one knows itself alone.
    changed = model.encode(Tokens.of([[3, 4, 5, 6, 30], [8, 9], [10, 11, 12]])).annotations
    assert not (annotations[:5] == changed[:5]).all(dim=1).any()
    changed = model.encode(Tokens.of([[30, 4, 5, 6, 7], [8, 9], [10, 11, 12]])).annotations
    assert torch.equal(annotations[1:], changed[1:])


def test_dropout_acts_in_training_only():
    model = model_of({**SMALL, "dropout": 0.5})
    inputs, source = Tokens.of(TARGETS), Tokens.of(SOURCES)
    assert not torch.equal(model(inputs, source), model(inputs, source))
    model.eval()
    assert torch.equal(model(inputs, source), model(inputs, source))


def test_attentions_with_heads_have_espnets_sizes():
    """adim 320, 4 heads, 10 channels, filters of 201 places; in multi-resolution 51, 101, 151 and 201."""
    d_s, d_h = 1000, 2000
    shared = 4 * (320 * d_s + 320 + 320 * d_h + 320 * d_h + 320) + 4 * 320 * d_h

    def attention(score):
        with torch.device("meta"):
            model = build(RecurrentConfig.model_validate({"attention": {"kind": score}}), 53, 53)
        return model.decoder.step.attention

    def count(part):
        return sum(p.numel() for p in part.parameters())

    assert count(attention("multi-head-additive")) == shared
    assert count(attention("multi-head-location")) == shared + 4 * (10 * 201 + 10 * 320)
    filters = 10 * (51 + 101 + 151 + 201)
    assert count(attention("multi-head-multi-resolution")) == shared + filters + 4 * 10 * 320
    scales = {score: attention(score).scale for score in SCALES}
    assert scales == SCALES


SCALES = {
    "multi-head-additive": 320**-0.5,
    "multi-head-location": 2.0,
    "multi-head-multi-resolution": 320**-0.5,
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_round_trip(name):
    config = PRESETS[name]
    assert RecurrentConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"decoder": "plain"}, "decoder=plain does not support attention"),
        ({"decoder": "luong", "attention": None}, "needs an attention"),
        ({"attention": None}, "half would be unused"),
        ({"bridge": "copy"}, "use bridge=project"),
        (
            {**CASES["plain"], "d_readout": None, "bridge": "zero"},
            "has no access to the source",
        ),
        ({"tie": "target"}, "got d_embedding=5 and readout width 11"),
        ({"attention": {"kind": "bilinear", "d_attention": 3}}, "d_attention"),
        ({"attention": {"kind": "concat"}}, "additive"),
        ({"attention": {"kind": "multi-head-additive", "channels": 2}}, "channels"),
        ({"d_model": 3}, "d_model"),
    ],
)
def test_contradictions_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        RecurrentConfig.model_validate({**SMALL, **wrong})


def test_three_way_tying_needs_one_vocabulary():
    config = RecurrentConfig.model_validate({**SMALL, "d_readout": 5, "tie": "three-way"})
    with pytest.raises(ValueError, match="31 and 37"):
        build(config, V_S, V_T)


WITH_ATTENTION = [name for name in PRESETS if PRESETS[name].attention is not None]
SCORES = sorted(kinds_of(RecurrentConfig, "attention"))


def test_scores_and_attentions_with_heads_are_the_kinds_of_attention():
    assert {*SCORES} - {*SCALES} == {section.model_fields["kind"].default for section in sections.SCORES}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_a_preset_takes_any_other_score_by_one_word(name, score):
    """What the preset's own score was told does not stand in the way of another's."""
    below, over = (Tree.of(data, Mark("here")) for data in (preset_trees()[name], {"attention": score}))
    config = RecurrentConfig.model_validate(merge(below, over).data)
    assert config.attention.kind == score
    if score in {"dot", "scaled-dot", "cosine"}:
        attention = recurrent.decoder(config.changed(d_embedding=4, d_hidden=6, d_readout=4)).step.attention
        widths = None if attention.key is None else tuple(attention.key.weight.shape)
        assert widths == ((6, 12) if config.direction == "both" else None)
