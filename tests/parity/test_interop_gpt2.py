"""GPT-2 of transformers: what it saves is imported, what is exported it loads, and both compute the same."""

import json

import numpy as np
import pytest
import torch
from explained import explained, same_attention
from fine_tuned import fine_tune, token_losses
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from heedful.api.run import load
from heedful.data.windows import Windows
from heedful.decoding.config import GreedyConfig
from heedful.errors import RequestError
from heedful.interop.byte_bpe import read_byte_bpe
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.interop.conversion import export_run, import_run
from heedful.interop.gpt2 import _configuration
from heedful.models.language_model import PRESETS
from heedful.nn.layout import Tokens
from heedful.text.specials import SPECIALS

transformers = pytest.importorskip("transformers")

END = "<|endoftext|>"
TEXT = ["the cat sat on the mat, and it's the cat's mat.", "  We'll see 1234 dogs!\n\nÜber façade, நாய் 🐈"]
PROMPTS = ["the cat", "it's", " We'll see", "\n"]


def tokenizer_of(end):
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=307,
        special_tokens=[END] if end == "first" else [],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(TEXT, trainer)
    library.add_special_tokens([END])
    # A class that takes the file as it is, so that the end token keeps its place.
    return transformers.PreTrainedTokenizerFast(tokenizer_object=library, eos_token=END, bos_token=END)


CASES = {
    "as published": {},
    "end first": {"end": "first"},
    "relu, wide epsilon": {"activation_function": "relu", "layer_norm_epsilon": 1e-2},
    "exact gelu, not scaled": {"activation_function": "gelu", "scale_attn_weights": False},
    "own head": {"tie_word_embeddings": False},
    "own width": {"n_inner": 31},
}


def make(folder, end="last", padding=0, **options):
    """A folder that transformers saved: the model and the tokenizer; with rows that no token uses."""
    tokenizer = tokenizer_of(end)
    number = tokenizer.convert_tokens_to_ids(END)
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer) + padding,
        n_positions=29,
        n_embd=22,
        n_layer=3,
        n_head=2,
        bos_token_id=number,
        eos_token_id=number,
        **options,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@pytest.fixture(params=CASES)
def theirs(request, tmp_path):
    """A folder that transformers saved, the model and the tokenizer."""
    return tmp_path / "their", *make(tmp_path / "their", **CASES[request.param])


def test_rows_that_pad_the_vocabulary_are_dropped(tmp_path):
    """Logits of real tokens are the same."""
    model, tokenizer = make(tmp_path / "their", padding=12)
    lines = []
    run = load(import_run(tmp_path / "their", tmp_path / "run", lines.append).path, device="cpu")
    assert any("the last 12 rows belong to no token and are dropped" in line for line in lines)
    assert run.processor.text.vocab_size == len(tokenizer) + len(SPECIALS) - 1  # the end token is one
    ids = tokenizer(TEXT[0]).input_ids[:29]
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0, :, : len(tokenizer)]
    ours = run.processor.text.encode(TEXT[0])[:29]
    numbering = read_byte_bpe(Checkpoint(tmp_path / "their"), whole_texts=False)[1]
    close(logits_of(run.model, [ours])[:, numbering.ours], expected)
    # Tokens that the source lacks get the mean of real rows alone.
    table = run.model.embedding.weight.detach()
    source = model.transformer.wte.weight.detach()[: len(tokenizer)]
    lacking = [our for our, their in enumerate(numbering.theirs) if their is None]
    close(table[lacking], source.mean(0).expand(len(lacking), -1))


def logits_of(model, ids):
    with torch.no_grad():
        return model.heads["token"](model(Tokens.of(ids)))


def close(ours, theirs):
    """Whole tensors, in fp32, relative to the largest number."""
    scale = max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-5 * scale)


def greedily(model, tokenizer, prompts):
    """What transformers writes, without the prompt and the end token."""
    texts = []
    for prompt in prompts:
        ids = torch.tensor([tokenizer(prompt, add_special_tokens=False).input_ids])
        with torch.no_grad():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=19,
                pad_token_id=tokenizer.eos_token_id,
            )
        # All of it: a text that stands alone may begin with a space less than one that goes on.
        whole = tokenizer.decode(out[0], skip_special_tokens=True)
        assert whole.startswith(prompt)
        texts.append(whole.removeprefix(prompt))
    return texts


