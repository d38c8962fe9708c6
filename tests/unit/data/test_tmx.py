"""Translation memories: units become rows, codes and other languages are left out, entities refused."""

import gzip

import pytest

from heedful.data.tmx import TmxSource
from heedful.errors import DataError

HEAD = '<?xml version="1.0"{}?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header/><body>\n'
UNITS = """<tu>
<tuv xml:lang="en-GB"><prop type="x">no</prop><seg>A <bpt i="1">&lt;b&gt;</bpt>red<ept i="1">&lt;/b&gt;</ept>
  house &amp; <hi>more</hi>.</seg></tuv>
<tuv xml:lang="de"><seg>Ein rotes Häuschen.</seg></tuv>
</tu>
<tu><note>x</note><tuv lang="DE"><seg>nur deutsch</seg></tuv><tuv xml:lang="fr"><seg>rouge</seg></tuv></tu>
"""
ROWS = [
    ({"source": "A red house & more.", "target": "Ein rotes Häuschen."}, "a.tmx:4"),
    ({"source": "", "target": "nur deutsch"}, "a.tmx:9"),
]


def rows_of(folder, content, **columns):
    (folder / "a.tmx").write_bytes(content)
    source = TmxSource(paths="a.tmx", columns=columns or {"source": "en", "target": "de"})
    return [(row, str(location)) for row, location in source.open(folder)]


def whole(units=UNITS, encoding="utf-8"):
    declared = ' encoding="UTF-16"' if "16" in encoding else ""
    return f"{HEAD.format(declared)}{units}</body></tmx>".encode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_units_are_rows(tmp_path, encoding, packed):
    assert rows_of(tmp_path, packed(whole(encoding=encoding))) == ROWS


def test_a_language_is_found_with_its_country_unless_it_is_alone(tmp_path):
    units = "".join(f'<tuv xml:lang="{name}"><seg>{name}</seg></tuv>' for name in ("pt-BR", "pt", "en-US"))
    ((row, _),) = rows_of(tmp_path, whole(f"<tu>{units}</tu>"), a="pt", b="PT-br", c="en")
    assert row == {"a": "pt", "b": "pt-BR", "c": "en-US"}


def test_a_large_file_is_read_in_blocks(tmp_path):
    rows = rows_of(tmp_path, whole(UNITS * 700))
    assert [row for row, _ in rows] == [row for row, _ in ROWS] * 700


def test_a_language_that_does_not_occur(tmp_path):
    with pytest.raises(
        DataError, match=r"^a.tmx: no text is in the language 'it'; it has en-GB, de, DE, fr$"
    ):
        rows_of(tmp_path, whole(), source="en", target="it")


def test_damaged_xml_has_its_line(tmp_path):
    with pytest.raises(DataError, match=r"^a.tmx:8: the XML is damaged \(mismatched tag"):
        rows_of(tmp_path, whole().replace(b"</tu>\n<tu>", b"</tux>\n<tu>", 1))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_refused_before_they_expand(tmp_path, encoding):
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 99}">' for n in range(1, 9))
    start = f'<!DOCTYPE tmx [<!ENTITY a0 "lol">{entities}]><tmx><body>'
    bomb = f'{start}<tu><tuv lang="en"><seg>&a8;</seg></tuv></tu>'
    with pytest.raises(DataError, match=r"^a.tmx:1: declares the entity 'a0'"):
        rows_of(tmp_path, bomb.encode(encoding))
