"""The encoder against BERT of `transformers`, with its weights copied over."""

import pytest
import torch

from heedful.data.batch import Batch
from heedful.models.encoder import EncoderConfig, build, class_head

transformers = pytest.importorskip("transformers")

V, D, FF, HEADS, LAYERS, LONGEST, CLASSES = 37, 22, 31, 2, 3, 19, 5


def reference():
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=V, hidden_size=D, intermediate_size=FF, num_attention_heads=HEADS,
        num_hidden_layers=LAYERS, max_position_embeddings=LONGEST, type_vocab_size=2, num_labels=CLASSES,
        layer_norm_eps=1e-5, attn_implementation="eager",
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def ours(theirs):
    config = EncoderConfig(
        d_model=D,
        n_layers=LAYERS,
        max_length=LONGEST,
        dropout=0.1,
        layer={"mixer": {"n_heads": HEADS}, "channels": {"d_ff": FF}},
    )
    model = build(config, V).eval()
    model.heads["class"] = class_head(D, CLASSES, 0.1).eval()
    bert, state = theirs.bert, {}
    embeddings = bert.embeddings
    state["embedding.weight"] = embeddings.word_embeddings.weight
    state["embedding.positions.positions.weight"] = embeddings.position_embeddings.weight
    state["embedding.segments"] = embeddings.token_type_embeddings.weight
    for name in ("weight", "bias"):
        state[f"embedding.norm.{name}"] = getattr(embeddings.LayerNorm, name)
        state[f"heads.pooled.dense.{name}"] = getattr(bert.pooler.dense, name)
        state[f"heads.class.1.{name}"] = getattr(theirs.classifier, name)
        for i, layer in enumerate(bert.encoder.layer):
            block, own = f"stack.blocks.{i}", layer.attention.self
            qkv = [getattr(part, name) for part in (own.query, own.key, own.value)]
            state[f"{block}.mixer.part.qkv.{name}"] = torch.cat(qkv)
            state[f"{block}.mixer.part.out.{name}"] = getattr(layer.attention.output.dense, name)
            state[f"{block}.mixer.norm.{name}"] = getattr(layer.attention.output.LayerNorm, name)
            state[f"{block}.feed_forward.part.up.{name}"] = getattr(layer.intermediate.dense, name)
            state[f"{block}.feed_forward.part.down.{name}"] = getattr(layer.output.dense, name)
            state[f"{block}.feed_forward.norm.{name}"] = getattr(layer.output.LayerNorm, name)
    model.load_state_dict(state)
    return model


def test_hidden_states_pooled_vectors_and_logits_agree():
    theirs = reference()
    model = ours(theirs)
    batch = Batch.labelled(
        [[[7, 8, 9], [10]], [[11], [12, 13, 14, 15, 16, 17, 18]], [[], []]], [0, 1, 2], classify=4, separate=5
    )
    layout = batch.inputs.layout
    ids, segments = layout.pad(batch.inputs.ids), layout.pad(batch.inputs.segments)
    with torch.no_grad():
        out = theirs.bert(ids, attention_mask=layout.real.long(), token_type_ids=segments)
        logits = theirs(ids, attention_mask=layout.real.long(), token_type_ids=segments).logits
        hidden = model(batch.inputs)
        pooled = model.heads["pooled"](hidden, layout)
    torch.testing.assert_close(hidden, layout.unpad(out.last_hidden_state), rtol=0, atol=1e-5)
    torch.testing.assert_close(pooled, out.pooler_output, rtol=0, atol=1e-5)
    torch.testing.assert_close(model.heads["class"](pooled), logits, rtol=0, atol=1e-5)