def test_an_imported_run_computes_what_gpt2_does(theirs, tmp_path):
    folder, model, tokenizer = theirs
    run = load(import_run(folder, tmp_path / "run").path)
    for text in (*TEXT, *PROMPTS):
        ids = run.processor.text.encode(text)[:29]
        assert len(ids) > 0
        their_ids = tokenizer(text, add_special_tokens=False).input_ids[:29]
        with torch.no_grad():
            wanted = model(torch.tensor([their_ids])).logits[0]
        found = logits_of(run.model, [ids])
        specials = run.processor.text.specials
        # Their columns in our order: the end token's, then all that were learned.
        end = tokenizer.eos_token_id
        others = [i for i in range(len(tokenizer)) if i != end]
        close(found[:, len(specials) :], wanted[:, others])
        close(found[:, specials.end], wanted[:, end])
    predictions = run.predict(PROMPTS, decoding=GreedyConfig(), max_new_tokens=19)
    assert [p.text for p in predictions] == greedily(model, tokenizer, PROMPTS)


def test_an_exported_run_is_loaded_whole_and_computes_the_same(theirs, tmp_path):
    run = load(import_run(theirs[0], tmp_path / "run").path)
    out = export_run(tmp_path / "run", "gpt2", tmp_path / "back")
    model, told = transformers.GPT2LMHeadModel.from_pretrained(out, output_loading_info=True)
    assert not any(told.values()), told
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    for text in (*TEXT, *PROMPTS):
        ids = run.processor.text.encode(text)[:29]
        their_ids = tokenizer(text, add_special_tokens=False).input_ids[:29]
        with torch.no_grad():
            wanted = model.eval()(torch.tensor([their_ids])).logits[0]
        found = logits_of(run.model, [ids])
        close(found[:, 7:], wanted[:, :-1])
        close(found[:, 2], wanted[:, -1])
    predictions = run.predict(PROMPTS, decoding=GreedyConfig(), max_new_tokens=19)
    assert [p.text for p in predictions] == greedily(model, tokenizer, PROMPTS)


def test_a_model_without_its_head_and_in_half_precision(theirs, tmp_path):
    """Names without a prefix; fp16 is widened."""
    _, model, tokenizer = theirs
    if not model.config.tie_word_embeddings:
        pytest.skip("without its head such a model has none")
    model.transformer.half().save_pretrained(tmp_path / "bare")
    tokenizer.save_pretrained(tmp_path / "bare")
    run = load(import_run(tmp_path / "bare", tmp_path / "run").path)
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    ids = tokenizer(PROMPTS[0], add_special_tokens=False).input_ids
    with torch.no_grad():
        wanted = model.float()(torch.tensor([ids])).logits[0]
    end = tokenizer.eos_token_id
    others = [i for i in range(len(tokenizer)) if i != end]
    close(logits_of(run.model, [run.processor.text.encode(PROMPTS[0])])[:, 7:], wanted[:, others])


@pytest.mark.parametrize("split", ["class", "space", "gpt2"])
def test_a_run_that_was_trained_here_writes_the_same_there(make_run, tmp_path, split):
    recipe = {
        "task": {"kind": "language-modelling"},
        "tokenizer": {"subwords": {"kind": "byte-bpe", "merges": 40, "min_frequency": 1, "split": split}},
        "model": {
            "kind": "language-model",
            "d_model": 22,
            "n_layers": 2,
            "context": 29,
            "layer": {"mixer": {"kind": "attention", "n_heads": 2}},
        },
    }
    folder = make_run(tmp_path / "run", recipe, [{"text": text} for text in TEXT])
    out = export_run(folder, "gpt2")
    other, told = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(told.values()), told
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    run = load(folder)
    for text in TEXT:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert tokenizer.decode(ids) == text
        with torch.no_grad():
            wanted = other.eval()(torch.tensor([ids[:29]])).logits[0]
        close(logits_of(run.model, [run.processor.text.encode(text)[:29]])[:, 7:], wanted[:, :-1])
    predictions = run.predict(PROMPTS, decoding=GreedyConfig(), max_new_tokens=19)
    assert [p.text for p in predictions] == greedily(other, tokenizer, PROMPTS)


