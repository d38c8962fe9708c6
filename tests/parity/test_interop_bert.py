"""BERT of transformers: what it saves is imported, what is exported it loads, and both compute the same."""

import json
import re
import warnings

import pytest
import torch
from explained import explained, same_attention
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

import heedful
from heedful import limits
from heedful.api.run import load
from heedful.data.batch import Batch
from heedful.errors import DataError, RequestError
from heedful.interop.bert import BERT, _configuration
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.interop.conversion import export_run, import_run
from heedful.interop.wordpiece import read_wordpiece
from heedful.models.encoder import PRESETS
from heedful.objectives.classification import class_logits
from heedful.objectives.regression import values
from heedful.text.specials import SPECIALS

transformers = pytest.importorskip("transformers")

D, FF, HEADS, LAYERS, LONGEST, V = 22, 31, 2, 3, 23, 211
SPELLED = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = [
    "The Cat sat on the mat, and it's the cat's mat.",
    "  We'll see 1234 dogs!\n\nÜBER façade, 猫が好き",
    "Ναι, ο Σίσυφος! ΌΣΟΣ (na\u0301ive) \u200b \x00 \u00a0 don't",
]
GAPS = ["the [MASK] sat on the [MASK].", "[MASK]!", "façade [MASK] we'll see [MASK] dogs"]
PAIRS = [("the cat sat", "on the mat"), ("dogs", "we'll see, and see"), ("", "mat")]

TOKENIZERS = {
    "uncased": {},
    "cased": {"do_lower_case": False},
    "cased without accents": {"do_lower_case": False, "strip_accents": True},
    "uncased with accents": {"strip_accents": False, "tokenize_chinese_chars": False},
}


def tokenizer_of(name="uncased", first=SPELLED):
    """A WordPiece as BERT's, learned from the texts above."""
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=TOKENIZERS[name].get("do_lower_case", True))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=V, special_tokens=list(first), show_progress=False)
    library.train_from_iterator(TEXT * 3, trainer)
    return transformers.BertTokenizer(vocab=library.get_vocab(), **TOKENIZERS[name])


CASES = {
    "as published": {},
    "wide epsilon, relu": {"layer_norm_eps": 1e-2, "hidden_act": "relu"},
    "approximate gelu": {"hidden_act": "gelu_new", "type_vocab_size": 3},
    "own output layer": {"tie_word_embeddings": False},
}


def make(kind, folder, tokenizer, **options):
    """A folder that transformers saved, and the model."""
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=D, intermediate_size=FF, num_attention_heads=HEADS,
        num_hidden_layers=LAYERS, max_position_embeddings=LONGEST, **options,
    )  # fmt: skip
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def close(ours, theirs):
    """Whole tensors, in fp32, relative to the largest number."""
    scale = max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-5 * scale)


def numbers_of(folder):
    """Their id, by ours."""
    checkpoint = Checkpoint(folder)
    return read_wordpiece(checkpoint)[1].theirs


def batch_of(run, inputs):
    """Texts, or pairs of them, with the special tokens around them."""
    tokenizer = run.processor.text
    parts = [[tokenizer.encode(text) for text in each] for each in inputs]
    return Batch.labelled(
        parts, [0] * len(parts), classify=SPECIALS.classify, separate=SPECIALS.separate
    ).inputs


def read_by(model, tokenizer, inputs):
    """What transformers computes of the same, padded."""
    texts = [list(each) for each in zip(*inputs, strict=True)]
    return model(**tokenizer(*texts, padding=True, return_tensors="pt"))


def columns(theirs):
    """Their logits' columns in the order of our learned ids, then of our specials'."""
    return [*theirs[len(SPECIALS) :], *(i for i in theirs[: len(SPECIALS)] if i is not None)]


def our_columns(theirs):
    return [
        *range(len(SPECIALS), len(theirs)),
        *(our for our in range(len(SPECIALS)) if theirs[our] is not None),
    ]


