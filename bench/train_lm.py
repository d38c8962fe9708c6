"""Training a language model: 6 layers, 384, 6 heads, 16 windows of 256 tokens."""

from contenders.training_texts import claim
from harness.flops import Shape
from harness.training import options, run

SHAPE = Shape(n_layers=6, d_model=384, d_ff=1536, n_heads=6, vocab=10_000, batch=16, length=256, shortest=256)

if __name__ == "__main__":
    run(claim("train_lm", "Training: causal language model", SHAPE), options(__doc__, rounds=5))
