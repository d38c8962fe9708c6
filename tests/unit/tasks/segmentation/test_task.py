"""From rows with images and masks to batches, and from images to masks."""

from itertools import count

import numpy as np
import pytest
import torch
from small_tasks import LAYER, task_of

from heedful.data.images import UNSCORED, LazyImage
from heedful.data.report import DataReport
from heedful.data.sources import LocatedRow, Location
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError, WorkError
from heedful.nn.patches import Images
from heedful.tasks import image_task
from heedful.tasks.base import PreparedData
from heedful.tasks.image_task import ImageProcessor
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.model_input import AnswerOptions
from heedful.tasks.prediction import PredictOptions

SIZE, N_TOKENS, LABELS = 6, 5, ("sky", "sea", "sun")
DRAW = np.random.default_rng(4)
ARRAYS = DRAW.integers(0, 256, (7, SIZE, SIZE), dtype=np.uint8)
MASKS = DRAW.integers(0, 3, (7, SIZE, SIZE)).astype(np.uint8)
MASKS[:, 0] = 255
IMAGES = [LazyImage(array, f"p{n}") for n, array in enumerate(ARRAYS)]
BROKEN = LazyImage(b"no image", "broken.png")
PROCESSOR = ImageProcessor(ImageReader.from_images(IMAGES, SIZE, 1), LABELS)
MODEL = {"image_size": SIZE, "channels": 1, "patch_size": 3, "d_model": 14, "n_layers": 1, "layer": LAYER}


def rows(arrays=MASKS, images=IMAGES):
    pairs = zip(images, arrays, strict=False)
    return [
        LocatedRow({"image": image, "mask": LazyImage(mask, f"m{n}")}, Location("f", n))
        for n, (image, mask) in enumerate(pairs, 1)
    ]


def task(unreadable="error", processor=PROCESSOR, labels=LABELS, **sections):
    model, data = {"kind": "vision", **MODEL}, {"filter": {"unreadable": unreadable}}
    settings = {"labels": None if labels is None else list(labels), **sections.pop("task", {})}
    return task_of(
        "segmentation", processor, ["image", "mask"], model=model, data=data, task=settings, **sections
    )


def model(made):
    torch.manual_seed(3)
    built = made.build_model()
    for parameter in built.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return built.eval()


# Rows ------------------------------------------------------------------------------------------------------


def test_rows_become_pixels_and_indices_and_classes_are_counted_by_image():
    report = DataReport()
    masks = MASKS.copy()
    masks[1] = 2
    encoded = [each.row for each in task().encode(rows(masks), report)]
    assert all(np.array_equal(e["image"], a.reshape(-1)) for e, a in zip(encoded, ARRAYS, strict=True))
    assert all(np.array_equal(e["mask"], a.reshape(-1)) for e, a in zip(encoded, masks, strict=True))
    assert report.to_dict()["classes"] == {"sky": 6, "sea": 6, "sun": 7}


def test_without_labels_the_numbers_of_the_training_masks_are_the_names():
    made = task(processor=None, labels=None)
    masks = np.array([4, 9, 30], np.uint8)[np.minimum(MASKS, 2)]
    processor = made.make_processor(lambda: iter(rows(masks)))
    assert processor.labels == ("4", "9", "30")
    assert processor.sizes == (3,)
    made = task(processor=processor, labels=None)
    (first, *_) = (each.row for each in made.encode(rows(masks), DataReport()))
    assert np.array_equal(first["mask"], np.minimum(MASKS[0], 2).reshape(-1))
    with pytest.raises(
        DataError, match=r"m2: the class number 5 \(36 pixels\) does not occur in the training"
    ):
        list(made.encode(rows(np.stack([masks[0], np.full((SIZE, SIZE), 5, np.uint8)])), DataReport()))


@pytest.mark.parametrize("column", ["image", "mask"])
def test_what_cannot_be_read_stops_the_work_or_is_dropped_and_counted(column):
    broken = rows()[:2]
    broken[0].row[column] = BROKEN
    with pytest.raises(
        DataError, match=r"broken.png: not an image .*\(`data.filter.unreadable: drop` leaves"
    ):
        list(task().encode(broken, DataReport()))
    report = DataReport()
    assert len(list(task("drop").encode(broken, report))) == 1
    assert report.to_dict()["dropped"] == {"unreadable": {"count": 1, "examples": ["f:1"]}}
    with pytest.raises(DataError, match="no row can be used"):
        list(task("drop").encode(broken[:1], DataReport()))