def agrees(run, model, tokenizer, theirs, inputs):
    """Hidden states and the logits of every head that both have."""
    batch = batch_of(run, inputs)
    layout, heads = batch.layout, run.model.heads
    with torch.no_grad():
        out, hidden = read_by(model, tokenizer, inputs), run.model(batch)
        if "prediction_logits" in out or ("logits" in out and "token" in heads):
            wanted = layout.unpad(out.get("prediction_logits", out.get("logits")))
            close(heads["token"](hidden)[:, our_columns(theirs)], wanted[:, columns(theirs)])
        if "seq_relationship_logits" in out:
            close(class_logits(hidden, heads, layout, "next"), out.seq_relationship_logits)
        if "class" in heads:
            close(class_logits(hidden, heads, layout), out.logits)
        if "value" in heads:
            scale = run.processor.scale
            close(scale.mean + scale.deviation * values(hidden, heads, layout), out.logits[:, 0])
        if "tag" in heads:
            close(heads["tag"](hidden), layout.unpad(out.logits))
        if "answer" in heads:
            both = torch.stack([out.start_logits, out.end_logits], -1)
            close(heads["answer"](hidden), layout.unpad(both))
        if "last_hidden_state" in out:
            close(hidden, layout.unpad(out.last_hidden_state))
            close(heads["pooled"](hidden, layout), out.pooler_output)


KINDS = {
    "hidden tokens": ("BertForMaskedLM", {}),
    "pre-training": ("BertForPreTraining", {}),
    "no head": ("BertModel", {}),
    "classes": ("BertForSequenceClassification", {"num_labels": 3}),
    "a number": ("BertForSequenceClassification", {"num_labels": 1}),
    "tags": ("BertForTokenClassification", {"num_labels": 5}),
    "answers": ("BertForQuestionAnswering", {}),
}
INPUTS = {"texts": [(text,) for text in TEXT[:2]], "pairs": PAIRS}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("kind, head", KINDS.values(), ids=KINDS)
def test_both_compute_the_same_in_both_directions(kind, head, options, tmp_path):
    tokenizer = tokenizer_of()
    model = make(kind, tmp_path / "their", tokenizer, **options, **head)
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    for inputs in INPUTS.values():
        agrees(run, model, tokenizer, numbers_of(tmp_path / "their"), inputs)

    out = export_run(tmp_path / "run", "bert", tmp_path / "back")
    again, told = getattr(transformers, kind).from_pretrained(out, output_loading_info=True)
    assert not any(told[each] for each in ("missing_keys", "mismatched_keys", "error_msgs")), told
    # BertModel has no head for hidden tokens, which every masked language model of heedful's has.
    assert all(kind == "BertModel" and name.startswith("cls.") for name in told["unexpected_keys"]), told
    own = transformers.AutoTokenizer.from_pretrained(out)
    for inputs in INPUTS.values():
        agrees(run, again.eval(), own, numbers_of(out), inputs)
    state = again.state_dict()
    moved = {name for name in state if state[name].shape[:1] == (len(tokenizer),)}
    for name, tensor in model.state_dict().items():
        assert name in moved or torch.equal(tensor, state[name]), name


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.txt"])
def test_text_has_the_same_tokens(name, file, tmp_path):
    tokenizer = tokenizer_of(name)
    make("BertModel", tmp_path / "their", tokenizer)
    if file == "vocab.txt":
        names = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
        (tmp_path / "their" / file).write_text("\n".join(names) + "\n", "utf-8")
        (tmp_path / "their" / "tokenizer.json").unlink()
        settings_of = {**TOKENIZERS[name], "tokenizer_class": "BertTokenizer"}
        (tmp_path / "their" / "tokenizer_config.json").write_text(json.dumps(settings_of), "utf-8")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "their")
    checkpoint = Checkpoint(tmp_path / "their")
    ours, numbering = read_wordpiece(checkpoint)
    run = import_run(tmp_path / "their", tmp_path / "run").path
    exported = transformers.AutoTokenizer.from_pretrained(export_run(run, "bert"))
    back = numbers_of(tmp_path / "run-bert")

    def ordinary(text):
        """What spells a special token is ordinary text here, and the token there."""
        return not any(special in text for special in tokenizer.all_special_tokens)

    @settings(max_examples=200)
    @given((st.text() | st.text(alphabet=sorted({*"".join(TEXT), "İ", "ß", "́", "\t", "﷐"}))).filter(ordinary))
    def same(text):
        ids = ours.encode(text)
        wanted = tokenizer(text, add_special_tokens=False).input_ids
        assert [numbering.theirs[i] for i in ids] == wanted
        assert [back[i] for i in ids] == exported(text, add_special_tokens=False).input_ids

    same()
    for text in TEXT:
        same.hypothesis.inner_test(text)
        assert ours.encode(text).count(SPECIALS.unknown) < len(ours.encode(text)) / 2


def filled(model, tokenizer, text):
    """The texts of the gaps, each by its most probable token."""
    inputs = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits[0][inputs.input_ids[0] == tokenizer.mask_token_id]
    logits[:, tokenizer.all_special_ids] = float("-inf")
    return tokenizer.convert_ids_to_tokens(logits.argmax(-1))


