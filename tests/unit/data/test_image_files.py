"""Image files as cameras and telephones write them, and as downloads leave them."""

import io
import struct
import sys
import types

import numpy as np
import pytest
from PIL import Image
from raw_images import tiff

from heedful.data.image_files import FORMATS, SUFFIXES
from heedful.data.images import LazyImage
from heedful.errors import DataError
from heedful.tasks.inputs.images import ImageReader

DRAW = np.random.default_rng(2)
GREY = DRAW.integers(0, 256, (4, 6), dtype=np.uint8)
ORIENTATION = 0x0112

# How the pixels of a file with each orientation are turned to be upright, by the definition of EXIF: where
# the first row and the first column of the file are in the scene.
UPRIGHT = {
    1: lambda a: a,  # top, left
    2: lambda a: a[:, ::-1],  # top, right
    3: lambda a: a[::-1, ::-1],  # bottom, right
    4: lambda a: a[::-1],  # bottom, left
    5: lambda a: a.T,  # left, top
    6: lambda a: a[::-1].T,  # right, top
    7: lambda a: a[::-1, ::-1].T,  # right, bottom
    8: lambda a: a.T[::-1],  # left, bottom
}
LOSSLESS = {"PNG": {}, "TIFF": {}, "WEBP": {"lossless": True}}


def encoded(image, form, **settings):
    file = io.BytesIO()
    image.save(file, form, **settings)
    return file.getvalue()


def exif(orientation):
    block = Image.Exif()
    block[ORIENTATION] = orientation
    return block


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("form", LOSSLESS)
def test_every_orientation_is_applied_to_pixels_masks_and_sizes(form, orientation):
    mode = "RGB" if form == "WEBP" else "L"
    square = GREY[:, 1:5]
    for stored in (GREY, square):
        file = encoded(Image.fromarray(stored).convert(mode), form, exif=exif(orientation), **LOSSLESS[form])
        expected = UPRIGHT[orientation](stored)
        for image in (LazyImage.of(file), LazyImage.of(Image.open(io.BytesIO(file)))):
            assert image.size == expected.shape[::-1]
            if stored is square:
                assert (image.pixels(4, 1)[0] == expected).all()
        if mode == "L":
            assert (LazyImage.of(file).numbers() == expected).all()


def test_the_orientation_of_levels_with_more_bits_is_applied():
    deep = GREY[:, 1:5].astype(np.uint16) * 16
    file = encoded(Image.fromarray(deep), "PNG", exif=exif(6))
    assert (
        LazyImage.of(file).pixels(4, 1) == LazyImage.of(Image.fromarray(UPRIGHT[6](deep).copy())).pixels(4, 1)
    ).all()


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"Exif",
        b"Exif\0\0",
        b"Exif\0\0nothing at all",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", ORIENTATION, 3, 1, 99) + b"\0" * 4,
        b"Exif\0\0II*\0\x08\0\0\0\x05\0" + struct.pack("<HHI", ORIENTATION, 2, 2**31),
        # An orientation of 1 beside a description that lies beyond the end.
        b"Exif\0\0II*\0\x08\0\0\0\x02\0"
        + struct.pack("<HHII", ORIENTATION, 3, 1, 1)
        + struct.pack("<HHII", 0x010E, 5, 2**30, 2**31),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_broken_exif_block_does_not_stop(block):
    plain = encoded(Image.fromarray(GREY), "JPEG", quality=95)
    broken = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + plain[2:]
    assert (LazyImage.of(broken).pixels(4, 1) == LazyImage.of(plain).pixels(4, 1)).all()
    assert LazyImage.of(broken).size == (6, 4)


