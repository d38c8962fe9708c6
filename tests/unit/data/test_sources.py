"""Sources of every kind: rows, places, and errors that name both."""

import gzip
import json
import re

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from heedful.data.sources import SourceConfig, open_source
from heedful.errors import DataError

ADAPTER = TypeAdapter(SourceConfig)


def rows_of(root, **config):
    return list(open_source(ADAPTER.validate_python(config), root))


def pairs(located):
    return [(dict(row), str(where)) for row, where in located]


@pytest.fixture
def folder(tmp_path):
    def write(**files):
        for name, content in files.items():
            name = name.replace("_", ".")
            data = content.encode()
            (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        return tmp_path

    return write


def test_the_union_is_chosen_by_kind_and_closed():
    parts = SourceConfig.__origin__.__args__
    assert len({part.model_fields["kind"].default for part in parts}) == len(parts)
    assert all("open" in vars(part) for part in parts)
    with pytest.raises(ValidationError, match="kind"):
        ADAPTER.validate_python({"kind": "xml", "columns": {"a": "b"}})
    with pytest.raises(ValidationError, match="pahts"):
        ADAPTER.validate_python({"kind": "jsonl", "pahts": "x", "columns": {"a": "b"}})


class TestFiles:
    def test_columns_are_aligned_across_files_of_other_sizes(self, folder):
        root = folder(a_en="1\n2\n", b_en_gz="3\n", all_de="eins\nzwei\ndrei\n")
        columns = {"source": ["a.en", "b.en.gz"], "target": "all.de"}
        assert pairs(rows_of(root, kind="files", columns=columns)) == [
            ({"source": "1", "target": "eins"}, "a.en:1"),
            ({"source": "2", "target": "zwei"}, "a.en:2"),
            ({"source": "3", "target": "drei"}, "b.en.gz:1"),
        ]

    def test_one_column(self, folder):
        root = folder(a_en="x\n\ny\n")
        got = rows_of(root, kind="files", columns={"text": "a.en"})
        assert [row["text"] for row, _ in got] == ["x", "", "y"]

    def test_unequal_counts_are_reported_for_each_file(self, folder):
        root = folder(a_en="1\n2\n", b_en="3\n", a_de="1\n2\n3\n4\n5\n")
        columns = {"source": ["a.en", "b.en"], "target": "a.de"}
        message = r"source has 3 lines \(a\.en 2 \+ b\.en 1\), target has 5 lines \(a\.de 5\)"
        with pytest.raises(DataError, match=message):
            rows_of(root, kind="files", columns=columns)

    def test_rows_before_the_fault_stream(self, folder):
        root = folder(a_en="1\n2\n", a_de="1\n")
        stream = open_source(
            ADAPTER.validate_python({"kind": "files", "columns": {"s": "a.en", "t": "a.de"}}), root
        )
        assert next(stream).row == {"s": "1", "t": "1"}
        with pytest.raises(DataError):
            next(stream)

    def test_a_missing_file_is_reported_before_any_row(self, folder):
        config = ADAPTER.validate_python({"kind": "files", "columns": {"s": "a.en", "t": "a.de"}})
        with pytest.raises(DataError, match=r"a\.de: no such file \(did you mean 'a\.den'\?\)"):
            open_source(config, folder(a_en="1\n", a_den="1\n"))

    def test_there_must_be_a_path(self):
        with pytest.raises(ValidationError):
            ADAPTER.validate_python({"kind": "files", "columns": {"s": []}})


class TestTsv:
    def test_by_number_quotes_are_text(self, folder):
        root = folder(a_tsv='x\t"y\tz\nu\tv\tw\n')
        got = rows_of(root, kind="tsv", paths="a.tsv", columns={"label": 2, "text": 1})
        assert pairs(got) == [
            ({"label": "z", "text": '"y'}, "a.tsv:1"),
            ({"label": "w", "text": "v"}, "a.tsv:2"),
        ]

    def test_by_name_each_file_has_its_header(self, folder):
        root = folder(a_tsv="id\ttext\n1\tone\n", b_tsv_gz="text\tid\ntwo\t2\n")
        got = rows_of(root, kind="tsv", paths=["a.tsv", "b.tsv.gz"], columns={"t": "text"}, header=True)
        assert pairs(got) == [({"t": "one"}, "a.tsv:2"), ({"t": "two"}, "b.tsv.gz:2")]

    def test_csv_with_quotes_over_several_lines(self, folder):
        root = folder(a_csv='a,"b, ""b""\nb"\nc,d\n')
        got = rows_of(root, kind="tsv", paths="a.csv", columns={"t": 1}, separator=",", quotes=True)
        assert pairs(got) == [({"t": 'b, "b"\nb'}, "a.csv:1"), ({"t": "d"}, "a.csv:3")]

    @pytest.mark.parametrize("quote", ["", '"'])
    def test_an_article_may_be_one_field(self, folder, quote):
        article = "word " * 40_000
        root = folder(a_csv=f"{quote}{article}{quote},b\n")
        got = rows_of(root, kind="tsv", paths="a.csv", columns={"t": 0}, separator=",", quotes=True)
        assert pairs(got) == [({"t": article}, "a.csv:1")]

    def test_quotes_that_do_not_close(self, folder):
        with pytest.raises(DataError, match=r"a\.tsv:2: the quotes"):
            rows_of(folder(a_tsv='x\n"y\nz\n'), kind="tsv", paths="a.tsv", columns={"t": 0}, quotes=True)

    def test_too_few_fields(self, folder):
        with pytest.raises(DataError, match=r"a\.tsv:2: field number 1 \(from 0\) is required, got 1 field"):
            rows_of(folder(a_tsv="x\ty\nz\n"), kind="tsv", paths="a.tsv", columns={"t": 1})

    @pytest.mark.parametrize(
        ("content", "separator", "message"),
        [
            ('n,t\n1,"b, c"\n', ",", r"a\.csv:2: the header names 2 fields, got 3; .*`quotes: true`"),
            ("n,t\n1,b, c\n", ",", r"a\.csv:2: the header names 2 fields, got 3$"),
            ('n,t\n1,"b\nc"\n', ",", r"a\.csv:3: field number 1 \(from 0\), t, is required, got 1 field"),
            ('n;t\n"1"\n', ";", r"a\.csv:2: field number 1 .*, got 1 field; .*`quotes: true`"),
        ],
    )
    def test_under_a_header_no_part_of_a_text_is_lost(self, folder, content, separator, message):
        columns = {"t": "t"}
        with pytest.raises(DataError, match=message):
            rows_of(
                folder(a_csv=content),
                kind="tsv", paths="a.csv", columns=columns, header=True, separator=separator,
            )  # fmt: skip

    def test_empty_fields_may_exceed_the_header(self, folder):
        root = folder(a_tsv="n\tt\n1\tx\t\t \n")
        got = rows_of(root, kind="tsv", paths="a.tsv", columns={"t": "t"}, header=True)
        assert pairs(got) == [({"t": "x"}, "a.tsv:2")]

    def test_a_header_without_the_field(self, folder):
        with pytest.raises(DataError, match=r"a\.tsv:1: .*no field 'txt' \(did you mean 'text'\?\); it has "):
            rows_of(folder(a_tsv="text\nx\n"), kind="tsv", paths="a.tsv", columns={"t": "txt"}, header=True)

    def test_a_name_needs_a_header(self):
        with pytest.raises(ValidationError, match="header: true"):
            ADAPTER.validate_python({"kind": "tsv", "paths": "a", "columns": {"t": "text"}})


class TestJsonl:
    def read(self, folder, content, **columns):
        return rows_of(folder(a_jsonl=content), kind="jsonl", paths="a.jsonl", columns=columns)

    def test_dotted_fields_and_names_with_dots(self, folder):
        line = {"translation": {"en": "x\ny", "de": ["z"]}, "a.b": "c", "n": 3, "yes": True}
        got = self.read(
            folder,
            json.dumps(line) + "\n",
            en="translation.en",
            de="translation.de.0",
            c="a.b",
            n="n",
            yes="yes",
        )
        assert pairs(got) == [({"en": "x\ny", "de": "z", "c": "c", "n": "3", "yes": "true"}, "a.jsonl:1")]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('{"text": "x"', r"a\.jsonl:2: invalid JSON: .* at column 13"),
            ('["text"]', r"a\.jsonl:2: not a JSON object"),
            ('{"txt": "x"}', r"a\.jsonl:2: no field 'text' \(did you mean 'txt'\?\); there are txt"),
            ('{"text": null}', r"a\.jsonl:2: field 'text' must be text, got null; remove such rows"),
            ('{"text": NaN}', r"a\.jsonl:2: field 'text' must be text, got NaN; remove such rows"),
            ('{"text": 1e999}', r"a\.jsonl:2: value out of range: 1e999"),
            ('{"text": {"a": 1}}', r"a\.jsonl:2: field 'text' must be text, got an object"),
            ('{"text": ["a", ["b"]]}', r"a\.jsonl:2: field 'text\.1' must be text, got a list"),
            ('{"text": ["a", null]}', r"a\.jsonl:2: field 'text\.1' must be text, got null"),
            (
                r'{"text": "a\ud800"}',
                r"a\.jsonl:2: field 'text' contains half of a surrogate pair at character 2",
            ),
            ('{"text": ' + "[" * 100_000, r"a\.jsonl:2: lists and objects must be nested at most 200 deep"),
        ],
    )
    def test_faults_are_located(self, folder, line, message):
        with pytest.raises(DataError, match=message):
            self.read(folder, f'{{"text": "fine"}}\n{line}\n', t="text")

    def test_nan_is_an_error_only_in_requested_fields(self, folder):
        assert pairs(self.read(folder, f'{{"t": {10**400}, "other": NaN}}\n', t="t")) == [
            ({"t": str(10**400)}, "a.jsonl:1")
        ]

    def test_a_list_holds_texts_numbers_as_json_writes_them(self, folder):
        got = self.read(folder, '{"t": ["a b", 1, true, 2.5]}\n{"t": []}\n', t="t")
        assert [row.row for row in got] == [{"t": ["a b", "1", "true", "2.5"]}, {"t": []}]

    def test_a_list_of_texts_may_stay_one(self, folder):
        content = '{"text": "x", "all": ["y", "z"]}\n{"text": "u", "all": "v"}\n'
        got = rows_of(
            folder(a_jsonl=content), kind="jsonl", paths="a.jsonl", columns={"s": "text"}, lists={"r": "all"}
        )
        assert [row.row for row in got] == [{"s": "x", "r": ["y", "z"]}, {"s": "u", "r": ["v"]}]

    @pytest.mark.parametrize("content", ['{"text": "x", "all": [["y"], null]}', '{"text": "x", "all": null}'])
    def test_a_list_entry_that_is_not_text_is_named(self, folder, content):
        with pytest.raises(DataError, match=r"a\.jsonl:1: field 'all"):
            rows_of(
                folder(a_jsonl=content + "\n"),
                kind="jsonl",
                paths="a.jsonl",
                columns={"s": "text"},
                lists={"r": "all"},
            )

    def test_a_dotted_field_that_stops_short(self, folder):
        with pytest.raises(DataError, match=r"a\.jsonl:1: no field 'a\.b\.c'"):
            self.read(folder, '{"a": {"b": "x"}}\n', t="a.b.c")


