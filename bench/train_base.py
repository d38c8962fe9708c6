"""Training a Transformer-base: 6 + 6 layers, 512/2048, 8 heads, 64 pairs of 12 to 24 tokens."""

from contenders.training_pairs import claim
from harness.flops import Shape
from harness.training import options, run

SHAPE = Shape(
    n_layers=6,
    d_model=512,
    d_ff=2048,
    n_heads=8,
    vocab=10_000,
    batch=64,
    length=24,
    shortest=12,
    smoothing=0.1,
)

if __name__ == "__main__":
    run(claim("train_base", "Training: Transformer-base", SHAPE), options(__doc__, rounds=5))
