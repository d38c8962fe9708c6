import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.serve.frames import BrokenStreamError, Frame, Unpacker

HEADERS = st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.integers()), max_size=3)


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=300)), max_size=5), st.data())
def test_frames_arrive_however_the_stream_is_cut(frames, data):
    stream = b"".join(Frame(*frame).packed() for frame in frames)
    unpacker, found = Unpacker(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += unpacker.feed(stream[:size])
        stream = stream[size:]
    assert [(frame.header, frame.payload) for frame in found] == frames


@pytest.mark.parametrize(
    "stream", [b"\xff" * 8, b"\0\0\0\2\0\0\0\0[]", b"\0\0\0\1\0\0\0\0{", b"\0\0\0\1\0\0\0\0\xff"]
)
def test_what_is_no_frame_is_an_error(stream):
    with pytest.raises(BrokenStreamError):
        list(Unpacker().feed(stream))
