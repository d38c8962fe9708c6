"""Random CoNLL files: each line is drawn with what it must come to, so nothing here repeats the reader."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import TypeAdapter

from heedful.data.sources import SourceConfig, open_source
from heedful.errors import DataError

ODD_SPACES = "\u00a0\u202f\u3000\u2028\u0085\u000b\u000c\u200b"
LETTERS = "abXY.,'\"é漢🙂1-"
TAGS = ["O", "B-PER", "I-PER", "NN", "#", "_", "B-é"]


@dataclass
class File:
    """A file, and what it must come to.

    Args:
        lines: without their ends.
        sentences: of each the words and tags.
        fields: of each line that is a word, the fields.
        comments: the numbers of the lines that are comments, from 1.
    """

    lines: list[str]
    sentences: list[tuple[list[str], list[str]]]
    fields: dict[int, list[str]]
    comments: list[int]


def a_word(draw: random.Random, *, spaces: bool) -> str:
    """Return a word that may begin with # or contain odd white space, and spaces if they do not separate."""
    inner = LETTERS + ODD_SPACES + " " * (4 * spaces)
    text = "".join(draw.choices(inner, k=draw.randint(0, 6)))
    return draw.choice(["", "", "", "#", "# " if spaces else "#"]) + text.strip(" ") + draw.choice(LETTERS)


def a_comment(draw: random.Random, n_fields: int, *, tabs: bool) -> str:
    """Return a comment that does not have the fields of a word."""
    if tabs:
        return draw.choice(["# id = 7", "#", "#begin document (x); part 000", "# " + "x\t" * n_fields + "y"])
    n = draw.choice([n for n in range(1, 7) if n != n_fields])
    return draw.choice(["#" + " x" * (n - 1), "# id\tx", "#x" + " é" * (n - 1)])


def a_file(draw: random.Random) -> tuple[File, dict[str, int]]:
    """Return a file with the columns of its words and tags."""
    tabs, n_fields = draw.random() < 0.5, draw.randint(2, 5)
    word, tag = draw.sample(range(n_fields), 2)
    file = File([], [], {}, [])
    for number in range(draw.randint(1, 6)):
        n_words = draw.randint(1, 6)
        words, tags = [], []
        for index in range(n_words + (number == 0) * len(TAGS)):
            if draw.random() < 0.2 and (number or index):
                file.lines.append(a_comment(draw, n_fields, tabs=tabs))
                file.comments.append(len(file.lines))
            fields = [a_word(draw, spaces=tabs) for _ in range(n_fields)]
            fields[tag] = TAGS[index] if number == 0 and index < len(TAGS) else draw.choice(TAGS)
            if number == index == 0:  # a line that is surely a word
                fields[0] = fields[0].replace("#", "a")
            if draw.random() < 0.05 and index:
                file.lines.append(f"-DOCSTART-{draw.choice([chr(9), ' '])}O")
            if tabs:
                spaces = [" " * draw.randint(0, 2) for _ in fields]
                line = "\t".join(
                    space + field + space[1:] for space, field in zip(spaces, fields, strict=True)
                )
            else:
                line = "".join(field + " " * draw.randint(1, 3) for field in fields)
            file.lines.append(line)
            file.fields[len(file.lines)] = fields
            words.append(fields[word])
            tags.append(fields[tag])
        file.sentences.append((words, tags))
        file.lines += draw.choices(["", " ", "\t", "\t \t", "\u00a0"], k=draw.randint(1, 3))
    if draw.random() < 0.3:
        file.lines.append(a_comment(draw, n_fields, tabs=tabs))
        file.comments.append(len(file.lines))
    from_end = {number: draw.choice([number, number - n_fields]) for number in (word, tag)}
    return file, {"words": from_end[word], "tags": from_end[tag]}


SOURCES: TypeAdapter[Any] = TypeAdapter(SourceConfig)


def opened(root: Any, **config: Any) -> list[Any]:
    source = SOURCES.validate_python({"kind": "conll", "paths": "x.conll", **config})
    return [row.row for row in open_source(source, root)]


