"""Image files of more than 8 bits for each channel, written by the definitions of PNG and TIFF."""

import struct
import zlib

import numpy as np

PNG_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}
"""The colour type of PNG by number of channels."""

WIDTH, HEIGHT, BITS, COMPRESSION, COLOURS, OFFSETS, CHANNELS, ROWS, COUNTS, SAMPLE = (
    256, 257, 258, 259, 262, 273, 277, 278, 279, 339,
)  # fmt: skip


def png_of_16_bits(pixels: np.ndarray) -> bytes:
    """Return a PNG of ``[H, W]`` or ``[H, W, C]``."""
    height, width, channels = (*pixels.shape, 1)[:3]
    header = struct.pack(">IIBBBBB", width, height, 16, PNG_COLOURS[channels], 0, 0, 0)
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in pixels)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def tiff(pixels: np.ndarray, order: str = "<") -> bytes:
    """Return a TIFF of ``[H, W]`` or ``[H, W, 3]`` of any type, in the byte order ``<`` or ``>``."""
    height, width, channels = (*pixels.shape, 1)[:3]
    number = {"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]
    content = pixels.astype(pixels.dtype.newbyteorder(order)).tobytes()
    entries = {
        WIDTH: [width], HEIGHT: [height], BITS: [8 * pixels.itemsize] * channels, COMPRESSION: [1],
        COLOURS: [1 if channels == 1 else 2], OFFSETS: [0], CHANNELS: [channels], ROWS: [height],
        COUNTS: [len(content)], SAMPLE: [number] * channels,
    }  # fmt: skip
    start = 8 + 2 + 12 * len(entries) + 4
    long_values = {tag: values for tag, values in entries.items() if len(values) > 2}
    entries[OFFSETS] = [start + sum(2 * len(values) for values in long_values.values())]
    table, values_after = b"", b""
    for tag, values in entries.items():
        code, letter = (4, "I") if tag in (OFFSETS, COUNTS) else (3, "H")
        packed = struct.pack(f"{order}{len(values)}{letter}", *values)
        if tag in long_values:
            value = struct.pack(order + "I", start + len(values_after))
            values_after += packed
        else:
            value = packed.ljust(4, b"\0")
        table += struct.pack(order + "HHI", tag, code, len(values)) + value
    first = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "IH", 8, len(entries))
    return first + table + struct.pack(order + "I", 0) + values_after + content
