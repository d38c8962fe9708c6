"""Images in, captions out: what the model reads, order, unreadable files, independence of the batch."""

import numpy as np
import pytest
import torch
from PIL import Image
from small_tasks import LAYER, task_of

from heedful.data.images import LazyImage
from heedful.data.lines import LocatedRow, Location
from heedful.data.report import DataReport
from heedful.decoding.config import BeamConfig, GreedyConfig, MaxLength, SampleConfig
from heedful.errors import DataError
from heedful.models.captioner import CaptionerConfig, build
from heedful.tasks.captioning.task import CaptionProcessor
from heedful.tasks.generation.generator import score_targets
from heedful.tasks.generation.sequence_formats import ImageAndCaption, SequenceFormat
from heedful.tasks.generation.text_generation import Captioner
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.prediction import PredictOptions
from heedful.text.configuration import WordConfig
from heedful.text.training import train_tokenizer

SIZE, CHANNELS, GRID = 12, 3, (3, 3)
READER = ImageReader(SIZE, CHANNELS, (0.5,) * 3, (0.5,) * 3)
PAIRING = ImageAndCaption(READER, GRID)
SHORT = MaxLength(ratio=0.0, extra=5)
WORDS = "a red blue circle square above below"


def tokenizer():
    return train_tokenizer(WordConfig(kind="word"), [WORDS])


def arrays(n, size=SIZE):
    return list(np.random.default_rng(3).integers(256, size=(n, size, size, 3), dtype=np.uint8))


def captioner(decoding=None, **options):
    processor = CaptionProcessor(tokenizer())
    torch.manual_seed(11)
    config = CaptionerConfig(
        image_size=SIZE,
        patch_size=4,
        d_model=12,
        n_layers=2,
        layer={"mixer": {"n_heads": 3}, "channels": {"d_ff": 17}},
    )
    model = build(config, *processor.sizes).eval()
    return Captioner(model, processor.caption, decoding or GreedyConfig(max_length=SHORT), PAIRING, **options)


def task(unreadable="error", **model):
    sizes = {"image_size": SIZE, "patch_size": 4, "d_model": 12, "n_layers": 1, "layer": LAYER}
    model = {"kind": "captioner", **sizes, **model}
    data = {"filter": {"unreadable": unreadable}}
    return task_of("captioning", CaptionProcessor(tokenizer()), ["image", "caption"], model=model, data=data)


def numbers(array):
    return array.transpose(2, 0, 1).reshape(-1)


# What the model reads --------------------------------------------------------------------------------------


def test_numbers_of_images_lie_between_minus_one_and_one():
    black, white = np.zeros((SIZE, SIZE, 3), np.uint8), np.full((SIZE, SIZE, 3), 255, np.uint8)
    coloured = black.copy()
    coloured[5, 7] = (255, 0, 51)  # row 5, column 7
    read = PAIRING.images([numbers(each) for each in (black, white, coloured)])
    assert read.layout.lengths == (9, 9, 9)
    assert read.pixels.shape == (3, 3, SIZE, SIZE)
    assert (read.pixels[0] == -1).all()
    assert (read.pixels[1] == 1).all()
    torch.testing.assert_close(read.pixels[2, :, 5, 7], torch.tensor([1.0, -1.0, -0.6]))


def test_batches_are_teacher_forced_and_lengths_are_those_of_both_sides():
    assert isinstance(PAIRING, SequenceFormat)
    sources = [numbers(each) for each in arrays(2)]
    batch = PAIRING.collate(sources, [[7, 8], []], samples=[4, 9])
    assert batch.inputs.split() == [[1, 7, 8], [1]]
    assert batch.targets.tolist() == [7, 8, 2, 2]
    assert batch.samples == (4, 9)
    lengths = PAIRING.lengths(np.array([432, 432]), np.array([2, 0]))
    assert lengths.tolist() == [[9, 3], [9, 1]]
    sides = [batch.source.layout.lengths, batch.inputs.layout.lengths]
    assert lengths.T.tolist() == [list(side) for side in sides]
    assert PAIRING.max_target_length(9) is None
    assert ImageAndCaption(READER, GRID, longest=6).max_target_length(9) == 6


def located(*images):
    return [
        LocatedRow({"image": p, "caption": "a red circle"}, Location("t", n)) for n, p in enumerate(images, 1)
    ]


def test_rows_become_numbers_and_ids(tmp_path):
    (array,) = arrays(1)
    Image.fromarray(array).save(tmp_path / "one.png")
    rows = located(LazyImage.of(array), LazyImage.of(tmp_path / "one.png"))
    for row in task().encode(rows, DataReport()):
        assert row.row["image"].dtype == np.uint8
        assert np.array_equal(row.row["image"], numbers(array))
        assert tokenizer().decode(row.row["caption"]) == "a red circle"
    grey = next(task(image_size=4, channels=1).encode(rows, DataReport()))
    assert grey.row["image"].shape == (16,)