def test_random_files_are_read_as_they_were_drawn(tmp_path, draw, amount):
    for _ in range(amount(150, 10_000)):
        file, columns = a_file(draw)
        end = draw.choice(["\n", "\r\n"])
        text = draw.choice(["", "\ufeff"]) + end.join(file.lines) + draw.choice(["", end, end * 3])
        (tmp_path / "x.conll").write_bytes(text.encode())
        rows = opened(tmp_path, columns=columns)
        assert [(row["words"], row["tags"]) for row in rows] == file.sentences
        assert [location.line for row in rows for location in row.comments] == file.comments


def test_the_fields_of_a_line_are_the_line(tmp_path, draw, amount):
    """Words and tags come from different fields, and all fields together are the line."""
    for _ in range(amount(50, 3_000)):
        file, _ = a_file(draw)
        n_fields = len(next(iter(file.fields.values())))
        (tmp_path / "x.conll").write_text("\n".join(file.lines), newline="", encoding="utf-8")
        rows = opened(tmp_path, columns={str(number): number for number in range(n_fields)})
        read = [fields for row in rows for fields in zip(*row.values(), strict=True)]
        lines = [file.lines[number - 1] for number in sorted(file.fields)]
        for line, fields in zip(lines, read, strict=True):
            spaced = [f" {field} " if "\t" in line else field for field in fields]
            separator = "\t" if "\t" in line else " "
            assert separator.join(spaced).replace(" ", "") == line.replace(" ", "")
            assert all(field == field.strip(" ") and field for field in fields)
            assert line.split() == separator.join(fields).split()


@pytest.mark.parametrize("comments", ["auto", "always"])
def test_lines_with_which_every_sentence_begins_are_comments(tmp_path, draw, amount, comments):
    """Comments may have as many fields as words; what they say is in no other line."""
    for _ in range(amount(20, 1_000)):
        n_fields, n_before = draw.randint(2, 5), draw.randint(1, 2)
        lines, sentences = [], []
        for number in range(draw.randint(2, 120)):
            lines += [" ".join(["#", *(f"x{number}{i}" for i in range(n_fields - 1))])] * n_before
            words = ["a", *draw.choices(["a", "#", "#b"] if comments == "auto" else ["a", "b"], k=3)]
            lines += [" ".join([word, *["_"] * (n_fields - 2), "O"]) for word in words] + [""]
            sentences.append(words)
        (tmp_path / "x.conll").write_text("\n".join(lines))
        rows = opened(tmp_path, columns={"words": 0, "tags": -1}, comments=comments)
        assert [row["words"] for row in rows] == sentences
        n_comments = sum(len(row.comments) for row in rows)
        assert n_comments == (n_before * len(sentences) if comments == "auto" else 0)


def test_no_field_is_word_and_tag_at_once(tmp_path, draw, amount):
    """Lines of any length and columns of any numbers: the fields are different, or it is an error."""
    for _ in range(amount(300, 20_000)):
        separator = draw.choice(["\t", " "])
        line = separator.join(f"f{number}" for number in range(draw.randint(1, 4)))
        columns = {"words": draw.randint(-4, 3), "tags": draw.randint(-4, 3)}
        (tmp_path / "x.conll").write_text(line + "\n")
        (tmp_path / "x.tsv").write_text(line + "\n")
        fields = dict(enumerate(line.split(separator)))
        fields |= {number - len(fields): field for number, field in fields.items()}
        expected = {column: fields.get(number) for column, number in columns.items()}
        is_same = expected["words"] == expected["tags"] and columns["words"] != columns["tags"]
        for kind, path in (("conll", "x.conll"), ("tsv", "x.tsv")):
            config = {"kind": kind, "paths": path, "columns": columns}
            config |= {"separator": separator} if kind == "tsv" else {}
            if None in expected.values() or is_same:
                with pytest.raises(DataError, match=rf"^{path}:1: .*(same field|required)"):
                    opened(tmp_path, **config)
            else:
                (row,) = opened(tmp_path, **config)
                assert row == {c: [f] if kind == "conll" else f for c, f in expected.items()}
