"""Training a small encoder-decoder: 4 + 4 layers, 128/256, 4 heads, 128 pairs of 8 to 16 tokens."""

from contenders.training_pairs import claim
from harness.flops import Shape
from harness.training import options, run

SHAPE = Shape(
    n_layers=4,
    d_model=128,
    d_ff=256,
    n_heads=4,
    vocab=10_000,
    batch=128,
    length=16,
    shortest=8,
    smoothing=0.1,
)

if __name__ == "__main__":
    run(claim("train_tiny", "Training: Transformer-Tiny", SHAPE), options(__doc__, rounds=11))
