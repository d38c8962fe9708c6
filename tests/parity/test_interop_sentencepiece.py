"""Marian's own tokenizers: text has the same tokens as in transformers, and the same translation."""

import json

import pytest
import torch
from fine_tuned import fine_tune, token_losses
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.api.run import load
from heedful.decoding.config import GreedyConfig, MaxLength
from heedful.errors import DamagedError, RequestError
from heedful.interop.conversion import export_run, import_run
from heedful.text.specials import SPECIALS

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

SOURCES = ["The red dog runs, and the blue cat sleeps.", "A bird sings: 1234 ½ songs!", "dogs’ ﬁsh  swim"]
TARGETS = ["Der rote Hund läuft, und die blaue Katze schläft.", "Ein Vogel singt: 1234 ½ Lieder!", "Fische"]
CODE = ">>deu<<"
D = 22


def learn(lines, path, size):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 5), model_prefix=str(path.with_suffix("")), vocab_size=size,
        hard_vocab_limit=False, model_type="unigram", normalization_rule_name="nmt_nfkc",
        character_coverage=1.0, minloglevel=2,
    )  # fmt: skip
    path.with_suffix(".model").rename(path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(i) for i in range(3, len(processor))]


@pytest.fixture(params=["one vocabulary", "two vocabularies"])
def theirs(request, tmp_path):
    """A folder as transformers saves it, the model and the tokenizer."""
    folder = tmp_path / "their"
    folder.mkdir()
    pieces = [
        learn(lines, folder / f"{side}.spm", 60) for side, lines in (("source", SOURCES), ("target", TARGETS))
    ]
    apart = request.param == "two vocabularies"
    names = pieces if apart else [[*pieces[0], *pieces[1]]] * 2
    # As in Marian: the end first; in one vocabulary what fills comes last, behind the codes of languages.
    first, last = (["<pad>"], []) if apart else ([], ["<pad>"])
    names = [list(dict.fromkeys(["</s>", "<unk>", *first, *some, CODE, *last])) for some in names]
    pad = names[1].index("<pad>")
    files = ["vocab.json", "target_vocab.json"] if apart else ["vocab.json"]
    for file, some in zip(files, names, strict=False):
        (folder / file).write_text(json.dumps({name: i for i, name in enumerate(some)}), "utf-8")
    told = {"separate_vocabs": apart, "tokenizer_class": "MarianTokenizer", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**told, "source_lang": "en"}), "utf-8")
    config = transformers.MarianConfig(
        vocab_size=len(names[0]), decoder_vocab_size=len(names[1]), d_model=D, encoder_layers=2,
        decoder_layers=2, encoder_ffn_dim=31, decoder_ffn_dim=31, encoder_attention_heads=2,
        decoder_attention_heads=2, max_position_embeddings=64, scale_embedding=True,
        activation_function="swish", pad_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
        decoder_start_token_id=pad, share_encoder_decoder_embeddings=not apart,
    )  # fmt: skip
    torch.manual_seed(2)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter += (1.0 if "shared" in name or "embed_tokens" in name else 0.2) * torch.randn_like(
                    parameter
                )
    model.save_pretrained(folder)
    return folder, model, transformers.MarianTokenizer.from_pretrained(folder)


def written(model, tokenizer, text):
    """What transformers makes of a text, greedily."""
    config = model.config
    with torch.no_grad():
        ids = model.generate(
            **tokenizer(text, return_tensors="pt"), num_beams=1, do_sample=False, max_new_tokens=13,
            forced_eos_token_id=None,
            bad_words_ids=[[config.decoder_start_token_id], [tokenizer.unk_token_id]],
        )  # fmt: skip
    return tokenizer.decode(ids[0], skip_special_tokens=True, clean_up_tokenization_spaces=False)


GREEDY = GreedyConfig(max_length=MaxLength(ratio=0, extra=13))


def test_text_has_the_same_tokens(theirs, tmp_path):
    folder, _, tokenizer = theirs
    source = load(import_run(folder, tmp_path / "run").path).processor.source
    their = json.loads((folder / "vocab.json").read_text("utf-8"))
    names = {i: name for name, i in their.items()}

    def ordinary(text):
        """What spells a special token is ordinary text here, and the token there."""
        return not any(special in text for special in tokenizer.all_special_tokens)

    @settings(max_examples=300)
    @given((st.text() | st.text(alphabet=sorted({*"".join(SOURCES)}))).filter(ordinary))
    @example("")
    @example(SOURCES[2])
    @example(f"{CODE} The red dog")
    @example(f"The {CODE[2:]} dog")
    def same(text):
        found = source.tokens(source.encode(text))
        wanted = [names[i] for i in tokenizer(text, add_special_tokens=False).input_ids]
        assert found == wanted

    same()


@pytest.mark.parametrize("key", ["decoder_start_token_id", "eos_token_id", "pad_token_id"])
def test_a_special_token_that_is_a_piece_of_text_is_refused(theirs, tmp_path, key):
    """There it is both: text has it, and writing begins or ends with it."""
    folder, _, tokenizer = theirs
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    (piece, *_) = tokenizer(text_target="Hund", add_special_tokens=False).input_ids
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, key: piece}), "utf-8")
    with pytest.raises(RequestError) as error:
        import_run(folder, tmp_path / "run")
    assert f"config.json: {key}: {piece} is " in str(error.value)
    assert "a piece of ordinary text in " in str(error.value)


