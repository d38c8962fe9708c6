"""Frames between the front of a service and its engines: a small JSON header, and bytes as they are.

    length of the header (4 bytes) · length of the payload (4 bytes) · header · payload

The payload of a request is the body that the client sent, and that of an answer the body that it gets, so
that the front neither writes nor reads them again.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from heedful.typing import JsonObject

_LENGTHS = struct.Struct(">II")

MOST_BYTES = 1 << 30
"""The most bytes of a header or a payload; more is a broken stream."""


ENTRIES = {"predict": "predictions", "complete": "completions", "score": "scores", "embed": "embeddings"}
"""The entry of the payload of an answer that has those to the inputs, by verb."""


class BrokenStreamError(Exception):
    """The bytes received are not frames."""


@dataclass(frozen=True)
class Frame:
    """A message.

    Args:
        header: what it is, and the number of the request that it belongs to.
        payload: the body of a request or an answer; empty: none.
    """

    header: JsonObject
    payload: bytes = b""

    def packed(self) -> bytes:
        """Return the frame as bytes."""
        header = json.dumps(self.header, allow_nan=False).encode()
        return b"".join((_LENGTHS.pack(len(header), len(self.payload)), header, self.payload))


@dataclass
class Unpacker:
    """Finds frames in a stream of bytes, however it is cut into pieces."""

    _received: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that these further bytes complete.

        Raises:
            BrokenStreamError: they are not frames.
        """
        self._received += data
        while len(self._received) >= _LENGTHS.size:
            n_header, n_payload = _LENGTHS.unpack_from(self._received)
            if max(n_header, n_payload) > MOST_BYTES:
                raise BrokenStreamError(f"a frame of {max(n_header, n_payload):,} bytes")
            end = _LENGTHS.size + n_header + n_payload
            if len(self._received) < end:
                return
            header = bytes(self._received[_LENGTHS.size : end - n_payload])
            payload = bytes(self._received[end - n_payload : end])
            del self._received[:end]
            try:
                parsed = json.loads(header)
            except ValueError:
                raise BrokenStreamError("a header that is not JSON") from None
            if not isinstance(parsed, dict):
                raise BrokenStreamError("a header that is not an object")
            yield Frame(parsed, payload)
