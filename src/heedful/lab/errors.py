"""What the lectures say wrongly of names, dates and citations, where a sentence is enough.

What they print wrongly of formulas and numbers are experiments (whose verdict is "is wrong"); the gallery
lists both on one page.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Slip:
    """A name or a date that a lecture has wrong.

    Args:
        item: its number.
        lecture: S0 to S4.
        printed: what it says.
        correct: what is true, with the source.
    """

    item: int
    lecture: str
    printed: str
    correct: str


NAMES = (
    Slip(
        2,
        "S4",
        "the forget gate is the key addition of the LSTM",
        "the cell of 1997 had none (Hochreiter and Schmidhuber); Gers et al. added it in 2000",
    ),
    Slip(
        2,
        "S4",
        "LSTMs introduced catastrophic forgetting",
        "that is losing an old task while learning a new one (McCloskey and Cohen 1989); what is meant is "
        "the loss of distant context",
    ),
    Slip(
        4,
        "S0",
        "the encoder's final state is called annotation",
        "annotations are all the h_i (Bahdanau et al. 2014, section 3.2)",
    ),
    Slip(
        22,
        "S4",
        "softmax(Q K^T / √d_k) V, of T x d_v, is the attention matrix",
        "that is the result; the attention matrix is that of the weights, T x T",
    ),
    Slip(
        28,
        "S0",
        "the second sentence of the pair ends in “because it was congested”",
        "a Winograd pair differs in one word: “too tired” and “too wide”",
    ),
    Slip(
        32,
        "S2",
        "Press and Wolf are cited for weights that positions share",
        "their paper ties embeddings to the output layer; the feed-forward is Vaswani et al. 2017, section "
        "3.3",
    ),
    Slip(
        51,
        "S4",
        "the input is mapped by a pre-trained matrix",
        "in the paper it is learned with the rest, as S0 says (Vaswani et al. 2017, section 3.4)",
    ),
    Slip(
        74,
        "S1",
        "figure 12 shows a Transformer encoder of 6 layers with 12 heads each",
        "BERT-base has 12 layers with 12 heads each (Devlin et al. 2019, section 3)",
    ),
    Slip(
        74,
        "S1",
        "attention to the previous word, part (b), is diffuse compared to part (b)",
        "compared to part (a), attention to the next word",
    ),
    Slip(86, "S1", "Lee-Thorpe", "Lee-Thorp et al. 2021"),
)
"""What only a sentence can set right."""
