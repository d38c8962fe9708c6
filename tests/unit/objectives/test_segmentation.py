"""The class of every pixel: sums over scored pixels, by a plain loop."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.data.images import UNSCORED
from heedful.nn.patches import Images
from heedful.nn.segmentation import LinearDecoder, SegmentationHead
from heedful.objectives.segmentation import PixelClass

B, D, K, SIDE = 3, 5, 4, 6


def case():
    torch.manual_seed(0)
    masks = np.random.default_rng(0).integers(0, K, (B, SIDE, SIDE)).astype(np.uint8)
    masks[0, :2], masks[2] = UNSCORED, UNSCORED  # a part of one image, and all of another
    batch = Batch.segmented(Images.of(torch.zeros(B, 1, SIDE, SIDE), 4), masks)
    head = SegmentationHead(LinearDecoder(D, K), (2, 2), (SIDE, SIDE))
    return batch, nn.ModuleDict({"mask": head}), 9 * torch.randn(B * 4, D)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_terms_are_sums_over_scored_pixels(smoothing, is_weighted):
    batch, heads, hidden = case()
    by_class = torch.tensor([2.0, 0.5, 3.0, 1.0])
    if is_weighted:
        table = torch.zeros(UNSCORED + 1)
        table[:K] = by_class
        batch = replace(batch, weights=table[batch.masks])
    loss, correct = PixelClass(smoothing)(hidden, heads, batch)
    log_probs = heads["mask"](hidden, batch.inputs.layout).log_softmax(-1)
    expected, n, n_correct = 0.0, 0, 0
    for image in range(B):
        for row in range(SIDE):
            for column in range(SIDE):
                target, at = int(batch.masks[image, row, column]), log_probs[image, row, column].tolist()
                if target == UNSCORED:
                    continue
                q = [(1 - smoothing) * (k == target) + smoothing / K for k in range(K)]
                own = -math.fsum(a * b for a, b in zip(q, at, strict=True))
                expected += own * (float(by_class[target]) if is_weighted else 1.0)
                n, n_correct = n + 1, n_correct + (max(range(K), key=at.__getitem__) == target)
    assert (loss.name, loss.count, correct.count, correct.weight) == ("pixel", n, n, 0.0)
    assert PixelClass(smoothing).counts(batch) == {"pixel": n, "correct": n}
    assert loss.sum.item() == pytest.approx(expected, rel=1e-5)
    assert correct.sum.item() == n_correct
    assert 0 < n_correct < n


def test_smoothing_must_be_a_share():
    with pytest.raises(ValueError, match="smoothing must be in"):
        PixelClass(1.0)
