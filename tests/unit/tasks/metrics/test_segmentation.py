"""Intersection over union: by a loop over classes and pixels, and by scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, jaccard_score

from heedful.errors import RequestError
from heedful.tasks.metrics.segmentation import (
    intersection_over_union,
    mean_iou,
    pixel_confusion,
    segmentation_scores,
)

K, IGNORED = 4, 255
PIXELS = st.lists(st.tuples(st.integers(0, K - 1), st.sampled_from([*range(K), IGNORED])), min_size=1)


def arrays(pixels):
    predicted, targets = (np.array(column, dtype=np.uint8) for column in zip(*pixels, strict=True))
    return predicted, targets


@pytest.mark.slow
@given(PIXELS)
def test_each_class_has_its_intersection_over_its_union(pixels):
    found = intersection_over_union(pixel_confusion(*arrays(pixels), K))
    for k in range(K):
        scored = [(p, t) for p, t in pixels if t != IGNORED]
        both = sum(p == k and t == k for p, t in scored)
        either = sum(p == k or t == k for p, t in scored)
        assert np.isnan(found[k]) if not either else found[k] == both / either


@pytest.mark.slow
@given(st.lists(PIXELS, min_size=1, max_size=3))
def test_the_mean_is_scikit_learns_over_all_images_together(images):
    matrix = sum(pixel_confusion(*arrays(pixels), K) for pixels in images)
    scored = [(p, t) for pixels in images for p, t in pixels if t != IGNORED]
    if not scored:
        return
    predicted, targets = zip(*scored, strict=True)
    # By default, scikit-learn's mean is over the classes that occur in either.
    assert mean_iou(matrix) == pytest.approx(jaccard_score(targets, predicted, average="macro"))
    iou, accuracy = segmentation_scores(matrix, list("abcd"), "region:all")
    assert (iou.name, iou.value) == ("mean IoU", mean_iou(matrix))
    assert accuracy.value == pytest.approx(accuracy_score(targets, predicted))
    assert iou.counts == {"pixels": len(scored), "classes": K}
    assert iou.details["support"] == [targets.count(k) for k in range(K)]


def test_a_class_without_any_pixel_is_left_out_of_the_mean():
    predicted, targets = np.array([0, 0, 1], np.uint8), np.array([0, 1, 1], np.uint8)
    iou, _ = segmentation_scores(pixel_confusion(predicted, targets, 3), ["a", "b", "c"], "region:all")
    assert iou.details["iou"] == [0.5, 0.5, None]
    assert iou.value == 0.5
    assert iou.signature == "classes:3|region:all|average:present"


def test_masks_without_scored_pixels_are_refused():
    with pytest.raises(RequestError, match="no pixel of the masks has a class"):
        segmentation_scores(np.zeros((2, 2), np.int64), ["a", "b"], "region:all")
