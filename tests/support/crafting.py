"""Change stored files as a broken disk, another program or an attacker would, with hashes that fit again.

`changes` lists the changes of a JSON value at all of its places, `RAW` those of a file that is no JSON any
more, `TENSORS` those of a safetensors file. `seal` adapts every hash of the run that covers a changed file.
"""

import copy
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from heedful.files import json_sha256, parse_json, sha256, stamped

Place = tuple[str | int, ...]
N_ENTRIES = 3
"""Number of entries of a map or list in which changes are made; others are like them."""

ABSENT = object()

VALUES: dict[str, object] = {
    "absent": ABSENT,
    "null": None,
    "true": True,
    "minus one": -1,
    "zero": 0,
    "64 bits": 2**63 - 1,
    "65 bits": 2**64,
    "400 digits": 10**400,
    "a fraction": 0.5,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "1e308": 1e308,
    "text": "x",
    "no text": "",
    "a number as text": "1",
    "a surrogate": "\ud800",
    "a path": "../../x",
    "a list": [],
    "a list of lists": [[1]],
    "a map": {},
    "a map of maps": {"x": {"y": 1}},
    "depth 500": json.loads("[" * 500 + "]" * 500),
}


def places(value: object, at: Place = ()) -> Iterator[Place]:
    """Yield the places in a JSON value, of maps and lists only the first entries and the last."""
    yield at
    entries: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        entries = [*value.items()]
    elif isinstance(value, list):
        entries = [*enumerate(value)]
    few = entries if isinstance(value, dict) and len(entries) <= 40 else [*entries[:N_ENTRIES], *entries[-1:]]
    for key, entry in dict(few).items():
        yield from places(entry, (*at, key))