@pytest.mark.parametrize(
    "name, layers, width, heads",
    [
        ("gpt2", 12, 768, 12),
        ("gpt2-medium", 24, 1024, 16),
        ("gpt2-large", 36, 1280, 20),
        ("gpt2-xl", 48, 1600, 25),
    ],
)
def test_a_preset_is_what_the_published_configuration_is_imported_as(name, layers, width, heads):
    values = transformers.GPT2Config(n_layer=layers, n_embd=width, n_head=heads).to_dict()
    config, _ = _configuration(Settings(values, "config.json"))
    assert config == PRESETS[name].changed(layer={"channels": {"d_ff": 4 * width}})


def test_an_imported_run_explains_with_the_attention_of_gpt2(theirs, tmp_path):
    folder, _, tokenizer = theirs
    run = import_run(folder, tmp_path / "run").path
    found = explained(run, "the cat", "--target", " sat on the mat")
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids = tokenizer("the cat sat on the mat", return_tensors="pt").input_ids
    same_attention(found, "causal", model(ids, output_attentions=True).attentions)


# The two files of a tokenizer


def said_of(folder, prefixed, named, stated):
    """The folder, whose tokenizer puts a space before texts or not, by the one file and by the other."""
    whole = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    whole["pre_tokenizer"]["add_prefix_space"] = prefixed
    (folder / "tokenizer.json").write_text(json.dumps(whole), "utf-8")
    said = {"bos_token": END, "eos_token": END} | ({"tokenizer_class": named} if named else {})
    said |= {} if stated is None else {"add_prefix_space": stated}
    (folder / "tokenizer_config.json").write_text(json.dumps(said), "utf-8")