def test_gaps_are_filled_alike(tmp_path):
    tokenizer = tokenizer_of()
    model = make("BertForMaskedLM", tmp_path / "their", tokenizer)
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    for text, prediction in zip(GAPS, run.predict(GAPS), strict=True):
        assert prediction.tokens == filled(model, tokenizer, text)


def test_classes_have_their_names(tmp_path):
    tokenizer = tokenizer_of()
    labels = {0: "bad", 1: "so so", 2: "good"}
    model = make(
        "BertForSequenceClassification", tmp_path / "their", tokenizer, id2label=labels,
        label2id={name: i for i, name in labels.items()}, finetuning_task="MRPC",
    )  # fmt: skip
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    assert run.recipe.task.pairs
    with torch.no_grad():
        wanted = read_by(model, tokenizer, PAIRS).logits
    found = run.predict(PAIRS)
    assert [prediction.text for prediction in found] == [labels[i] for i in wanted.argmax(-1).tolist()]
    close(torch.tensor([p.score for p in found]), wanted.log_softmax(-1).amax(-1))
    out = export_run(tmp_path / "run", "bert")
    assert transformers.AutoConfig.from_pretrained(out).id2label == labels
    # heedful writes down that inputs are pairs, for which transformers has no key.
    assert load(import_run(out, tmp_path / "again").path).recipe.task.pairs


@pytest.mark.parametrize("where", ["added", "vocabulary"])
def test_a_huge_token_is_refused_by_its_folder_in_a_short_message(tmp_path, monkeypatch, where):
    make("BertForSequenceClassification", tmp_path / "their", tokenizer_of(), num_labels=2)
    path = tmp_path / "their" / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    vocabulary, token = content["model"]["vocab"], "x" * 3000
    number = vocabulary.pop(max(vocabulary, key=vocabulary.__getitem__))
    if where == "added":
        content["added_tokens"].append({**content["added_tokens"][-1], "content": token, "id": number})
    else:
        vocabulary[token] = number
    path.write_text(json.dumps(content), "utf-8")
    monkeypatch.setattr(limits, "LONGEST_TEXT", 1000)
    with pytest.raises((RequestError, DataError)) as raised:
        import_run(tmp_path / "their", tmp_path / "run")
    assert str(raised.value).startswith(str(tmp_path / "their"))
    assert len(str(raised.value)) < 500
    assert re.search("3,00[01]", str(raised.value))


def test_labels_without_names_get_them_as_every_message_says(tmp_path):
    """The note of the import and the error about rows with other labels have the same remedy, which works."""
    make("BertForSequenceClassification", tmp_path / "their", tokenizer_of(), num_labels=2)
    notes, rows = [], [{"text": "a", "label": "good"}, {"text": "b", "label": "bad"}]
    run = heedful.load(import_run(tmp_path / "their", tmp_path / "run", notes.append).path)
    (note,) = [note.removeprefix("note: ") for note in notes if "LABEL_0" in note]
    with pytest.raises(DataError) as raised:
        run.evaluate(data=rows)
    assert note in str(raised.value)
    key, file = re.search(r"names under (\w+) in its ([\w.]+), and import it again", note).groups()
    path = tmp_path / "their" / file
    names = {key: {"0": "bad", "1": "good"}}
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | names), "utf-8")
    again = heedful.load(import_run(tmp_path / "their", tmp_path / "again", notes.append).path)
    assert again.evaluate(data=rows).scores
    assert sum("LABEL_0" in note for note in notes) == 1


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertModel"])
def test_a_model_without_labels_has_no_note_on_their_names(architecture, tmp_path):
    make(architecture, tmp_path / "their", tokenizer_of())
    notes = []
    import_run(tmp_path / "their", tmp_path / "run", notes.append)
    assert [note for note in notes if "have no names" in note] == []


def test_a_classifier_of_pairs_that_does_not_say_so_is_made_to_as_the_note_says(tmp_path):
    make("BertForSequenceClassification", tmp_path / "their", tokenizer_of(), num_labels=2)
    notes = []
    import_run(tmp_path / "their", tmp_path / "single", notes.append)
    (note,) = [note for note in notes if "single texts" in note]
    path = tmp_path / "their" / "config.json"
    said = json.loads("{" + note.partition("add ")[2].partition(" to its")[0] + "}")
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | said), "utf-8")
    assert load(import_run(tmp_path / "their", tmp_path / "pairs").path).recipe.task.pairs


