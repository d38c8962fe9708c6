"""Notes on numbers that a lecture or a paper prints differently, or rounded.

A note is added only to lines with exactly the sizes of the lecture or paper.
"""

from dataclasses import replace

from heedful.model_summary.lines import Line

_SLIP = "lecture S0 prints 32,178, which is wrong"
_ENCODER_LAYER = "lecture S0: about 3 million"
_ENCODER = "lecture S0: 6 x 3 million, about 18 million"
_DECODER_LAYER = "lecture S0: about 4 million"
_TABLE = "lecture S0 (W_D): about 19 of 65 million"
_ONE_MILLION = "lecture S0: about 1 million"

# By the name of a line, and its formula or, for a sum of parts, the parameters of one. For the matrices of
# one head, lecture S0 counts those of the encoder.
_NOTES: dict[tuple[str, str | int], str] = {
    ("W_Q", "d_model * d_k = 512 * 64"): _SLIP,
    ("W_K", "d_model * d_k = 512 * 64"): _SLIP,
    ("W_V", "d_model * d_v = 512 * 64"): _SLIP,
    ("self-attention", 1_048_576): "4 d_model^2 for any number of split heads",
    ("causal self-attention", 1_048_576): _ONE_MILLION,
    ("cross-attention", 1_048_576): _ONE_MILLION,
    ("feed-forward", 2_099_712): "lecture S0: about 2 million",
    ("encoder layer", 3_150_336): _ENCODER_LAYER,
    ("encoder layer", 3_152_384): f"{_ENCODER_LAYER}; 3,150,336 without biases",
    ("encoder", 18_902_016): _ENCODER,
    ("encoder", 18_914_304): _ENCODER,
    ("decoder layer", 4_199_936): _DECODER_LAYER,
    ("decoder layer", 4_204_032): f"{_DECODER_LAYER}; 4,199,936 without biases",
    ("source embedding", "V * d_model = 37000 * 512"): _TABLE,
    ("output layer", "d_model * V = 512 * 37000"): _TABLE,
    ("total", 63_045_632): "lecture S0 and the paper: 65 million",
    ("total", 214_171_648): "the paper: 213 million",
}
_MATRICES = {"W_Q", "W_K", "W_V"}


def noted(line: Line, above: str = "") -> Line:
    """Return the line and its parts with the notes for their numbers."""
    parts = tuple(noted(part, line.name) for part in line.parts)
    note = _NOTES.get((line.name, line.each if line.parts else line.how), "")
    if line.name in _MATRICES and above != "self-attention":
        note = ""
    return replace(line, parts=parts, note="; ".join(text for text in (line.note, note) if text))