@pytest.mark.parametrize("prefixed", [False, True])
@pytest.mark.parametrize("named", [None, "GPT2Tokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("stated", [None, False, True])
def test_a_space_before_texts_is_refused_whichever_file_says_it(tmp_path, prefixed, named, stated):
    """Which file counts depends on the class there; whatever is imported has the same tokens."""
    make(tmp_path)
    said_of(tmp_path, prefixed, named, stated)
    checkpoint = Checkpoint(tmp_path)
    if stated or prefixed:
        message = r"tokenizer_config\.json: add_prefix_space: True: heedful" if stated else "a prefix space"
        with pytest.raises(RequestError, match=message):
            read_byte_bpe(checkpoint)
        return
    tokenizer, numbering, _ = read_byte_bpe(checkpoint)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXT:
        wanted = theirs(text, add_special_tokens=False).input_ids
        assert [numbering.theirs[i] for i in tokenizer.encode(text)] == wanted


@pytest.mark.parametrize("stated", [False, True])
def test_a_space_before_texts_is_refused_of_vocab_and_merges_too(tmp_path, stated):
    make(tmp_path)
    whole = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    ids = whole["model"]["vocab"] | {token["content"]: token["id"] for token in whole["added_tokens"]}
    (tmp_path / "vocab.json").write_text(json.dumps(ids), "utf-8")
    merges = "\n".join(map(" ".join, whole["model"]["merges"]))
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", "utf-8")
    (tmp_path / "tokenizer.json").unlink()
    said = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": stated}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said), "utf-8")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs("the").input_ids == theirs(" the").input_ids) is stated
    checkpoint = Checkpoint(tmp_path)
    if stated:
        with pytest.raises(RequestError, match=r"tokenizer_config\.json: add_prefix_space: True: heedful"):
            read_byte_bpe(checkpoint)
        return
    tokenizer, numbering, _ = read_byte_bpe(checkpoint)
    wanted = theirs("the cat", add_special_tokens=False).input_ids
    assert [numbering.theirs[i] for i in tokenizer.encode("the cat")] == wanted


@pytest.mark.parametrize("fixed", ["padding", "truncation"])
def test_fixed_padding_and_truncation_change_nothing_as_there(tmp_path, fixed):
    make(tmp_path / "their")
    library = Library.from_file(str(tmp_path / "their" / "tokenizer.json"))
    library.enable_padding(length=20) if fixed == "padding" else library.enable_truncation(3)
    library.save(str(tmp_path / "their" / "tokenizer.json"))
    run = load(import_run(tmp_path / "their", tmp_path / "run").path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "their")
    checkpoint = Checkpoint(tmp_path / "their")
    numbers = read_byte_bpe(checkpoint)[1].theirs
    for text in TEXT:
        wanted = theirs(text, add_special_tokens=False).input_ids
        assert [numbers[i] for i in run.processor.text.encode(text)] == wanted
        assert len(wanted) > 3


# Going on from an imported run

STILL = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def test_training_on_own_text_begins_where_gpt2_is(tmp_path):
    model, tokenizer = make(tmp_path / "their", **STILL)
    import_run(tmp_path / "their", tmp_path / "run")
    text = "the mat sat on the cat.\n"
    (tmp_path / "own.txt").write_text(text, "utf-8")
    source = {"kind": "text", "paths": "own.txt"}
    tuned = fine_tune(tmp_path, source, task={"kind": "language-modelling"})
    end = tokenizer.eos_token_id
    stream = [*tokenizer(text, add_special_tokens=False).input_ids, end]
    assert len(stream) <= 29
    # One window of all of it, that begins somewhere; what precedes the text is an end token.
    begin = Windows(np.array(stream), 29, tuned.run.recipe.training.seed).start(0)
    window = torch.tensor([*stream[begin:], *stream[:begin]])
    with torch.no_grad():
        logits = model(window[None]).logits[0]
    losses = token_losses(logits, window.roll(-1), tuned.run.processor.sizes[0] - len(tokenizer))
    assert tuned.losses[0] == pytest.approx(losses.mean().item(), rel=1e-5)
    assert tuned.losses[2] < tuned.losses[0]
    assert tuned.said[0] == "starting from run"


LABELLED = [
    ("praise", "the cat's mat."),
    ("blame", "it's 1234 dogs"),
    ("praise", "on"),
    ("none", "We'll see"),
]


@pytest.mark.parametrize("pairs", [False, True])
def test_a_gpt2_becomes_a_classifier(tmp_path, pairs):
    """Whose first loss is that of `GPT2ForSequenceClassification`, with the same head."""
    make(tmp_path / "their", **STILL)
    import_run(tmp_path / "their", tmp_path / "run")
    texts = ["text", "pair"][: 1 + pairs]
    rows = [{"label": label, "text": text, "pair": "the cat"} for label, text in LABELLED]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    columns = {name: name for name in ("label", *texts)}
    source = {"kind": "jsonl", "paths": "rows.jsonl", "columns": columns}
    tuned = fine_tune(tmp_path, source, task={"kind": "classification", "pairs": pairs})
    told = "starting from the weights of run; newly initialised heads: class; not used: token"
    assert told in tuned.said
    tokenizer = tokenizer_of("last")
    end, labels = tokenizer.eos_token_id, tuned.run.processor.labels
    theirs = transformers.GPT2ForSequenceClassification.from_pretrained(tmp_path / "their", num_labels=3)
    head, losses = tuned.first.heads["class"][1], []
    with torch.no_grad():
        theirs.score.weight.copy_(head.weight)
        assert not head.bias.any()
        for row in rows:  # one by one: no padding
            ids = [end]
            for name in texts:
                ids += [*tokenizer(row[name], add_special_tokens=False).input_ids, end]
            wanted = torch.tensor([labels.index(row["label"])])
            losses.append(theirs.eval()(torch.tensor([ids]), labels=wanted).loss.item())
    assert tuned.losses[0] == pytest.approx(np.mean(losses), rel=1e-5)
    assert tuned.losses[2] < tuned.losses[0]
    inputs = [tuple(row[name] for name in texts) if pairs else row["text"] for row in rows]
    assert {answer.text for answer in tuned.run.predict(inputs)} <= {*labels}
