"""Images: what a model reads of a file, an array or an image, and what is said of one it cannot read."""

import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageFile

import heedful
from heedful.data import image_files, images
from heedful.data.image_files import FORMATS, is_image
from heedful.data.images import LazyImage, with_images
from heedful.data.lines import LocatedRow, Location
from heedful.errors import DataError

DRAW = np.random.default_rng(3)


def noise(*shape):
    return DRAW.integers(0, 256, shape, dtype=np.uint8)


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("channels, shape", [(1, (5, 5)), (3, (5, 5, 3)), (1, (5, 5, 1))])
def test_an_image_of_the_model_size_is_unchanged(channels, shape, tmp_path):
    array = noise(*shape)
    planes = array.reshape(5, 5, channels).transpose(2, 0, 1)
    Image.fromarray(array.squeeze()).save(tmp_path / "a.png")
    for content in (array, tmp_path / "a.png", (tmp_path / "a.png").read_bytes()):
        assert np.array_equal(LazyImage(content, "a").pixels(5, channels), planes)


def test_colours_are_converted_to_luminance():
    array = noise(3, 3, 3)
    grey = LazyImage(array, "a").pixels(3, 1)[0]
    assert np.abs(grey - array @ [0.299, 0.587, 0.114]).max() <= 1


def test_grey_becomes_three_equal_channels():
    array = noise(3, 3)
    assert np.array_equal(LazyImage(array, "a").pixels(3, 3), np.stack([array] * 3))


@pytest.mark.parametrize("shape, middle", [((4, 10), np.s_[:, 3:7]), ((11, 5), np.s_[3:8, :])])
def test_the_centre_square_is_kept(shape, middle):
    array = noise(*shape)
    assert np.array_equal(LazyImage(array, "a").pixels(min(shape), 1)[0], array[middle])


def test_shrinking_is_antialiased():
    stripes = np.tile(np.array([0, 200], dtype=np.uint8), (8, 4))
    small = LazyImage(stripes, "a").pixels(2, 1)
    assert np.abs(small.astype(int) - 100).max() <= 15
    flat = np.full((7, 7), 93, dtype=np.uint8)
    assert np.array_equal(LazyImage(flat, "a").pixels(13, 1), np.full((1, 13, 13), 93))


def test_the_exif_orientation_is_applied(tmp_path):
    array = noise(4, 4)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    Image.fromarray(array).save(tmp_path / "a.png", exif=exif)
    turned = LazyImage(tmp_path / "a.png", "a").pixels(4, 1)[0]
    assert np.array_equal(turned, np.rot90(array, -1))


def test_transparent_pixels_become_white():
    array = np.zeros((3, 3, 4), dtype=np.uint8)
    array[0, 0] = (10, 20, 30, 255)
    pixels = LazyImage(png(Image.fromarray(array)), "a").pixels(3, 3)
    assert pixels[:, 0, 0].tolist() == [10, 20, 30]
    assert (pixels.reshape(3, -1)[:, 1:] == 255).all()


def test_sixteen_bits_keep_their_highest_eight():
    array = np.array([[0, 256], [40_000, 65_535]], dtype=np.uint16)
    pixels = LazyImage(png(Image.fromarray(array)), "a").pixels(2, 1)
    assert pixels[0].tolist() == [[0, 1], [156, 255]]


def test_paths_bytes_arrays_and_images_are_accepted(tmp_path):
    array = noise(3, 3, 3)
    Image.fromarray(array).save(tmp_path / "a.png")
    given = [
        array,
        Image.fromarray(array),
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        png(Image.fromarray(array)),
    ]
    for each in given:
        assert np.array_equal(LazyImage.of(each).pixels(3, 3), array.transpose(2, 0, 1))
    image = LazyImage(array, "a")
    assert LazyImage.of(image) is image
    assert str(LazyImage.of("x/a.png")) == "x/a.png"


