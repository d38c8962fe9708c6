"""Training a language model of GPT-2's size on a GPU: 12 layers, 768, 16 windows of 1,024 tokens."""

import torch

from contenders.training_texts import claim
from harness.flops import Shape
from harness.machine import describe
from harness.report import write
from harness.training import options, run

TITLE = "Training: causal language model of 124M parameters, on a GPU"
SHAPE = Shape(
    n_layers=12, d_model=768, d_ff=3072, n_heads=12, vocab=50_257, batch=16, length=1024, shortest=1024
)

if __name__ == "__main__":
    args = options(__doc__, rounds=7)
    if torch.cuda.is_available():
        args.device = "cuda"
        run(claim("train_gpt2", TITLE, SHAPE), args)
    else:
        write("train_gpt2", TITLE, ["Not yet measured: there was no GPU."], None, describe(), args.out)
