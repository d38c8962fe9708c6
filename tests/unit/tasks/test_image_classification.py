"""From rows with images to batches, and from images to labels."""

import numpy as np
import pytest
import torch
from small_tasks import LAYER, task_of

from heedful.data.images import LazyImage
from heedful.data.report import DataReport
from heedful.data.sources import LocatedRow, Location
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.encoder import class_head
from heedful.models.vision import VisionConfig, build
from heedful.nn.patches import Images
from heedful.tasks import image_task
from heedful.tasks.image_task import ImageProcessor
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.prediction import PredictOptions

SIZE, N_TOKENS = 6, 5
ARRAYS = np.random.default_rng(4).integers(0, 256, (7, SIZE, SIZE), dtype=np.uint8)
IMAGES = [LazyImage(array, f"p{n}") for n, array in enumerate(ARRAYS)]
BROKEN = LazyImage(b"no image", "broken.png")
PROCESSOR = ImageProcessor(ImageReader.from_images(IMAGES, SIZE, 1), ("cat", "dog", "eel"))
MODEL = {"image_size": SIZE, "channels": 1, "patch_size": 3, "d_model": 14, "n_layers": 1, "layer": LAYER}


def row(image, label, n=1):
    return LocatedRow({"image": image, "label": label}, Location("f", n))


def model():
    torch.manual_seed(3)
    made = build(VisionConfig(**MODEL))
    made.heads["class"] = class_head(14, 3, 0.1)
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made.eval()


def task(unreadable="error"):
    model, data = {"kind": "vision", **MODEL}, {"filter": {"unreadable": unreadable}}
    return task_of("image-classification", PROCESSOR, ["image", "label"], model=model, data=data)


def test_rows_become_pixels_and_numbers_and_are_counted():
    report = DataReport()
    rows = [row(IMAGES[0], "dog"), row(IMAGES[1], "cat", 2), row(IMAGES[2], "dog", 3)]
    encoded = [each.row for each in task().encode(rows, report)]
    assert all(np.array_equal(e["image"], a.reshape(-1)) for e, a in zip(encoded, ARRAYS, strict=False))
    assert [e["label"] for e in encoded] == [[1], [0], [1]]
    assert report.to_dict()["classes"] == {"cat": 1, "dog": 2}
    assert report.lines()[-1] == "  classes: dog 2, cat 1"


def test_what_cannot_be_read_stops_the_work_or_is_dropped_and_counted():
    rows = [row(IMAGES[0], "dog"), row(BROKEN, "cat", 2)]
    with pytest.raises(
        DataError, match=r"broken.png: not an image .*\(`data.filter.unreadable: drop` leaves"
    ):
        list(task().encode(rows, DataReport()))
    report = DataReport()
    assert len(list(task("drop").encode(rows, report))) == 1
    assert report.to_dict()["dropped"] == {"unreadable": {"count": 1, "examples": ["f:2"]}}
    with pytest.raises(DataError, match="no row can be used"):
        list(task("drop").encode(rows[1:], DataReport()))
    with pytest.raises(
        DataError, match=r"broken.png: not an image .*\(`data.filter.unreadable: drop` leaves"
    ):
        ImageReader.from_images([BROKEN, *IMAGES], SIZE, 1)
    assert ImageReader.from_images([BROKEN, *IMAGES], SIZE, 1, drop=True) == PROCESSOR.reader


def test_an_unknown_label_is_named_with_its_place():
    with pytest.raises(DataError, match=r"f:9: unknown label 'dgo'.*'dog'"):
        list(task("drop").encode([row(IMAGES[0], "dgo", 9)], DataReport()))


@pytest.mark.parametrize("budget", [1, 3 * N_TOKENS, 10_000])
def test_predictions_are_the_models_own_probabilities_whatever_the_batch(budget, monkeypatch):
    monkeypatch.setattr(image_task, "BATCH_TOKENS", budget)
    made, done = model(), []
    predictions = task().predict(made, [*IMAGES, ARRAYS[0]], PredictOptions(n_best=3, progress=done.append))
    assert sum(done) == len(predictions) == 8
    for array, prediction in zip([*ARRAYS, ARRAYS[0]], predictions, strict=True):
        images = Images.of(PROCESSOR.reader.normalised(array[None, None]), N_TOKENS)
        with torch.no_grad():
            pooled = made.heads["pooled"](made(images), images.layout)
            log_probs = made.heads["class"](pooled)[0].log_softmax(-1)
        found = {p.text: p.score for p in (prediction, *prediction.alternatives)}
        assert found == pytest.approx(dict(zip(PROCESSOR.labels, log_probs.tolist(), strict=True)), abs=1e-5)


def test_each_input_has_its_answer_also_where_one_cannot_be_read(tmp_path):
    made = model()
    classifier = task().predictor(Inference(made))
    whole = classifier.predict(IMAGES[:2])
    first, broken, missing, second = classifier.predict(
        [IMAGES[0], BROKEN, str(tmp_path / "none.png"), IMAGES[1]]
    )
    assert [first.text, second.text] == [p.text for p in whole]
    assert [first.score, second.score] == pytest.approx([p.score for p in whole], abs=1e-5)
    assert broken.text == ""
    assert broken.error.startswith("broken.png: not an image of a supported format (PNG, ")
    assert missing.error == f"{tmp_path / 'none.png'}: no such file"
    assert missing.to_dict()["error"] == missing.error
    assert "error" not in first.to_dict()


def test_no_input_no_output_and_no_attention():
    made = model()
    classifier = task().predictor(Inference(made))
    assert classifier.predict([]) == []
    classifier = task().predictor(Inference(made), PredictOptions(attention=True))
    with pytest.raises(RequestError, match="attention over a source"):
        classifier.predict(IMAGES)