@pytest.mark.parametrize(
    "given, message",
    [
        (np.zeros((3, 3)), "float64"),
        (np.zeros((3, 3, 2), dtype=np.uint8), r"\(3, 3, 2\)"),
        (7, "expected a path, an array or an image, got an int"),
        ("", "the path of an image is empty"),
        ("  ", "the path of an image is empty"),
    ],
)
def test_what_is_no_image_is_refused(given, message):
    with pytest.raises(DataError, match=message):
        LazyImage.of(given)


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path):
    whole = png(Image.fromarray(noise(40, 40)))
    contents = {"text.png": b"no image", "cut.png": whole[:500], "empty.png": b"", "float.tif": None}
    for name, content in contents.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    Image.fromarray(np.zeros((3, 3), dtype=np.float32)).save(tmp_path / "float.tif")
    reasons = {"text.png": "supported format", "cut.png": "cannot be read", "empty.png": "the file is empty"}
    reasons |= {"float.tif": "32-bit", "none.png": "no such file", ".": "cannot be read"}
    for name, reason in reasons.items():
        with pytest.raises(DataError, match=reason) as caught:
            LazyImage(tmp_path / name, f"it/{name}").pixels(8, 1)
        assert str(caught.value).startswith(f"it/{name}: ")


def test_a_device_is_refused_without_reading(tmp_path):
    image = LazyImage.of("/dev/zero")
    with pytest.raises(DataError, match="/dev/zero: must be a regular file or a pipe"):
        image.pixels(4, 3)
    assert image.encoded() == b""


# Hostile files ---------------------------------------------------------------------------------------------


def encoded(image, form, **more):
    file = io.BytesIO()
    image.save(file, form, **more)
    return file.getvalue()


def header(width, height):
    """A PNG in colours with transparency, of which only the header is there."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    whole = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + whole + struct.pack(">I", 99) + b"IDAT"


def test_every_file_is_opened_by_one_function():
    root = Path(heedful.__file__).parent
    found = {p.name: n for p in root.rglob("*.py") if (n := p.read_text("utf-8").count("Image.open("))}
    assert found == {"image_files.py": 1}


def test_no_program_is_started_for_an_image(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *more, **most: started.append(more))
    content = encoded(Image.fromarray(noise(4, 4, 3)), "EPS")
    (tmp_path / "a.png").write_bytes(content)
    for given in (tmp_path / "a.png", content):
        with pytest.raises(DataError, match=r"supported format \(PNG, JPEG, GIF, BMP, TIFF, WEBP, AVIF\)"):
            LazyImage.of(given).pixels(4, 3)
    assert not started


@pytest.mark.parametrize("form", FORMATS)
def test_no_pixel_is_decoded_of_an_image_that_has_too_many(form, monkeypatch):
    monkeypatch.setattr(image_files, "MAX_PIXELS", 96)
    allowed, too_many = (encoded(Image.fromarray(noise(8, n, 3)), form) for n in (12, 13))
    LazyImage(allowed, "a").pixels(4, 3)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("it was decoded"))
    with pytest.raises(DataError, match=r"a: .*13 x 8 pixels, more than 96; reduce its size"):
        LazyImage(too_many, "a").pixels(4, 3)
    with pytest.raises(DataError, match="13 x 8 pixels"):
        LazyImage.of(Image.open(io.BytesIO(too_many)), "a")


@pytest.mark.parametrize("width, height", [(8193, 8192), (13_000, 13_000), (60_000, 60_000)])
def test_a_decompression_bomb_is_refused_by_its_header(width, height):
    with pytest.raises(DataError, match=r"more than 67,108,864( pixels)?; reduce its size"):
        LazyImage(header(width, height), "a").pixels(4, 3)


def test_there_is_one_copy_of_a_large_image_and_no_more(tmp_path):
    """Its four bytes a pixel twice, and what is decoded at a time; each step made a copy before."""
    n = 3000
    Image.new("RGBA", (n, n), (1, 2, 3, 4)).save(tmp_path / "a.png", compress_level=1)
    peak = f"""