@pytest.mark.parametrize("unreadable", ["error", "drop"])
def test_wrong_masks_are_errors_that_are_never_dropped(store, unreadable):
    larger = rows(np.zeros((1, 9, 6), np.uint8))
    with pytest.raises(DataError, match="m1: expected 6 x 6 pixels, the size of p0, got 6 x 9"):
        list(task(unreadable).encode(larger, DataReport()))
    unknown = rows(np.full((1, SIZE, SIZE), 3, np.uint8))
    with pytest.raises(DataError, match=r"m1: the class number 3 \(36 pixels\) has no label"):
        list(task(unreadable).encode(unknown, DataReport()))


# Batches ---------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    numbers = count()

    def store(made, masks=MASKS, images=IMAGES):
        encoded = [each.row for each in made.encode(rows(masks, images), DataReport())]
        return TokenStore.build(encoded, ["image", "mask"], tmp_path / str(next(numbers)), n_ids=made.n_ids())

    return store


def test_a_batch_has_the_images_and_masks_of_its_samples(store):
    made = task()
    batch = made.batches(store(made), training=True)([5, 2], epoch=0)
    assert np.array_equal(batch.masks.numpy(), MASKS[[5, 2]])
    torch.testing.assert_close(batch.inputs.pixels, PROCESSOR.reader.normalised(ARRAYS[[5, 2], None]))
    assert (batch.samples, batch.inputs.layout.lengths, batch.weights) == ((5, 2), (N_TOKENS,) * 2, None)


def test_training_changes_images_with_their_masks_and_validation_does_not(store):
    made = task(augmentation={"flip": True, "erase": 1.0})
    painted = [LazyImage(60 * np.minimum(mask, 3) + 20, "p") for mask in MASKS]
    data = store(made, images=painted)
    batch = made.batches(data, training=True)(range(7), epoch=3)
    assert not np.array_equal(batch.masks.numpy(), MASKS)
    for k in range(3):
        at = batch.inputs.pixels[:, 0][batch.masks == k]
        expected = PROCESSOR.reader.normalised(np.full((1, 1, 1, 1), 60 * k + 20, np.uint8))
        torch.testing.assert_close(at, expected.flatten().expand_as(at))
    still = made.batches(data, training=False)(range(7), epoch=3)
    assert np.array_equal(still.masks.numpy(), MASKS)


def test_weights_of_classes_are_those_of_all_training_pixels(store):
    made = task(objective={"class_weights": "balanced"})
    batch = made.batches(store(made), training=True)(range(7), epoch=0)
    scored = MASKS[MASKS != UNSCORED]
    for k in range(3):
        expected = len(scored) / (3 * (scored == k).sum())
        torch.testing.assert_close(batch.weights[batch.masks == k].unique(), torch.tensor([expected]).float())
    assert not batch.weights[batch.masks == UNSCORED].any()
    assert made.batches(store(made), training=False)([0], epoch=0).weights is None
    wrong = task(objective={"class_weights": {"see": 2.0}})
    with pytest.raises(RequestError, match="class_weights: unknown label 'see'"):
        wrong.batches(store(wrong), training=True)


def test_labels_without_a_pixel_are_noted(store):
    made = task()
    masks = np.where(MASKS == 1, 0, MASKS).astype(np.uint8)
    missing = "no training pixel has the label sea: it cannot be learned"
    for kept, noted in ((MASKS, False), (masks, True)):
        notes = made.data_notes(PreparedData(made, store(made, kept), store(made), []))
        assert (missing in notes) == noted


NUMBERS = ImageProcessor(PROCESSOR.reader, ("0", "1", "2"))


@pytest.mark.parametrize(
    ("labels", "ignore", "share", "may_be_class"),
    [
        (None, 255, "42 of 252 (16.7%)", True),
        (LABELS, 255, "42 of 252 (16.7%)", False),  # a label for 255 would need 256 labels
        (LABELS, 1, "{n} of 252 ({share:.1%})", True),
        (None, None, None, False),
    ],
)
def test_pixels_that_are_left_out_are_counted(store, labels, ignore, share, may_be_class):
    masks = MASKS if ignore == 255 else np.where(MASKS == 255, 0, MASKS).astype(np.uint8)
    n = int((masks == ignore).sum())
    made = task(processor=NUMBERS if labels is None else PROCESSOR, labels=labels, task={"ignore": ignore})
    notes = made.data_notes(PreparedData(made, store(made, masks), store(made, masks), []))
    left_out = [note for note in notes if "neither learned" in note]
    if share is None:
        assert not left_out
        return
    remedy = "; if it is a class, set task.ignore to null" * may_be_class
    assert left_out == [
        f"{share.format(n=n, share=n / 252)} training pixels have the number {ignore} (task.ignore) and are "
        f"neither learned nor scored{remedy}"
    ]