class TestDatasets:
    @pytest.fixture(autouse=True)
    def _cache(self, tmp_path, monkeypatch):
        import datasets

        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        datasets.disable_progress_bars()

    @pytest.fixture
    def saved(self, tmp_path):
        import datasets

        features = datasets.Features(
            {
                "translation": {"en": datasets.Value("string"), "de": datasets.Value("string")},
                "label": datasets.ClassLabel(names=["bad", "good"]),
            }
        )
        data = {"translation": [{"en": "a", "de": "b"}, {"en": "c", "de": "d"}], "label": [1, 0]}
        return datasets.Dataset.from_dict(data, features)

    # pandas before 3.1 leaves the file of a CSV to the garbage collector.
    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO:pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("streaming", [False, True])
    @pytest.mark.parametrize("reader", ["json", "csv", "parquet"])
    def test_local_files(self, tmp_path, reader, streaming):
        import datasets

        table = datasets.Dataset.from_dict({"text": ["x", "y"], "n": [3, 5]})
        write = {"json": table.to_json, "csv": table.to_csv, "parquet": table.to_parquet}[reader]
        write(tmp_path / "file")
        got = rows_of(
            tmp_path,
            kind="datasets",
            path=reader,
            data_files="file",
            columns={"t": "text", "n": "n"},
            streaming=streaming,
        )
        assert pairs(got) == [
            ({"t": "x", "n": "3"}, f"{reader}[train]:1"),
            ({"t": "y", "n": "5"}, f"{reader}[train]:2"),
        ]

    @pytest.mark.parametrize("kind", ["Sequence", "List"])
    def test_lists_of_class_labels_have_their_names(self, tmp_path, kind):
        import datasets

        if not hasattr(datasets, kind):
            pytest.skip(f"this release of datasets has no {kind}")
        label = datasets.ClassLabel(names=["O", "B-PER", "I-PER"])
        text = getattr(datasets, kind)(datasets.Value("string"))
        features = datasets.Features({"tokens": text, "ner_tags": getattr(datasets, kind)(label)})
        data = {"tokens": [["Anna", "Lee", "left"], []], "ner_tags": [[1, 2, 0], []]}
        datasets.Dataset.from_dict(data, features).save_to_disk(tmp_path / "saved")
        columns = {"words": "tokens", "tags": "ner_tags"}
        assert [row for row, _ in rows_of(tmp_path, kind="datasets", path="saved", columns=columns)] == [
            {"words": ["Anna", "Lee", "left"], "tags": ["B-PER", "I-PER", "O"]},
            {"words": [], "tags": []},
        ]

    def test_a_saved_data_set_and_its_class_labels(self, tmp_path, saved):
        saved.save_to_disk(tmp_path / "saved")
        columns = {"s": "translation.en", "t": "translation.de", "label": "label"}
        got = rows_of(tmp_path, kind="datasets", path="saved", columns=columns)
        assert [row for row, _ in got] == [
            {"s": "a", "t": "b", "label": "good"},
            {"s": "c", "t": "d", "label": "bad"},
        ]

    @pytest.mark.parametrize("streaming", [False, True])
    def test_images_become_images(self, tmp_path, streaming):
        import datasets

        array = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), dtype=np.uint8)
        features = datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
        )
        table = datasets.Dataset.from_dict(
            {"image": [Image.fromarray(x) for x in array], "label": [1, 0]}, features
        )
        table.to_parquet(tmp_path / "file")
        columns = {"image": "image", "label": "label"}
        config = {"path": "parquet", "data_files": "file", "streaming": streaming}
        rows = list(rows_of(tmp_path, kind="datasets", columns=columns, **config))
        for (row, where), expected, label in zip(rows, array, "ba", strict=True):
            assert np.array_equal(row["image"].pixels(4, 3), expected.transpose(2, 0, 1))
            assert (row["label"], str(row["image"])) == (label, str(where))

    def test_a_missing_image_is_an_image_that_cannot_be_read_and_is_named(self, tmp_path):
        import datasets

        images = [None, Image.new("L", (3, 3)), None]
        table = datasets.Dataset.from_dict({"image": images}, datasets.Features({"image": datasets.Image()}))
        table.save_to_disk(tmp_path / "saved")
        rows = rows_of(tmp_path, kind="datasets", path="saved", columns={"image": "image"})
        first, second, third = (row["image"] for row, _ in rows)
        assert second.pixels(3, 1).shape == (1, 3, 3)
        for number, missing in ((1, first), (3, third)):
            for read in (lambda: missing.pixels(3, 1), lambda: missing.kind):  # noqa: B023
                with pytest.raises(DataError, match=rf"^saved\[train\]:{number}: the image is missing$"):
                    read()
        assert first.identity != third.identity

    def test_a_saved_dictionary_has_splits(self, tmp_path, saved):
        import datasets

        datasets.DatasetDict({"valid": saved}).save_to_disk(str(tmp_path / "saved"))
        columns = {"s": "translation.en"}
        got = rows_of(tmp_path, kind="datasets", path="saved", split="valid", columns=columns)
        assert pairs(got)[1] == ({"s": "c"}, "saved[valid]:2")
        with pytest.raises(DataError, match="no split 'train'; it has valid"):
            rows_of(tmp_path, kind="datasets", path="saved", columns=columns)

    def test_missing_fields_and_labels_are_named(self, tmp_path, saved):
        unlabelled = saved.map(lambda row: {**row, "label": -1})
        unlabelled.save_to_disk(tmp_path / "saved")
        with pytest.raises(DataError, match=r"no field 'lable' \(did you mean 'label'\?\)"):
            rows_of(tmp_path, kind="datasets", path="saved", columns={"l": "lable"})
        with pytest.raises(DataError, match=r"saved\[train\]:1: no field 'translation.fr'"):
            rows_of(tmp_path, kind="datasets", path="saved", columns={"l": "translation.fr"})
        with pytest.raises(DataError, match=r"saved\[train\]:1: field 'label' is not a label \(-1\)"):
            rows_of(tmp_path, kind="datasets", path="saved", columns={"l": "label"})

    def test_the_librarys_errors_become_ours(self, tmp_path):
        (tmp_path / "bad.json").write_text('{"text": "x"}\n{"text": \n')
        for config in (
            {"path": "json", "data_files": "bad.json"},
            {"path": "json", "data_files": "bad.json", "streaming": True},
            {"path": "./nowhere"},
            {"path": "no/such-data-set"},
        ):
            with pytest.raises(DataError, match="datasets: "):
                rows_of(tmp_path, kind="datasets", columns={"t": "text"}, **config)
        with pytest.raises(DataError, match=r"bed\.json: no such file \(did you mean 'bad\.json'\?\)"):
            rows_of(tmp_path, kind="datasets", path="json", data_files="bed.json", columns={"t": "text"})

    def test_a_reader_without_files_would_read_the_working_directory(self):
        with pytest.raises(ValidationError, match="'json' is a reader and requires `data_files`"):
            ADAPTER.validate_python({"kind": "datasets", "path": "json", "columns": {"t": "text"}})

    def test_a_missing_split(self, tmp_path):
        (tmp_path / "a.json").write_text('{"text": "x"}\n')
        with pytest.raises(DataError, match=r"cannot load json a\.json \(split vlaid\): .*train"):
            rows_of(
                tmp_path,
                kind="datasets",
                path="json",
                data_files="a.json",
                split="vlaid",
                columns={"t": "text"},
            )