MODES = {
    "1": [0, 255],
    "L": [0, 77],
    "LA": [(0, 255), (9, 0)],
    "RGB": [(1, 2, 3), (250, 0, 9)],
    "RGBA": [(1, 2, 3, 255), (250, 0, 9, 0)],
    "CMYK": [(0, 0, 0, 0), (0, 255, 255, 0)],
}
SEEN = {
    "1": [(0,) * 3, (255,) * 3],
    "L": [(0,) * 3, (77,) * 3],
    "LA": [(0,) * 3, (255,) * 3],
    "RGB": [(1, 2, 3), (250, 0, 9)],
    "RGBA": [(1, 2, 3), (255, 255, 255)],
    "CMYK": [(255, 255, 255), (255, 0, 0)],
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_colours_is_read_as_it_is_seen(mode):
    for colour, seen in zip(MODES[mode], SEEN[mode], strict=True):
        image = Image.new(mode, (3, 3), colour)
        file = encoded(image, "TIFF" if mode == "CMYK" else "PNG")
        for given in (image, file):
            assert LazyImage.of(given).pixels(3, 3)[:, 1, 1].tolist() == list(seen)


def test_a_palette_with_transparency_is_on_white():
    image = Image.fromarray(np.array([[0, 1, 2]] * 3, dtype=np.uint8))
    image.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
    for form, transparent in (("PNG", 1), ("GIF", 1), ("PNG", bytes([255, 0, 128]))):
        read = LazyImage.of(encoded(image, form, transparency=transparent)).pixels(3, 3)[:, 0].T.tolist()
        assert read[:2] == [[200, 0, 0], [255, 255, 255]]
        assert np.abs(np.array(read[2]) - ([0, 0, 200] if transparent == 1 else [127, 127, 227])).max() <= 1


HEIC = b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf" + b"\0" * 60
REFUSED = {
    "empty": (b"", "the file is empty; copy it again, or remove it"),
    "page": (b"\n<!DOCTYPE html><title>404</title>", "a web page, not an image; download the image itself"),
    "page without a type": (b"<HTML><body>", "a web page"),
    "TIFF of doubles": (
        tiff(np.zeros((3, 3), "f8")),
        "a form of TIFF that is not supported, or the raw file",
    ),
    "text": (
        b"cat",
        "not an image of a supported format (PNG, JPEG, GIF, BMP, TIFF, WEBP, AVIF); save it as",
    ),
    "truncated": (
        encoded(Image.new("L", (99, 99)), "JPEG")[:-90],
        "cannot be read as an image (image file is tr",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_cause_is_named_whatever_the_suffix_says(name, tmp_path):
    content, message = REFUSED[name]
    (tmp_path / "a.jpg").write_bytes(content)
    for given in (tmp_path / "a.jpg", content):
        if given == b"":
            continue
        with pytest.raises(DataError) as raised:
            LazyImage.of(given, "a.jpg").pixels(4, 3)
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("form", FORMATS)
def test_the_suffix_does_not_matter(form, tmp_path):
    content = encoded(Image.fromarray(GREY).convert("RGB"), form)
    for suffix in (*SUFFIXES, ".JPG", ".Jpeg", ".txt", ""):
        (tmp_path / f"a{suffix}").write_bytes(content)
        assert (
            LazyImage.of(tmp_path / f"a{suffix}").pixels(4, 3) == LazyImage.of(content).pixels(4, 3)
        ).all()


def test_photographs_with_a_preview_in_the_same_file_are_not_series():
    """MPO: a JPEG with further images, as telephones write it."""
    images = [Image.fromarray(GREY), Image.fromarray(GREY[:2, :3])]
    content = encoded(images[0], "MPO", save_all=True, append_images=images[1:])
    assert "frames" not in str(ImageReader.from_images([LazyImage.of(content)], 4, 1))
    assert (LazyImage.of(content).pixels(4, 1) == LazyImage.of(encoded(images[0], "JPEG")).pixels(4, 1)).all()
    with pytest.raises(DataError, match="MPO does not keep the numbers of a mask"):
        LazyImage.of(content).numbers()


@pytest.mark.parametrize("brand", [b"heic", b"heix", b"mif1"])
def test_a_heic_image_names_its_extra(brand, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr("heedful.data.image_files.find_spec", lambda name: None)
    with pytest.raises(DataError) as raised:
        LazyImage.of(HEIC.replace(b"heic", brand, 1), "a.heic").pixels(4, 3)
    assert str(raised.value) == (
        "a.heic: a HEIC image; install the extra for them (pip install 'heedful[heic]'), or save it as JPEG"
    )


def test_a_heic_image_is_read_with_the_extra():
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    content = encoded(Image.new("RGB", (20, 10), "red"), "HEIF", quality=95)
    assert LazyImage.of(content).size == (20, 10)
    assert np.abs(LazyImage.of(content).pixels(4, 3)[:, 0, 0].astype(int) - [255, 0, 0]).max() < 6


def test_the_opener_of_heic_images_is_used_only_for_them(monkeypatch):
    registered = []
    module = types.ModuleType("pillow_heif")
    module.register_heif_opener = lambda: registered.append(True)
    monkeypatch.setitem(sys.modules, "pillow_heif", module)
    monkeypatch.setattr("heedful.data.image_files.find_spec", lambda name: object())
    for content in (encoded(Image.fromarray(GREY), "PNG"), encoded(Image.fromarray(GREY), "AVIF")):
        LazyImage.of(content).pixels(4, 1)
    assert not registered
    with pytest.raises(DataError):
        LazyImage.of(HEIC).pixels(4, 1)
    assert registered == [True]