def test_an_unreadable_image_is_refused_by_name_or_left_out_and_counted(tmp_path):
    (tmp_path / "no.png").write_text("text")
    (good,) = arrays(1)
    rows = located(LazyImage.of(good), LazyImage(tmp_path / "no.png", "no.png"), LazyImage.of(good))
    report = DataReport()
    with pytest.raises(DataError, match=r"t:2: no.png: not an image.*`data.filter.unreadable: drop`"):
        list(task().encode(rows, DataReport()))
    kept = list(task("drop").encode(rows, report))
    assert [row.location.line for row in kept] == [1, 3]
    assert report.dropped["unreadable"].to_dict() == {"count": 1, "examples": ["t:2"]}


def test_a_missing_image_is_one_that_cannot_be_read_and_has_the_name_of_its_row():
    (good,) = arrays(1)
    rows = located(LazyImage.of(good), LazyImage.missing(Location("t", 2)))
    report = DataReport()
    with pytest.raises(DataError, match=r"^t:2: the image is missing \(`data.filter.unreadable: drop`"):
        list(task().encode(rows, DataReport()))
    assert len(list(task("drop").encode(rows, report))) == 1
    assert report.dropped["unreadable"].to_dict() == {"count": 1, "examples": ["t:2"]}


# Captions ------------------------------------------------------------------------------------------------

DECODINGS = [
    GreedyConfig(max_length=SHORT),
    BeamConfig(beam=3, n_best=2, max_length=SHORT),
    BeamConfig(beam=3, coverage=0.4, max_length=SHORT),
    SampleConfig(seed=5, max_length=SHORT),
]


@pytest.mark.slow
@pytest.mark.parametrize("decoding", DECODINGS, ids=lambda d: f"{d.kind}-{getattr(d, 'coverage', 0)}")
def test_as_many_captions_as_images_in_order_whatever_the_batch(decoding):
    images = arrays(5)
    together, small = captioner(decoding).predict(images), captioner(decoding, budget=1).predict(images)
    assert len({tuple(p.tokens) for p in together}) > 1
    for ours, alone in zip(together, small, strict=True):
        assert ours.tokens == alone.tokens
        assert ours.score == pytest.approx(alone.score, abs=1e-5)
        assert len(ours.alternatives) == getattr(decoding, "n_best", 1) - 1
        assert len(ours.tokens) <= 5
    assert captioner(decoding).predict([]) == []


def test_paths_arrays_and_images_are_the_same_and_of_others_the_error_is_told(tmp_path):
    (array,) = arrays(1)
    Image.fromarray(array).save(tmp_path / "one.png")
    (tmp_path / "no.png").write_text("text")
    given = [
        array,
        tmp_path / "gone.png",
        str(tmp_path / "one.png"),
        tmp_path / "no.png",
        Image.fromarray(array),
    ]
    done = []
    found = captioner(budget=20, options=PredictOptions(progress=done.append)).predict(given)
    assert [p.error is None for p in found] == [True, False, True, False, True]
    assert found[0] == found[2] == found[4]
    assert found[0].text
    assert [found[1].text, found[3].text] == ["", ""]
    assert found[1].error.endswith("gone.png: no such file")
    assert "no.png: not an image" in found[3].error
    assert sum(done) == 5


def test_an_image_is_brought_to_the_size_of_the_model():
    (large,) = arrays(1, size=3 * SIZE)
    (prediction,) = captioner().predict([large])
    assert prediction.error is None


def test_log_probabilities_are_those_of_a_forced_pass():
    it, images = captioner(BeamConfig(beam=4, max_length=SHORT)), arrays(3)
    model = it.model
    for array, prediction in zip(images, it.predict(images), strict=True):
        ids = it.tokenizer.encode(prediction.text)
        wanted = score_targets(model, PAIRING.collate([numbers(array)], [ids]))[0].log_probs
        got = torch.tensor(prediction.log_probs)
        torch.testing.assert_close(got, wanted[: len(got)], rtol=0, atol=1e-5)


def test_attention_is_weights_over_the_patches():
    decoding, images, options = (
        BeamConfig(beam=3, max_length=SHORT),
        arrays(2),
        PredictOptions(attention=True),
    )
    plain = captioner(decoding).predict(images)
    shown = captioner(decoding, options=options).predict(images)
    assert [p.tokens for p in plain] == [p.tokens for p in shown]
    assert [p.attention for p in plain] == [None, None]
    for prediction in shown:
        weights = torch.tensor(prediction.attention)
        assert weights.shape == (2, 3, len(prediction.tokens) + 1, 9)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert prediction.grid == GRID
        assert "source_tokens" not in prediction.to_dict()