@pytest.mark.parametrize("columns", [{"t": 1}, {"t": "text"}])
@pytest.mark.parametrize("fitting", [",", ";", "|"])
def test_the_message_names_the_separator_that_fits(tmp_path, columns, fitting):
    """Also if an earlier one of the common separators is in the line, but does not give the fields."""
    (tmp_path / "a.csv").write_text(f"{'a' if fitting == ',' else 'a,b'}{fitting}text\n1{fitting}x\n")
    expected = (
        f"; the separator is '\\t', and the fields seem to be separated by {fitting!r}; set `separator: "
    )
    with pytest.raises(DataError, match=rf"a\.csv:[12]: .*{re.escape(expected)}\"{re.escape(fitting)}\"`$"):
        rows_of(tmp_path, kind="tsv", paths="a.csv", columns=columns, header=True)


def test_the_separator_that_fits_may_be_the_tab_or_need_quotes(tmp_path):
    (tmp_path / "a.tsv").write_text("label\ttext\n1\tx\n")
    with pytest.raises(DataError, match=r"separated by '\\t'; set `separator: \"\\t\"`$"):
        rows_of(tmp_path, kind="tsv", paths="a.tsv", columns={"t": "text"}, header=True, separator=",")
    (tmp_path / "b.csv").write_text('"label","text"\n')
    with pytest.raises(DataError, match=r'set `separator: ","` and `quotes: true`$'):
        rows_of(tmp_path, kind="tsv", paths="b.csv", columns={"t": "text"}, header=True)


