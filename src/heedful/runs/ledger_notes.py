"""Where a lecture or a paper prints another number than a ledger counts, or rounds it.

A note stands on a line only when the line has the very sizes that the lecture speaks of.
"""

from dataclasses import replace

from heedful.runs.ledger_lines import Line

_SLIP = "lecture S0 prints 32,178, a slip: 512 * 64 = 32,768"
_ENCODER_LAYER = "lecture S0: about 3 million"
_ENCODER = "lecture S0: 6 times 3 million, about 18 million; rounded only at the end, 18.9"
_DECODER_LAYER = "lecture S0: about 4 million"
_TABLE = "lecture S0 (as W_D, 512 x 37000): about 19 of 65 million"

# By the name of a line, and its formula or, where it is a sum of parts, the parameters of one.
_NOTES: dict[tuple[str, str | int], str] = {
    ("W_Q", "d_model * d_k = 512 * 64"): _SLIP,
    ("W_K", "d_model * d_k = 512 * 64"): _SLIP,
    ("W_V", "d_model * d_v = 512 * 64"): _SLIP,
    ("self-attention", 1_048_576): "4 d_model^2, for any number of split heads; lecture S0: 4 times 262,144",
    ("feed-forward", 2_099_712): "lecture S0: about 2 million",
    ("encoder layer", 3_150_336): _ENCODER_LAYER,
    ("encoder layer", 3_152_384): f"{_ENCODER_LAYER}; without biases in attention 3,150,336",
    ("encoder", 18_902_016): _ENCODER,
    ("encoder", 18_914_304): _ENCODER,
    ("decoder layer", 4_199_936): _DECODER_LAYER,
    ("decoder layer", 4_204_032): f"{_DECODER_LAYER}; without biases in attention 4,199,936",
    ("source embedding", "V * d_model = 37000 * 512"): _TABLE,
    ("output layer", "d_model * V = 512 * 37000"): _TABLE,
    ("total", 63_045_632): "lecture S0 and the paper print 65 million; V = 37,000 gives 63.0",
    ("total", 214_171_648): "the paper prints 213 million; V = 37,000 gives 214.2",
}


def noted(line: Line) -> Line:
    """The line and its parts, with the notes that belong to their numbers."""
    parts = tuple(noted(part) for part in line.parts)
    note = _NOTES.get((line.name, line.each if line.parts else line.how), "")
    return replace(line, parts=parts, note="; ".join(text for text in (line.note, note) if text))
