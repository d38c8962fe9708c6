"""Predictions that are masks: shares, files and JSON."""

import io

import numpy as np
import pytest
from PIL import Image

from heedful.tasks.inputs.masks import MaskClasses
from heedful.tasks.segmentation.prediction import Segmentation

CLASSES = MaskClasses.of(("4", "9", "30"), None, 7)
INDICES = np.array([[0, 1, 1], [1, 1, 1], [1, 0, 0]], dtype=np.uint8)


def test_shares_are_of_the_classes_that_occur_the_largest_first():
    prediction = Segmentation.of(INDICES, CLASSES, (3, 3))
    assert prediction.text == "9 66.7 %, 4 33.3 %"
    assert prediction.shares == {"9": pytest.approx(6 / 9), "4": pytest.approx(3 / 9)}
    assert [*prediction.shares] == ["9", "4"]


def test_a_small_share_is_not_written_as_nothing():
    indices = np.zeros((60, 60), np.uint8)
    indices[0, 0] = 2
    assert Segmentation.of(indices, CLASSES, (60, 60)).text == "4 100.0 %, 30 <0.1 %"


def test_equal_shares_are_in_the_order_of_the_classes():
    indices = np.array([[2, 1], [0, 1]], np.uint8)
    assert [*Segmentation.of(indices, CLASSES, (2, 2)).shares] == ["9", "4", "30"]


def test_the_mask_has_the_size_of_the_image_and_its_own_numbers():
    prediction = Segmentation.of(INDICES, CLASSES, (10, 6))
    mask = prediction.mask
    assert mask.shape == (6, 10)
    assert (mask[:, :2] == 7).all()
    assert (mask[:, 8:] == 7).all()
    assert np.array_equal(mask[::2, 2:8:2], np.array([4, 9, 30])[INDICES])
    image = Image.open(io.BytesIO(prediction.image_file()))
    assert np.array_equal(np.asarray(image), mask)


def test_json_has_runs_of_the_mask_and_no_array():
    record = Segmentation.of(INDICES, CLASSES, (10, 6)).to_dict()
    assert record.keys() == {"version", "output", "shares"}
    (width, height), runs = record["output"]["size"], record["output"]["runs"]
    flat = [number for number, length in runs for _ in range(length)]
    assert np.array_equal(np.reshape(flat, (height, width)), Segmentation.of(INDICES, CLASSES, (10, 6)).mask)
