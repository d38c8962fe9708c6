"""What the transformers library calls activations."""

ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
}
"""heedful's names, by theirs."""

WRITTEN = {ours: their for their, ours in reversed(ACTIVATIONS.items())}
"""Theirs, by heedful's: of several the first."""
