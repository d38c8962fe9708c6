"""Numbers printed in the lectures, compared with counts: parameters and layers.

Items 20, 24, 32 to 35 (parameters), 52 (layers), 71, 77 and 87 (sizes of models) of the lectures. The counts
come from heedful's own model summary.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from heedful.lab.drawing import Bars
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.published import BASE, BIG
from heedful.lab.seeds import cache
from heedful.model_summary.summary import ModelSummary, Row, describe
from heedful.models.registry import preset
from heedful.models.transformer import TransformerConfig


@cache
def summary(name: str, *overrides: str) -> ModelSummary:
    """Return the summary of a preset, with some of its values changed."""
    return describe(name, overrides=overrides)


def rows_of(counted: ModelSummary, name: str) -> list[Row]:
    """Return all rows with this name.

    Raises:
        KeyError: there is no such row.
    """
    found = [row for row in counted.lines() if row.line.name == name]
    if not found:
        raise KeyError(name)
    return found


# Matrices, layers, models


def _head_matrix(printed: Mapping[str, int], size: Size) -> Outcome:
    """Compare a number printed for W_Q, of one head or of all, with the model summary."""
    line = rows_of(summary(BASE), "W_Q")[0].line
    counted = {"one head": line.each, "eight heads": line.parameters}
    right = all(counted[what] == number for what, number in printed.items())
    return Outcome(
        "holds" if right else "is wrong",
        "A matrix of 64 x 512 has 32,768 entries; eight of them have 262,144, as the same lecture then "
        "states.",
        [
            *(
                Measured(f"parameters of W_Q, {what}", counted[what], expected=float(number))
                for what, number in printed.items()
            ),
            Measured("eight times what is printed for one head", 8.0 * 32_178, expected=262_144.0),
        ],
        [{"what": what, "counted": number} for what, number in counted.items()],
        [
            Bars(
                "W_Q of one head",
                "",
                "parameters",
                {"printed: 32,178": 32_178, "counted: 32,768": line.each},
            )
        ],
    )


def _encoder_layer(name: str, size: Size) -> Outcome:
    """Compare 3 million per layer and 18 million for six layers with a model."""
    whole_model = summary(name)
    layer, whole = rows_of(whole_model, "encoder layer")[0].line, rows_of(whole_model, "encoder")[0].line
    biased = rows_of(summary(name, "layer.mixer.bias=true"), "encoder layer")[0].line
    millions = round(layer.each / 1e6), round(whole.parameters / 1e6)
    verdict: Verdict = "is wrong"
    if millions[0] == 3:
        verdict = "holds" if millions[1] == 18 else "holds with conditions"
    parts = {part.name: part.parameters for part in layer.parts}
    return Outcome(
        verdict,
        "An encoder layer of the base model has 3,150,336 parameters (3,152,384 with biases in attention): "
        "about 3 million. Six have 18.9 million; 18 results from rounding before multiplying.",
        [
            Measured("parameters of an encoder layer", layer.each, expected=3_150_336.0),
            Measured("with biases in attention", biased.each, expected=3_152_384.0),
            Measured("parameters of the encoder", whole.parameters, expected=18e6),
            *(Measured(f"of a layer: {part}", count) for part, count in parts.items()),
        ],
        [{"part": part, "parameters": count} for part, count in parts.items()],
        [Bars(f"An encoder layer of {name}", "", "parameters", parts)],
    )


def _decoder_layer(name: str, size: Size) -> Outcome:
    """Compare 4 million per decoder layer, 1 per attention and 2 per feed-forward layer with a model."""
    layer = rows_of(summary(name), "decoder layer")[0].line
    biased = rows_of(summary(name, "layer.mixer.bias=true"), "decoder layer")[0].line
    parts = {part.name: part.parameters for part in layer.parts}
    printed = {"causal self-attention": 1, "cross-attention": 1, "feed-forward": 2}
    millions = {part: round(parts[part] / 1e6) for part in printed}
    right = millions == printed and round(layer.each / 1e6) == 4
    return Outcome(
        "holds" if right else "is wrong",
        "A decoder layer of the base model has 4,199,936 parameters (4,204,032 with biases in attention): "
        "about 1 million for each attention and 2 million for the feed-forward.",
        [
            Measured("parameters of a decoder layer", layer.each, expected=4_199_936.0),
            Measured("with biases in attention", biased.each, expected=4_204_032.0),
            *(
                Measured(f"of a layer: {part}", count, expected=1e6 * printed.get(part, 0))
                for part, count in parts.items()
            ),
        ],
        [{"part": part, "parameters": count} for part, count in parts.items()],
        [Bars(f"A decoder layer of {name}", "", "parameters", parts)],
    )


def _layers(name: str, size: Size) -> Outcome:
    """Count one layer for each attention, and two for each feed-forward network."""
    layers = summary(name).layers
    config = preset(name)
    assert isinstance(config, TransformerConfig)
    encoder, decoder = config.n_layers, config.n_decoder_layers or config.n_layers
    return Outcome(
        "holds" if layers == 42 else "is wrong",
        "An encoder layer consists of one attention and the two layers of a feed-forward network; a decoder "
        "layer has a second attention: 6 (1 + 2) + 6 (2 + 2) = 42.",
        [
            Measured("layers", layers, expected=42.0),
            Measured("of the encoder", encoder * 3),
            Measured("of the decoder", decoder * 4),
        ],
        panels=[
            Bars(
                f"Layers of {name}",
                "",
                "layers",
                {"encoder": encoder * 3, "decoder": decoder * 4, "both": layers},
                levels={"printed: 42": 42.0},
            )
        ],
    )


PRINTED = {
    "bert-base": 110e6,
    "bert-large": 340e6,
    "vit-b-16": 86e6,
    "vit-l-16": 307e6,
    "vit-h-14": 632e6,
}
"""Sizes printed in the papers (Devlin et al. 2019, section 3; Dosovitskiy et al. 2021, table 1)."""

BERT_VOCABULARY = 30_522


def _sizes(more_layers: int, size: Size) -> Outcome:
    """Compare the sizes printed in papers with models of their configurations."""
    counted = {}
    for name in PRINTED:
        config: Any = preset(name)
        changed = config.model_copy(update={"n_layers": config.n_layers + more_layers})
        counted[name] = describe(
            changed, vocab_size=BERT_VOCABULARY if name.startswith("bert") else None
        ).parameters
    errors = {name: abs(counted[name] / printed - 1) for name, printed in PRINTED.items()}
    right = max(errors.values()) < 0.02
    return Outcome(
        "holds" if right else "is wrong",
        "The sizes in the papers match the configurations printed there, within 2 %: they are rounded, and "
        "may or may not include output heads.",
        [Measured(f"parameters of {name}", counted[name], expected=PRINTED[name]) for name in PRINTED],
        [
            {"model": name, "printed": PRINTED[name], "counted": counted[name], "error": errors[name]}
            for name in PRINTED
        ],
        [
            Bars(
                "Error of the printed sizes",
                "",
                "relative error",
                errors,
                levels={"2 %": 0.02},
            )
        ],
    )


_VASWANI = "Vaswani et al. 2017"

EXPERIMENTS = [
    Experiment(
        "head-matrix",
        "Parameters of one head's matrix",
        "W_Q, W_K and W_V of a head have 64 x 512 = 32,178 parameters each.",
        f"S0, number of parameters of the encoder layer; {_VASWANI}, section 3.2.2",
        (20, 24),
        run=partial(_head_matrix, {"one head": 32_178}),
        control=partial(_head_matrix, {"one head": 32_768, "eight heads": 262_144}),
        changed="32,768 for one head, and 262,144 for eight, as the lecture prints on the same slide.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "encoder-parameters",
        "Parameters of an encoder layer, and of six",
        "An encoder layer has about 3 million parameters, and six of them about 18 million.",
        f"S0, number of parameters, and encoder stack; {_VASWANI}, table 3",
        (32, 33),
        run=partial(_encoder_layer, BASE),
        control=partial(_encoder_layer, BIG),
        changed="The model is the big one.",
        expected=("holds with conditions", "is wrong"),
    ),
    Experiment(
        "decoder-parameters",
        "Parameters of a decoder layer",
        "A decoder layer has about 4 million parameters: 1 million for each attention, 2 for the "
        "feed-forward.",
        f"S0, number of parameters of the decoder layer; {_VASWANI}, table 3",
        (34,),
        run=partial(_decoder_layer, BASE),
        control=partial(_decoder_layer, BIG),
        changed="The model is the big one.",
    ),
    Experiment(
        "forty-two-layers",
        "How deep a Transformer is",
        "Counted as attentions and hidden layers, the network is deep with 42 layers.",
        "S0, training the Transformer",
        (52,),
        run=partial(_layers, BASE),
        control=partial(_layers, "transformer-tiny"),
        changed="The model has 4 + 4 layers.",
    ),
    Experiment(
        "published-sizes",
        "Sizes of BERT and ViT",
        "BERT has 110 and 340 million parameters, ViT-B, -L and -H have 86, 307 and 632 million.",
        "S1, BERT, and vision Transformers (figure 29); Devlin et al. 2019, section 3; Dosovitskiy et al. "
        "2021, table 1",
        (71, 77),
        run=partial(_sizes, 0),
        control=partial(_sizes, 1),
        changed="Every model has one more layer.",
    ),
]
