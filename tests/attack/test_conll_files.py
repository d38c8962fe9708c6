"""Random CoNLL files: each line is drawn with what it must come to, so nothing here repeats the reader."""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import TypeAdapter

from heedful.data.lines import Stream
from heedful.data.sources import SourceConfig, open_source
from heedful.data.user_files import user_table
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


STYLES = [
    "# sent_id = {n}",
    "# id {n} domain={kind}",
    "# {n}",
    "# newdoc",
    "# newdoc id = {kind}_{n}",
    "# text = Bonn liegt am Rhein",
    "#begin document ({kind}{n});",
    "#begin document ({kind}{n}); part 000",
]


@dataclass
class Annotated:
    """Sentences with comments before them.

    Args:
        lines: without their ends.
        sentences: of each the words, with the numbers of their lines.
        comments: the numbers of comments.
        may_be_comments: those of words which a file alone does not tell from comments: the first ones of a
            sentence, which begin with ``#``, with a tag that no other line has.
        columns: of words and tags.
    """

    lines: list[str]
    sentences: list[list[tuple[int, str]]]
    comments: set[int]
    may_be_comments: set[int]
    columns: dict[str, int]


def annotated(draw: random.Random) -> Annotated:
    """Return sentences with comments of one style or two, before each of them, some, or the first."""
    styles = draw.sample(STYLES, draw.randint(1, 2))
    n_fields = draw.choice([2, 3, 4, 5, *[min(5, max(2, len(style.split()))) for style in styles] * 3])
    tabs, tag = draw.random() < 0.3, draw.randrange(1, n_fields)
    kinds = [draw.choice(["_", "offsets", "parts"]) for _ in range(n_fields)]
    share = draw.choice([1, 0.05, 0.2, 0.5, 0])
    file = Annotated([], [], set(), set(), {"words": 0, "tags": draw.choice([tag, tag - n_fields])})
    tags, first = Counter[str](), dict[int, str]()
    for number in range(draw.choice([1, 1, 2, 3, 20, 200])):
        for style in styles:
            if draw.random() < share or (number == 0 and draw.random() < 0.7):
                comment = style.format(n=number, kind=draw.choice(["web", "news"]))
                file.lines.append(comment.replace(" ", draw.choice(["\t", " "])) if tabs else comment)
                file.comments.add(len(file.lines))
        words, may_be_comment = list[tuple[int, str]](), True
        for index in range(draw.randint(1, 8)):
            word = draw.choice(["#", "#", "#1", "#a", "a", "a", "b", "c"])
            word = "a" if number == 0 and index == 2 else word
            fields = [word]
            for kind in kinds[1:]:
                other = str(index) if kind == "offsets" else draw.choice(["NN", "VB", "O"])
                fields.append("_" if kind == "_" else other)
            fields[tag] = draw.choice(["O", "O", "B-X", "NN", "#", "SYM"])
            file.lines.append(("\t" if tabs else " ").join(fields))
            words.append((len(file.lines), word))
            may_be_comment &= word.startswith("#")
            if may_be_comment:
                first[len(file.lines)] = fields[tag]
            else:
                tags[fields[tag]] += 1
        file.sentences.append(words)
        file.lines.append("")
    file.may_be_comments = {number for number, tag in first.items() if tag not in tags}
    return file


def words_are_generated(file: Annotated, rows: list[Any]) -> None:
    """The words are those of the file, but for words that the reader notes as possible comments."""
    noted = {location.line for row in rows for location in row.comments}
    assert noted - file.comments <= file.may_be_comments
    kept = ([word for number, word in sentence if number not in noted] for sentence in file.sentences)
    assert [row["words"] for row in rows] == [words for words in kept if words]


def has_sure_word(file: Annotated) -> bool:
    return any(not word.startswith("#") for sentence in file.sentences for _, word in sentence)


def test_words_are_read_whatever_comments_there_are(tmp_path, draw, amount):
    """Also by readers of the words alone, which know from a run where the tags are."""
    for _ in range(amount(200, 10_000)):
        file = annotated(draw)
        if not has_sure_word(file):
            continue
        (tmp_path / "x.conll").write_text("\n".join(file.lines) + "\n")
        rows = opened(tmp_path, columns=file.columns)
        words_are_generated(file, rows)
        like = SOURCES.validate_python({"kind": "conll", "paths": "y", "columns": file.columns})
        for known in ((), ("O", "B-X", "NN", "#", "SYM")):
            for columns in (("words",), ("words", "tags")):
                source = user_table(tmp_path / "x.conll", columns, like, known_tags=frozenset(known))
                read = [row.row for row in open_source(source, tmp_path)]
                words_are_generated(file, read)
                if known:
                    assert {c.line for row in read for c in row.comments} == file.comments
                else:
                    assert [row["words"] for row in read] == [row["words"] for row in rows]


def test_a_file_that_can_be_read_once_is_compared_as_far_as_it_was_read(tmp_path, draw, amount):
    for _ in range(amount(50, 2_000)):
        file = annotated(draw)
        if len(file.sentences) > 100 or not has_sure_word(file):
            continue
        source = SOURCES.validate_python({"kind": "conll", "paths": "x", "columns": file.columns})
        stream = Stream.of("x", [f"{line}\n".encode() for line in file.lines])
        words_are_generated(file, [row.row for row in source._sentences(stream)])


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