def test_a_line_without_fields_says_little_about_the_separator_of_the_others(tmp_path):
    (tmp_path / "a.tsv").write_text("one\tx\nyes, two\n")
    with pytest.raises(DataError, match=r"a\.tsv:2: .*; if fields are separated by ',', set `separator`$"):
        rows_of(tmp_path, kind="tsv", paths="a.tsv", columns={"t": 1})
    (tmp_path / "b.tsv").write_text("one, x\n")
    with pytest.raises(
        DataError, match=r"b\.tsv:1: the header has no field 'text'; .* if fields are separated"
    ):
        rows_of(tmp_path, kind="tsv", paths="b.tsv", columns={"t": "text"}, header=True)


def test_a_header_with_a_field_twice_is_refused_where_it_is_wanted(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tx\ttext\n1\t2\t3\n")
    with pytest.raises(DataError, match=r"a\.tsv:1: the header has the field 'text' 2 times"):
        rows_of(tmp_path, kind="tsv", paths="a.tsv", columns={"t": "text"}, header=True)
    for field in ("x", 1):
        found = rows_of(tmp_path, kind="tsv", paths="a.tsv", columns={"t": field}, header=True)
        assert [row.row for row in found] == [{"t": "2"}]


def test_negative_columns_of_a_table_count_from_the_end(tmp_path):
    (tmp_path / "a.tsv").write_text("n\ttext\tlabel\n1\tx\ty\n")
    rows = rows_of(tmp_path, kind="tsv", paths="a.tsv", columns={"text": -2, "label": -1}, header=True)
    assert [row.row for row in rows] == [{"text": "x", "label": "y"}]
