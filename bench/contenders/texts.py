"""Language model training peers: a plain GPT, GPT-2 of transformers, x-transformers."""

from functools import partial

from torch import Tensor, nn

from contenders.plain_gpt import PlainGPT
from contenders.training import contenders, cross_entropy
from harness.batches import texts
from harness.contender import Contender
from harness.flops import Shape


def peers(shape: Shape, dropout: float, rounds: int, device: str) -> list[Contender]:
    """Return all three with every setting."""
    classes = {"plain torch GPT": Plain, "transformers GPT-2": GPT2, "x-transformers": XTransformers}
    return [
        contender
        for library, module in classes.items()
        for contender in contenders(
            library, partial(module, shape, dropout), lambda: [(t,) for t in texts(shape, rounds)], device
        )
    ]


class Plain(nn.Module):
    """`contenders.plain_gpt`."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.model = PlainGPT(
            shape.vocab, shape.length, shape.n_layers, shape.d_model, shape.n_heads, dropout
        )

    def forward(self, text: Tensor) -> Tensor:
        """Return the loss."""
        return cross_entropy(self.model(text[:, :-1]), text[:, 1:], 0.0)


class GPT2(nn.Module):
    """`transformers.GPT2LMHeadModel` with scaled-dot-product attention."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=shape.vocab, n_positions=shape.length, n_embd=shape.d_model, n_layer=shape.n_layers,
            n_head=shape.n_heads, n_inner=shape.d_ff, resid_pdrop=dropout, embd_pdrop=dropout,
            attn_pdrop=dropout, bos_token_id=1, eos_token_id=2, attn_implementation="sdpa",
        )  # fmt: skip
        self.model = GPT2LMHeadModel(config)

    def forward(self, text: Tensor) -> Tensor:
        """Return the loss; shifting before the model saves the last position."""
        logits = self.model(input_ids=text[:, :-1], use_cache=False).logits
        return cross_entropy(logits, text[:, 1:], 0.0)


class XTransformers(nn.Module):
    """`x_transformers.Decoder` with its flash path."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        from x_transformers import Decoder, TransformerWrapper

        layers = Decoder(
            dim=shape.d_model, depth=shape.n_layers, heads=shape.n_heads, attn_flash=True,
            attn_dim_head=shape.d_model // shape.n_heads, ff_mult=shape.d_ff / shape.d_model,
            attn_dropout=dropout, ff_dropout=dropout,
        )  # fmt: skip
        self.model = TransformerWrapper(
            num_tokens=shape.vocab, max_seq_len=shape.length, attn_layers=layers, tie_embedding=True,
            emb_dropout=dropout,
        )  # fmt: skip

    def forward(self, text: Tensor) -> Tensor:
        """Return the loss."""
        return cross_entropy(self.model(text[:, :-1]), text[:, 1:], 0.0)
