"""Names of activation functions in the transformers library."""

ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
}
"""heedful's names by the names of transformers."""

WRITTEN = {ours: their for their, ours in reversed(ACTIVATIONS.items())}
"""The inverse mapping: names of transformers by heedful's names."""