def test_ids_are_the_same_text(theirs, tmp_path):
    folder, _, tokenizer = theirs
    target = load(import_run(folder, tmp_path / "run").path).processor.target

    @settings(max_examples=100)
    @given(st.lists(st.integers(len(SPECIALS), target.vocab_size - 1)))
    def same(ids):
        pieces = [piece for piece in target.tokens(ids) if piece != CODE]
        wanted = tokenizer.convert_tokens_to_string(pieces)
        assert target.decode([i for i in ids if target.tokens([i]) != [CODE]]).strip() == wanted.strip()

    same()


def test_translations_are_the_same_in_both_directions(theirs, tmp_path):
    folder, model, tokenizer = theirs
    run = load(import_run(folder, tmp_path / "run").path)
    texts = [*SOURCES, f"{CODE} dogs sing", "ﬁsh"]
    found = [prediction.text for prediction in run.predict(texts, decoding=GREEDY)]
    assert found == [written(model, tokenizer, text) for text in texts]
    assert len({*found}) > 1

    out = export_run(tmp_path / "run", "marian", tmp_path / "back")
    again, told = transformers.MarianMTModel.from_pretrained(out, output_loading_info=True)
    assert not any(told.values()), told
    own = transformers.AutoTokenizer.from_pretrained(out)
    assert [written(again.eval(), own, text) for text in texts] == found
    state = again.state_dict()
    for name, tensor in model.state_dict().items():
        # Tables of sines are longer: as many positions as heedful reads.
        rows = slice(len(tensor)) if name.endswith("embed_positions.weight") else slice(None)
        assert torch.equal(tensor, state[name][rows]), name
    for name in ("source.spm", "target.spm"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    for path in folder.glob("*vocab.json"):
        assert json.loads((out / path.name).read_text("utf-8")) == json.loads(path.read_text("utf-8"))


def test_a_tokenizer_is_kept_in_one_file(theirs, tmp_path):
    folder, _, _ = theirs
    first = load(import_run(folder, tmp_path / "run").path)
    for name in ("source.spm", "target.spm"):
        (folder / name).unlink()
    again = load(tmp_path / "run").processor
    assert again.fingerprint == first.processor.fingerprint
    assert again.source.encode(SOURCES[0]) == first.processor.source.encode(SOURCES[0])


def damage(folder):
    (folder / "source.spm").write_bytes(b"nothing of the sort")


def lose_a_token(folder):
    ids = json.loads((folder / "vocab.json").read_text("utf-8"))
    ids.popitem()
    (folder / "vocab.json").write_text(json.dumps(ids), "utf-8")


def leave_a_gap(folder):
    ids = json.loads((folder / "vocab.json").read_text("utf-8"))
    ids[[*ids][-1]] += 1
    (folder / "vocab.json").write_text(json.dumps(ids), "utf-8")


@pytest.mark.parametrize(
    "change, error, message",
    [
        (damage, DamagedError, "source.spm: is not a valid sentencepiece model"),
        (lose_a_token, RequestError, "they belong to different models"),
        (leave_a_gap, DamagedError, "vocab.json: its ids must be 0 to"),
        (lambda folder: (folder / "target.spm").unlink(), RequestError, "target.spm: no such file"),
        (lambda folder: (folder / "vocab.json").unlink(), RequestError, "has no tokenizers: neither"),
    ],
)
def test_what_does_not_fit_is_refused(theirs, tmp_path, change, error, message):
    change(theirs[0])
    with pytest.raises(error) as caught:
        import_run(theirs[0], tmp_path / "run")
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_training_on_own_pairs_begins_where_marian_is(theirs, tmp_path):
    """The first loss is the mean over all target tokens of what transformers finds, pair by pair."""
    folder, model, tokenizer = theirs
    import_run(folder, tmp_path / "run")
    pairs = [("a blue bird swims", "eine blaue Katze singt"), ("dogs", "Hund und Fische")]
    (tmp_path / "rows.tsv").write_text("".join(f"{x}\t{y}\n" for x, y in pairs), "utf-8")
    source = {"kind": "tsv", "paths": "rows.tsv", "columns": {"source": 0, "target": 1}}
    tuned = fine_tune(
        tmp_path,
        source,
        task={"kind": "translation"},
        model={"dropout": 0.0, "layer": {"mixer": {"dropout": 0.0}}},
        objective={"label_smoothing": 0.0},
        validation={"decode": 0},
    )
    n_specials = tuned.run.processor.sizes[1] - model.config.decoder_vocab_size
    losses = []
    for x, y in pairs:
        ids, wanted = (
            tokenizer(**text, return_tensors="pt").input_ids for text in ({"text": x}, {"text_target": y})
        )
        start = torch.tensor([[model.config.decoder_start_token_id]])
        with torch.no_grad():
            logits = model(ids, decoder_input_ids=torch.cat([start, wanted[:, :-1]], dim=1)).logits[0]
        losses.append(token_losses(logits, wanted[0], n_specials))
    assert tuned.losses[0] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5)
    assert tuned.losses[2] < tuned.losses[0]
    assert len(tuned.run.predict(["a bird"], decoding=GREEDY)) == 1