def test_words_have_the_tags_of_their_first_tokens(tmp_path):
    tokenizer = tokenizer_of()
    model = make("BertForTokenClassification", tmp_path / "their", tokenizer, num_labels=5)
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    words = ["the", "dogs'", "mat,", "façade", "sat", "1234"]
    read = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        best = model(**read).logits[0].argmax(-1).tolist()
    first = [read.word_ids().index(i) for i in range(len(words))]
    (found,) = run.predict([" ".join(words)])
    assert found.tags == [model.config.id2label[best[i]] for i in first]


def test_numbers_that_were_learned_here_are_numbers_there(make_run, tmp_path):
    recipe = {**RECIPE, "task": {"kind": "regression"}}
    rows = [{"text": TEXT[i % 2], "label": str(x)} for i, x in enumerate((1.5, -7, 400))]
    run = load(make_run(tmp_path / "run", recipe, rows))
    out = export_run(tmp_path / "run", "bert")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    with torch.no_grad():
        theirs = read_by(model, tokenizer, INPUTS["texts"]).logits[:, 0]
    found = [prediction.value for prediction in run.predict([text for (text,) in INPUTS["texts"]])]
    assert run.processor.scale.deviation > 100
    close(torch.tensor(found), theirs)


def test_old_names_copies_and_half_precision(tmp_path):
    """As published in 2018: the names of the norms, and both heads beside a configuration of one."""
    tokenizer = tokenizer_of()
    model = make("BertForPreTraining", tmp_path / "their", tokenizer)
    path = tmp_path / "their" / "model.safetensors"
    held = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): t.half()
        for name, t in load_file(path).items()
    }
    held["bert.embeddings.position_ids"] = torch.arange(LONGEST)[None]
    held["cls.predictions.decoder.weight"] = held["bert.embeddings.word_embeddings.weight"].clone()
    save_file(held, path)
    config = json.loads((tmp_path / "their" / "config.json").read_text("utf-8"))
    config["architectures"] = ["BertForMaskedLM"]
    (tmp_path / "their" / "config.json").write_text(json.dumps(config), "utf-8")
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    assert run.recipe.task.next_sentence
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    agrees(run, model.half().float(), tokenizer, numbers_of(tmp_path / "their"), PAIRS)


def test_specials_may_stand_anywhere(tmp_path):
    """As in published vocabularies, where [UNK] has the number 100."""
    usual = tokenizer_of()
    names = sorted(usual.get_vocab(), key=usual.get_vocab().get)
    others = names[len(SPELLED) :]
    order = ["[PAD]", *others[:7], "[MASK]", "[UNK]", *others[7:50], "[SEP]", "[CLS]", *others[50:]]
    tokenizer = transformers.BertTokenizer(vocab={name: i for i, name in enumerate(order)})
    model = make("BertForMaskedLM", tmp_path / "their", tokenizer)
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    agrees(run, model, tokenizer, numbers_of(tmp_path / "their"), PAIRS)


RECIPE = {
    "task": {"kind": "masked-language-modelling"},
    "tokenizer": {"subwords": {"kind": "wordpiece", "vocab_size": 120, "min_frequency": 1}},
    "model": {
        "kind": "encoder",
        "d_model": D,
        "n_layers": 2,
        "max_length": LONGEST,
        "layer": {"mixer": {"kind": "attention", "n_heads": 2}},
    },
}


