"""Images with more than 8 bits: their black and white are those of the training data, in every form."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from raw_images import png_of_16_bits, tiff

from heedful.data.images import LazyImage
from heedful.data.levels import Extremes, Levels
from heedful.errors import DataError
from heedful.tasks.inputs.images import ImageReader, read_image_reader

DRAW = np.random.default_rng(5)


def draw(low, high, dtype, shape=(5, 5)):
    """Return pixels of which one has the lowest and one the highest level."""
    pixels = (
        DRAW.uniform(low, high, shape) if np.dtype(dtype).kind == "f" else DRAW.integers(low, high, shape)
    )
    pixels = pixels.astype(dtype)
    pixels.flat[:2] = low, high
    return pixels


# Pixels, and the levels that must be black and white; 2 ** n - 1 for whole numbers without a sign.
CASES = {
    "8 of 16 bits": (draw(0, 200, "u2"), 0, 255),
    "10 of 16 bits": (draw(3, 700, "u2"), 0, 1023),
    "12 of 16 bits": (draw(0, 4000, "u2"), 0, 4095),
    "14 of 16 bits": (draw(100, 16_383, "u2"), 0, 16_383),
    "16 bits": (draw(0, 65_535, "u2"), 0, 65_535),
    "12 of 16 bits with a sign": (draw(-1024, 3071, "i2"), -1024, 3071),
    "20 of 32 bits": (draw(0, 1_000_000, "u4"), 0, 2**20 - 1),
    "32 bits with a sign": (draw(-(2**31), 2**31 - 1, "i4"), -(2.0**31), 2.0**31 - 1),
    "fractions": (draw(0, 1, "f4"), 0, 1),
    "physical values": (draw(-40.5, 371.25, "f4"), -40.5, 371.25),
}


def forms(pixels):
    """Yield the pixels in every form that holds them: files, bytes and an image."""
    yield "TIFF", tiff(pixels)
    if pixels.dtype != np.uint32:  # Pillow reads them in one order alone
        yield "TIFF, big-endian", tiff(pixels, ">")
    if pixels.dtype == np.uint16:
        yield "PNG", png_of_16_bits(pixels)
    if pixels.dtype in ("u2", "i4", "f4"):
        yield "image", Image.fromarray(pixels)


def oracle(pixels, black, white):
    """Return the 8-bit levels, one by one."""
    exact = [(float(level) - black) / (white - black) * 255 for level in pixels.flat]
    return np.array([min(255, max(0, round(level))) for level in exact]).reshape(pixels.shape)


@pytest.mark.parametrize("name", CASES)
def test_levels_are_scaled_by_the_range_of_the_training_data(name):
    pixels, black, white = CASES[name]
    for form, content in forms(pixels):
        image = LazyImage.of(content, form)
        reader = ImageReader.from_images([image], 5, 1)
        assert reader.levels == Levels(black, white), form
        assert np.abs(reader.pixels(image)[0] - oracle(pixels, black, white)).max() <= 0, form
        assert "with more than 8 bits" in str(reader)


@pytest.mark.parametrize("name", CASES)
def test_the_range_does_not_depend_on_the_image_that_is_read(name, tmp_path):
    """A dark part of an image is as dark as in the whole, also for a reader that was stored and loaded."""
    pixels, black, white = CASES[name]
    reader = ImageReader.from_images([LazyImage.of(tiff(pixels))], 5, 1)
    (tmp_path / "images.json").write_text(json.dumps({"reader": reader.to_dict()}))
    loaded = read_image_reader(tmp_path / "images.json")
    dark = np.full((3, 3), pixels[1, 1])
    read = ImageReader(3, 1, (0.5,), (0.5,), levels=loaded.levels).pixels(LazyImage.of(tiff(dark)))
    assert loaded == reader
    assert (read == oracle(dark, black, white)).all()
    assert loaded.fingerprint != ImageReader(5, 1, reader.mean, reader.std).fingerprint


def test_levels_beyond_the_training_data_are_limited():
    reader = ImageReader(3, 1, (0.5,), (0.5,), levels=Levels(0, 4095))
    read = reader.pixels(LazyImage.of(tiff(np.array([[0, 4095, 65_535]] * 3, "u2"))))
    assert read[0, 0].tolist() == [0, 255, 255]


def test_images_with_8_bits_are_not_scaled():
    plain = LazyImage.of(np.full((3, 3), 10, np.uint8))
    deep = LazyImage.of(tiff(np.full((3, 3), 1000, "u2")))
    reader = ImageReader.from_images([deep, plain, deep], 3, 1)
    assert reader.levels == Levels(0, 1023)
    assert reader.pixels(plain).max() == 10
    assert reader.mean[0] == pytest.approx((10 + 2 * round(1000 / 1023 * 255)) / 3 / 255)
    assert "levels" not in ImageReader.from_images([plain], 3, 1).to_dict()


def test_without_training_data_16_bits_have_the_range_of_their_type():
    pixels = np.array([[0, 257, 65_535]] * 3, "u2")
    assert LazyImage.of(tiff(pixels)).pixels(3, 1)[0, 0].tolist() == [0, 1, 255]
    for number in (np.int32, np.float32):
        with pytest.raises(DataError, match="32-bit pixels, of which this model has seen none"):
            LazyImage.of(tiff(pixels.astype(number))).pixels(3, 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_not_finite_are_refused(value):
    image = LazyImage.of(tiff(np.array([[0, 1, value]] * 3, "f4")), "a")
    with pytest.raises(DataError, match=r"a: .*pixels must be finite numbers, got NaN or infinity"):
        ImageReader.from_images([image], 3, 1)
    with pytest.raises(DataError, match="finite"):
        image.pixels(3, 1, Levels(0, 1))


@pytest.mark.parametrize("n_channels", [2, 3, 4])
def test_of_colours_with_16_bits_the_highest_8_are_read(n_channels):
    pixels = draw(0, 65_535, "u2", (4, 4, n_channels))
    pixels[..., n_channels - 1 :] = 65_535 if n_channels != 3 else pixels[..., 2:]
    read = LazyImage.of(png_of_16_bits(pixels)).pixels(4, 3)
    expected = np.broadcast_to(pixels[..., : 3 if n_channels > 2 else 1] >> 8, (4, 4, 3))
    assert (read.transpose(1, 2, 0) == expected).all()


def test_colours_that_use_a_small_part_of_16_bits_get_a_note():
    dark, bright = (draw(0, most, "u2", (4, 4, 3)) for most in (4000, 65_535))
    for write in (png_of_16_bits, tiff):
        reader = ImageReader.from_images([LazyImage.of(write(dark))], 4, 3)
        assert "colours of 16 bits use a small part of their range" in str(reader)
        whole = [LazyImage.of(write(pixels)) for pixels in (dark, bright)]
        assert "colours of 16 bits" not in str(ImageReader.from_images(whole, 4, 3))


def test_several_pages_get_a_note():
    pages, file = [Image.fromarray(draw(0, 4000, "u2")) for _ in range(3)], io.BytesIO()
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:])
    image = LazyImage.of(file.getvalue())
    reader = ImageReader.from_images([image, LazyImage.of(pages[0])], 5, 1)
    assert "1 have several frames or pages, of which the first is read" in str(reader)
    assert (reader.pixels(image) == reader.pixels(LazyImage.of(pages[0]))).all()


def test_whole_and_other_levels_together_have_the_lowest_and_highest():
    assert Levels.covering([]) is None
    assert Levels.covering([Extremes(0, 9, True)]) == (0, 255)
    assert Levels.covering([Extremes(2, 300, True), Extremes(0.5, 9, False)]) == (0.5, 300)