def changes(value: object) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield descriptions of changes, and functions that return the changed value."""
    for place in places(value):
        for name, new in VALUES.items():
            if place or new is not ABSENT:
                yield f"{'.'.join(map(str, place)) or 'all'}: {name}", _change(value, place, new)
        if isinstance(_at(value, place), dict):
            yield f"{'.'.join(map(str, place)) or 'all'}: a further key", _change(value, (*place, "zzz"), 1)


def _at(value: Any, place: Place) -> Any:
    for part in place:
        value = value[part]
    return value


def _change(value: object, place: Place, new: object) -> Callable[[], object]:
    def changed() -> object:
        if not place:
            return new
        whole = copy.deepcopy(value)
        holder = _at(whole, place[:-1])
        if new is ABSENT:
            del holder[place[-1]]
        else:
            holder[place[-1]] = new
        return whole

    return changed


def twice(text: bytes) -> bytes:
    """Give the first key of an object a second, other value."""
    key, colon, rest = text.partition(b":")
    name = key.rpartition(b"{")[2]
    return key + colon + b" null," + name + colon + rest


RAW: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zero bytes": lambda content: bytes(len(content)),
    "not UTF-8": lambda content: content.replace(b'"', b"\xff", 1),
    "a byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "UTF-16": lambda content: content.decode("utf-8").encode("utf-16"),
    "too deep": lambda content: b"[" * 100_000,
    "deep and closed": lambda content: b"[" * 100_000 + b"]" * 100_000,
    "deep maps": lambda content: b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "5,000 digits": lambda content: b"9" * 5000,
    "two values": lambda content: content + content,
    "a key twice": twice,
    "a comment": lambda content: b"// x\n" + content,
    "white space": lambda content: b" \n",
}


def _header(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a safetensors file with another header."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def _first(header: dict[str, Any]) -> Any:
    return next(entry for name, entry in header.items() if name != "__metadata__")


def _filled(value: float) -> Callable[[Path], None]:
    def fill(path: Path) -> None:
        header = json.loads(path.read_bytes()[8 : 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]])
        tensors = load_file(path)
        name = next((n for n, t in tensors.items() if t.is_floating_point() and t.numel() > 1), None)
        if name is not None:
            tensors[name].view(-1)[0] = value
        save_file(tensors, path, header.get("__metadata__"))

    return fill


def _remade(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def remake(path: Path) -> None:
        header = json.loads(path.read_bytes()[8 : 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]])
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, header.get("__metadata__"))

    return remake


def _rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def rewrite(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return rewrite


def _in_header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return _rewritten(lambda content: _header(content, change))


def _metadata(text: object) -> Callable[[Path], None]:
    return _in_header(lambda header: header.update(__metadata__=text))


TENSORS: dict[str, Callable[[Path], None]] = {
    "empty": _rewritten(lambda content: b""),
    "zero bytes": _rewritten(lambda content: bytes(len(content))),
    "cut": _rewritten(lambda content: content[:-5]),
    "cut in the header": _rewritten(lambda content: content[:20]),
    "header of 2**60": _rewritten(lambda content: struct.pack("<Q", 1 << 60) + content[8:]),
    "header of 2**64 - 1": _rewritten(lambda content: b"\xff" * 8 + content[8:]),
    "header of 0": _rewritten(lambda content: bytes(8) + content[8:]),
    "header is a list": _rewritten(lambda content: struct.pack("<Q", 2) + b"[]"),
    "header is deep": _rewritten(lambda content: struct.pack("<Q", 100_000) + b"[" * 100_000),
    "unknown type": _in_header(lambda header: _first(header).update(dtype="X9")),
    "complex": _in_header(lambda header: _first(header).update(dtype="C64")),
    "other type": _in_header(lambda header: _first(header).update(dtype="I32")),
    "negative size": _in_header(lambda header: _first(header).update(shape=[-1])),
    "huge size": _in_header(lambda header: _first(header).update(shape=[1 << 62, 4])),
    "size as text": _in_header(lambda header: _first(header).update(shape=["3"])),
    "offsets swapped": _in_header(lambda header: _first(header)["data_offsets"].reverse()),
    "offsets beyond": _in_header(lambda header: _first(header).update(data_offsets=[0, 1 << 40])),
    "no metadata": _in_header(lambda header: header.pop("__metadata__")),
    "metadata of others": _metadata({"heedful": "{}"}),
    "metadata is a list": _metadata({"heedful": "[]"}),
    "metadata is deep": _metadata({"heedful": "[" * 100_000}),
    "metadata is no text": _metadata({"heedful": 3}),
    "aliases of lists": _metadata({"heedful": '{"format": "heedful-weights-1", "aliases": {"a": []}}'}),
    "aliases of nothing": _metadata({"heedful": '{"format": "heedful-weights-1", "aliases": {"a": "b"}}'}),
    "no tensors": _remade(lambda tensors: tensors.clear()),
    "integers": _remade(lambda tensors: tensors.update({n: t.to(torch.int32) for n, t in tensors.items()})),
    "booleans": _remade(lambda tensors: tensors.update({n: t.bool() for n, t in tensors.items()})),
    "fp16": _remade(lambda tensors: tensors.update({n: t.half() for n, t in tensors.items()})),
    "complex numbers": _remade(
        lambda tensors: tensors.update({n: t.to(torch.complex64) for n, t in tensors.items()})
    ),
    "float8": _remade(
        lambda tensors: tensors.update({n: t.float().to(torch.float8_e4m3fn) for n, t in tensors.items()})
    ),
    "one tensor less": _remade(lambda tensors: tensors.pop(next(iter(tensors)))),
    "one tensor more": _remade(lambda tensors: tensors.update(zzz=torch.ones(3))),
    "other shapes": _remade(lambda tensors: tensors.update({n: t[None].clone() for n, t in tensors.items()})),
    "NaN": _filled(float("nan")),
    "infinity": _filled(float("inf")),
    "1e30": _filled(1e30),
}


def seal(run: Path, path: Path) -> None:
    """Make the hashes fit that cover a file: its own, and those in the card or the manifest."""
    _seal_itself(path)
    if path.parent.name.startswith("step-") and path.name != "manifest.json":
        manifest = path.parent / "manifest.json"
        record = json.loads(manifest.read_bytes())
        record["files"][path.name] = {"size": path.stat().st_size, "sha256": sha256(path)}
        manifest.write_text(json.dumps(stamped(record)), "utf-8")
    for card in (run / "run.json", run / "started.json"):
        if card.exists() and card != path:
            record = json.loads(card.read_bytes())
            if path.parent == run and path.name in record["files"]:
                record["files"][path.name] = {"sha256": sha256(path), "bytes": path.stat().st_size}
                card.write_text(json.dumps(stamped(record)), "utf-8")


def _seal_itself(path: Path) -> None:
    if path.suffix != ".json":
        return
    try:
        record = parse_json(path.read_bytes())
        if not isinstance(record, dict) or "sha256" not in record:
            return
        if path.name.endswith("tokenizer.json"):
            record["sha256"] = json_sha256(record.get("content"))
        else:
            record = stamped(record)
        path.write_text(json.dumps(record), "utf-8")
    except (ValueError, RecursionError):
        return