# Predictions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decoder", ["linear", "pixels", {"kind": "mask-transformer", "n_heads": 2, "d_ff": 9}]
)
@pytest.mark.parametrize("budget", [1, 3 * N_TOKENS, 10_000])
def test_predictions_are_the_most_probable_classes_whatever_the_batch(decoder, budget, monkeypatch):
    monkeypatch.setattr(image_task, "BATCH_TOKENS", budget)
    made, done = task(task={"decoder": decoder}), []
    built = model(made)
    options = PredictOptions(progress=done.append)
    predictions = made.predict(built, [*IMAGES, ARRAYS[0]], options)
    assert sum(done) == len(predictions) == 8
    for array, prediction in zip([*ARRAYS, ARRAYS[0]], predictions, strict=True):
        images = Images.of(PROCESSOR.reader.normalised(array[None, None]), N_TOKENS)
        with torch.no_grad():
            scores = built.heads["mask"](built(images), images.layout)[0]
        assert np.array_equal(prediction.mask, scores.argmax(-1).numpy())
        shares = {LABELS[k]: float((prediction.mask == k).mean()) for k in range(3)}
        assert prediction.shares == pytest.approx({k: v for k, v in shares.items() if v})


def test_each_input_has_its_answer_also_where_one_cannot_be_read(tmp_path):
    made = task()
    built = model(made)
    predictor = made.predictor(Inference(built))
    whole = predictor.predict(IMAGES[:2])
    first, broken, missing, second = predictor.predict(
        [IMAGES[0], BROKEN, str(tmp_path / "none.png"), IMAGES[1]]
    )
    assert [first.text, second.text] == [p.text for p in whole]
    assert broken.text == missing.text == ""
    assert broken.error.startswith("broken.png: not an image")
    assert missing.error == f"{tmp_path / 'none.png'}: no such file"
    assert broken.image_file() is None
    assert predictor.predict([]) == []


def test_the_mask_of_an_image_has_its_size():
    made = task()
    wide = np.tile(ARRAYS[0], (2, 3))
    (prediction,) = made.predict(model(made), [wide])
    assert prediction.mask.shape == (12, 18)
    assert (prediction.mask[:, :3] == UNSCORED).all()
    assert (prediction.mask[:, 3:15] < 3).all()


# Explanations ----------------------------------------------------------------------------------------------


def prepared(made, built, **options):
    (answer,) = made.predict(built, [ARRAYS[1]])
    return made.model_input(built, ARRAYS[1], AnswerOptions(**options), answer)


def test_each_patch_is_a_question_for_its_most_probable_class():
    made = task()
    built = model(made)
    questions = prepared(made, built)
    hidden = built(questions.batch.inputs)
    scores = built.heads["mask"].patch_scores(hidden, questions.batch.inputs.layout)[0]
    assert questions.targets.positions == (1, 2, 3, 4)  # behind the class token
    assert torch.equal(questions.targets.answers, scores.argmax(-1))
    torch.testing.assert_close(
        questions.targets.scores(hidden, questions.batch), scores.log_softmax(-1).amax(-1)
    )
    assert questions.targets.names == [LABELS[k] for k in scores.argmax(-1)]


def test_a_target_selects_the_patches_of_a_label():
    made = task()
    built = model(made)
    all_of_them = prepared(made, built).targets
    for label in LABELS:
        of_label = [
            p for p, name in zip(all_of_them.positions, all_of_them.names, strict=True) if name == label
        ]
        if of_label:
            assert list(prepared(made, built, target=label).targets.positions) == of_label
        else:
            with pytest.raises(RequestError, match=f"no patch of the image has the label '{label}'"):
                prepared(made, built, target=label)
    with pytest.raises(
        RequestError, match=r"unknown label 'see' \(did you mean 'sea'\?\); expected one of sky"
    ):
        prepared(made, built, target="see")


# Recipes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"task": {"decoder": {"kind": "mask-transformer", "n_heads": 3}}},
            r"d_model=14 must be divisible by",
        ),
        ({"task": {"decoder": "liner"}}, "did you mean 'linear'"),
        ({"task": {"labels": ["a"]}}, "labels"),
        ({"task": {"labels": [str(n) for n in range(256)]}}, "at most 255 labels, got 256"),
        ({"task": {"ignore": 256}}, "ignore"),
        (
            {
                "training": {
                    "metric": "mean-iou",
                    "direction": "lower",
                    "max_updates": 1,
                    "tokens_per_update": 9,
                }
            },
            "for which higher is better",
        ),
    ],
)
def test_recipes_that_cannot_work_are_refused(sections, message):
    with pytest.raises(RequestError, match=message):
        task(**sections)


def test_masks_of_damaged_weights_are_refused():
    made = task()
    damaged = model(made)
    next(damaged.parameters()).data.fill_(float("nan"))
    with pytest.raises(WorkError, match="the model's outputs contain NaN or infinity"):
        made.predict(damaged, IMAGES[:1])