@pytest.mark.parametrize(
    "cleaning", [{}, {"clean": True, "chinese": True, "strip_accents": True, "lowercase": True}]
)
def test_a_run_that_was_trained_here_computes_the_same_there(make_run, tmp_path, cleaning):
    recipe = {**RECIPE, "tokenizer": {"subwords": {**RECIPE["tokenizer"]["subwords"], "cleaning": cleaning}}}
    folder = make_run(tmp_path / "run", recipe, [{"text": text} for text in TEXT])
    out = export_run(folder, "bert")
    with warnings.catch_warnings():
        model, told = transformers.AutoModelForMaskedLM.from_pretrained(out, output_loading_info=True)
    assert not any(told[each] for each in ("missing_keys", "mismatched_keys", "error_msgs")), told
    # The layer over the first token, of which transformers' masked models have none.
    assert told["unexpected_keys"] == {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    run = load(folder)
    agrees(run, model.eval(), tokenizer, numbers_of(out), INPUTS["texts"])
    for text, prediction in zip(GAPS, run.predict(GAPS), strict=True):
        assert prediction.tokens == filled(model, tokenizer, text)


def test_every_loader_is_one_of_transformers():
    assert all(hasattr(transformers, name.split(".")[1]) for name in BERT.loaders.values())


@pytest.mark.parametrize(
    "name, sizes",
    [
        ("bert-base", {}),
        (
            "bert-large",
            {
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "intermediate_size": 4096,
            },
        ),
    ],
)
def test_a_preset_is_what_the_published_configuration_is_imported_as(name, sizes):
    values = transformers.BertConfig(**sizes).to_dict()
    config, _ = _configuration(Settings(values, "config.json"), {"pooled", "token"})
    assert config == PRESETS[name].changed(layer={"channels": {"d_ff": 4 * config.d_model}})


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_an_imported_run_explains_with_the_attention_of_bert(options, tmp_path):
    kind, tokenizer = "BertForSequenceClassification", tokenizer_of()
    make(kind, tmp_path / "their", tokenizer, **options)
    import_run(tmp_path / "their", tmp_path / "run")
    text = "the cat sat on the mat"
    found = explained(tmp_path / "run", text)
    model = getattr(transformers, kind).from_pretrained(tmp_path / "their", attn_implementation="eager")
    read = model.eval()(**tokenizer(text, return_tensors="pt"), output_attentions=True)
    same_attention(found, "self", read.attentions)


# The two files of a tokenizer

CLEANED = "The Na\u00efve\u0301 \x00 \u732b CAT"
OPTIONS = [
    {},
    {"do_lower_case": True},
    {"do_lower_case": False},
    {"strip_accents": True},
    {"strip_accents": False},
    {"tokenize_chinese_chars": False},
    {"do_lower_case": False, "strip_accents": False},
]
STATED = [
    {"tokenizer_class": name, **options}
    for name in ("BertTokenizer", "PreTrainedTokenizerFast")
    for options in OPTIONS
]
NORMALISERS = {
    "uncased": normalizers.BertNormalizer(),
    "cased": normalizers.BertNormalizer(lowercase=False),
    "uncased, with accents": normalizers.BertNormalizer(strip_accents=False),
    "as it comes": normalizers.BertNormalizer(False, False, False, False),
    "none": None,
}


@pytest.mark.parametrize("normaliser", NORMALISERS.values(), ids=NORMALISERS.keys())
def test_files_that_contradict_each_other_are_refused_and_others_read_as_there(tmp_path, normaliser):
    """Which file counts depends on the class there; whatever is imported has the same tokens."""
    names = [*SPELLED, *sorted({*"The Naïve CAT the naive cat \u732b \u0301" + CLEANED} - {" ", "\x00"})]
    names += [f"##{name}" for name in names[5:]]
    library = Library(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if normaliser is not None:
        library.normalizer = normaliser
    library.add_special_tokens(SPELLED)
    (tmp_path / "tokenizer.json").write_text(library.to_str(), "utf-8")
    config = {"model_type": "bert", "vocab_size": len(names)}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    imported, refused = 0, []
    for stated in [*STATED, None]:
        (tmp_path / "tokenizer_config.json").unlink(missing_ok=True)
        if stated is not None:
            said = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPELLED, strict=False))
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(said | stated), "utf-8")
        checkpoint = Checkpoint(tmp_path)
        try:
            tokenizer, numbering = read_wordpiece(checkpoint)
        except RequestError as error:
            refused.append(str(error))
            continue
        imported += 1
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        wanted = theirs(CLEANED, add_special_tokens=False).input_ids
        assert [numbering.theirs[i] for i in tokenizer.encode(CLEANED)] == wanted, stated
    assert imported > 0
    assert refused
    assert all("set both to the value used in training" in message for message in refused)


@pytest.mark.parametrize("fixed", ["padding", "truncation"])
def test_fixed_padding_and_truncation_change_nothing_as_there(tmp_path, fixed):
    tokenizer = tokenizer_of()
    make("BertForMaskedLM", tmp_path / "their", tokenizer)
    library = Library.from_file(str(tmp_path / "their" / "tokenizer.json"))
    library.enable_padding(length=20) if fixed == "padding" else library.enable_truncation(3)
    library.save(str(tmp_path / "their" / "tokenizer.json"))
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "their")
    numbers = numbers_of(tmp_path / "their")
    for text in TEXT:
        wanted = theirs(text, add_special_tokens=False).input_ids
        assert [numbers[i] for i in run.processor.text.encode(text)] == wanted
        assert len(wanted) > 3
