"""How images are read: the mean and deviation of all pixels, and numbers around them."""

import json

import numpy as np
import pytest
import torch

from heedful.data.images import LazyImage
from heedful.errors import DataError
from heedful.tasks.inputs.images import ImageReader, read_image_reader

DRAW = np.random.default_rng(7)
PIXELS = DRAW.integers(0, 256, (11, 5, 5, 3), dtype=np.uint8)
IMAGES = [LazyImage(pixels, str(n)) for n, pixels in enumerate(PIXELS)]


def test_the_statistics_are_those_of_all_pixels():
    reader = ImageReader.from_images(IMAGES, 5, 3)
    flat = PIXELS.reshape(-1, 3) / 255
    assert reader.mean == pytest.approx(flat.mean(0), abs=1e-12)
    assert reader.std == pytest.approx(flat.std(0), abs=1e-12)
    assert np.abs(reader.middle - 255 * flat.mean(0)).max() <= 0.5
    assert ImageReader.from_images(IMAGES[::-1], 5, 3) == reader


def test_the_training_data_as_a_model_reads_them_have_mean_zero_and_variance_one():
    reader = ImageReader.from_images(IMAGES, 5, 3)
    read = reader.normalised(np.stack([reader.pixels(image) for image in IMAGES]))
    assert read.dtype == torch.float32
    assert read.mean((0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=1e-5)
    assert read.std((0, 2, 3), correction=0).tolist() == pytest.approx([1] * 3, abs=1e-5)
    plain = (PIXELS.transpose(0, 3, 1, 2) / 255 - np.array(reader.mean).reshape(1, 3, 1, 1)) / np.array(
        reader.std
    ).reshape(1, 3, 1, 1)
    torch.testing.assert_close(read, torch.from_numpy(plain).float(), rtol=0, atol=1e-5)


def test_images_without_contrast_stay_finite():
    flat = [LazyImage(np.full((4, 4), 255, dtype=np.uint8), "a")]
    reader = ImageReader.from_images(flat, 4, 1)
    assert reader.mean == (1.0,)
    assert reader.normalised(flat[0].pixels(4, 1)[None]).abs().max() < 1e-3


def test_a_reader_survives_json(tmp_path):
    reader = ImageReader.from_images(IMAGES, 3, 1)
    (tmp_path / "images.json").write_text(json.dumps({"reader": reader.to_dict()}))
    assert read_image_reader(tmp_path / "images.json") == reader


def test_it_says_what_becomes_of_images():
    reader = ImageReader.from_images(IMAGES, 3, 1)
    assert str(reader) == "the first has 5 x 5 pixels in colours; all are brought to 3 x 3 pixels in grey"
    assert reader.fingerprint == "1x3x3"


def test_no_image_is_an_error():
    with pytest.raises(DataError, match="no image can be read"):
        ImageReader.from_images([], 3, 1)