from pathlib import Path
from heedful.data.images import LazyImage
def most():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) * 1024
small = Path({str(tmp_path / "small.png")!r})
LazyImage.of(small).pixels(8, 3)
before = most()
LazyImage.of(small.with_name("a.png")).pixels(8, 3)
print(most() - before)
"""
    Image.new("RGBA", (9, 9)).save(tmp_path / "small.png")
    done = subprocess.run([sys.executable, "-c", peak], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12 * n * n


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "PA"])
def test_strips_make_the_same_image(mode, monkeypatch):
    image = Image.fromarray(noise(13, 17, 4), "RGBA") if mode != "I;16" else None
    image = image.convert(mode) if image else Image.fromarray(noise(13, 17).astype(np.uint16) * 257)
    for channels in (1, 3):
        whole = LazyImage.of(image).pixels(13, channels)
        with monkeypatch.context() as patched:
            patched.setattr(images, "_STRIP", 40)
            assert np.array_equal(LazyImage.of(image).pixels(13, channels), whole)
    assert whole.std() > 10


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_several_frames_the_first_is_read(form):
    frames = [Image.new("RGB", (6, 6), colour) for colour in ("red", "lime", "blue")]
    lossless = {"lossless": True} if form == "WEBP" else {}
    content = encoded(frames[0], form, save_all=True, append_images=frames[1:], **lossless)
    assert Image.open(io.BytesIO(content)).n_frames == 3
    assert LazyImage(content, "a").pixels(2, 3).reshape(3, -1).tolist() == [[255] * 4, [0] * 4, [0] * 4]


@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_file_is_read_or_refused(form, amount):
    draw, refused = Random(3), []
    whole = encoded(Image.fromarray(noise(9, 11, 3)), form)
    for _ in range(amount(40, 1000)):
        content = bytearray(whole[: draw.choice([len(whole), draw.randrange(1, len(whole))])])
        for _ in range(draw.randrange(4)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        try:
            pixels = LazyImage(bytes(content), "a").pixels(5, 3)
        except DataError as error:
            refused.append(str(error))
        else:
            assert pixels.shape == (3, 5, 5)
    assert len(refused) > 5
    assert all(message.startswith("a: ") for message in refused)


def test_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"cannot be read as an image \(expected a file\)"):
        LazyImage.of(tmp_path / "a.png").pixels(4, 3)


def test_equal_images_have_equal_hashes(tmp_path):
    array = noise(4, 6)
    assert LazyImage(array, "a").encoded() == LazyImage(array.copy(), "b").encoded()
    assert LazyImage(array, "a").encoded() != LazyImage(array.reshape(6, 4), "a").encoded()
    (tmp_path / "a").write_bytes(b"xyz")
    assert LazyImage(tmp_path / "a", "a").encoded() == LazyImage(b"xyz", "a").encoded()


def test_kind_describes_size_and_colour():
    assert LazyImage(noise(3, 5), "a").kind == "5 x 3 pixels in grey"
    assert LazyImage(png(Image.fromarray(noise(3, 5, 3))), "a").kind == "5 x 3 pixels in colours"


def test_a_path_in_a_table_starts_at_the_tables_folder(tmp_path):
    row = LocatedRow({"image": "x/1.png", "label": "x"}, Location("tables/train.tsv", 2))
    image = with_images(row, ["image"], tmp_path).row["image"]
    assert image.content == tmp_path / "tables" / "x" / "1.png"
    assert str(image) == "x/1.png"
    ready = LocatedRow({"image": LazyImage(b"", "a")}, Location("f"))
    assert with_images(ready, ["image"], tmp_path) is ready


def test_an_empty_path_of_a_table_is_a_missing_image(tmp_path):
    row = with_images(LocatedRow({"image": "", "label": "a"}, Location("t.tsv", 4)), ["image"], tmp_path)
    with pytest.raises(DataError, match=r"^t\.tsv:4: the image is missing$"):
        row.row["image"].pixels(3, 1)


# Masks -----------------------------------------------------------------------------------------------------


def stored(image, form="PNG", **settings):
    content = io.BytesIO()
    image.save(content, form, **settings)
    return LazyImage(content.getvalue(), "m")


NUMBERS = np.random.default_rng(6).integers(0, 256, (5, 7), dtype=np.uint8)


@pytest.mark.parametrize(
    ("mode", "form"),
    [*((mode, form) for mode in "LP" for form in ("PNG", "BMP", "TIFF")), ("I;16", "PNG"), ("I", "TIFF")],
)
def test_the_numbers_of_a_mask_are_its_pixels_or_the_indices_of_its_palette(mode, form):
    image = Image.fromarray(NUMBERS.astype({"I;16": np.uint16, "I": np.int32}.get(mode, np.uint8)))
    if mode == "P":
        image.putpalette(bytes(np.random.default_rng(1).integers(0, 256, 768, dtype=np.uint8)))
    assert np.array_equal(stored(image, form).numbers(), NUMBERS)


def test_a_mask_of_two_colours_has_the_numbers_0_and_1():
    assert np.array_equal(stored(Image.fromarray(NUMBERS > 99)).numbers(), NUMBERS > 99)


def test_transparency_does_not_change_numbers():
    image = Image.fromarray(NUMBERS)
    image.putpalette(bytes(range(256)) * 3)
    assert np.array_equal(stored(image, transparency=int(NUMBERS[0, 0])).numbers(), NUMBERS)


@pytest.mark.parametrize("shape", [(12, 12), (12, 20), (21, 12), (5, 9)])
@pytest.mark.parametrize("size", [3, 6, 12, 24])
def test_a_mask_is_read_where_its_image_is(shape, size):
    """Of an image whose levels are its columns (or rows), and a mask with the numbers of these."""
    for axis in (0, 1):
        ramp = np.broadcast_to(np.expand_dims(np.arange(shape[axis]), 1 - axis), shape)
        pixels = LazyImage((8 * ramp).astype(np.uint8), "i").pixels(size, 1)[0] / 8
        numbers = LazyImage(ramp.astype(np.uint8), "m").numbers(size)
        inner = (slice(1, -1), slice(1, -1))  # edges are repeated, so they are nearer to the middle
        assert np.abs(pixels[inner] - numbers[inner]).max() <= 0.5 + 1 / 8


@pytest.mark.parametrize(
    ("image", "form", "message"),
    [
        (Image.new("RGB", (3, 3)), "PNG", r"m: a mask must have one class number .* got mode RGB; convert"),
        (Image.new("LA", (3, 3)), "PNG", "got mode LA"),
        (Image.new("I;16", (3, 3), 300), "PNG", "m: the class numbers .* from 0 to 255, got 300; renumber"),
        (Image.new("L", (3, 3)), "JPEG", "m: JPEG does not keep the numbers of a mask; save masks as PNG"),
    ],
)
def test_what_has_no_numbers_is_no_mask(image, form, message):
    with pytest.raises(DataError, match=message):
        stored(image, form).numbers()


def test_the_size_of_an_image_is_that_after_its_orientation():
    image = Image.new("L", (3, 5))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by a quarter turn
    for form in ("PNG", "JPEG", "TIFF"):
        assert stored(image, form).size == (3, 5)
        assert stored(image, form, exif=exif).size == (5, 3)
    assert LazyImage(np.zeros((5, 3), np.uint8), "array").size == (3, 5)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
def test_an_image_is_recognised_without_a_suffix(tmp_path, form):
    Image.new("RGB", (8, 8)).save(tmp_path / "scan", form)
    assert is_image(tmp_path / "scan")
    for name, content in {"text": b"BMW and GIF", "empty": b"", "list": b"a.png\n"}.items():
        (tmp_path / name).write_bytes(content)
        assert not is_image(tmp_path / name)
    assert not is_image(tmp_path)
    assert not is_image("-")
    assert not is_image("x" * 5000)
