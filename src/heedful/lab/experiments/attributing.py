"""Which words decided: attention weights and integrated gradients, with words whose meaning is known.

Item 18 of the lectures.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from heedful.data.batch import Batch
from heedful.explain.attribution.features import answers_of, features_of
from heedful.explain.attribution.integrated_gradients import gradient_times_input, integrated_gradients
from heedful.explain.attribution.measure import Measured as MeasuredInput
from heedful.explain.attribution.occlusion import occlusion
from heedful.lab.drawing import Bars
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures
from heedful.lab.seeds import cache, generator_from, seed_of, seeded
from heedful.lab.tiny import attention_weights, class_accuracy, predicted_classes, train
from heedful.models import encoder
from heedful.models.encoder import Encoder, EncoderConfig, class_head
from heedful.models.mixers import AttentionConfig
from heedful.models.sections import FeedForwardConfig
from heedful.models.stacks import LayerConfig
from heedful.nn.layout import Tokens
from heedful.objectives.classification import SequenceClass
from heedful.tasks.model_input import INPUT, Axis, ModelInput, PredictionTargets
from heedful.tasks.prediction import Prediction
from heedful.text.specials import SPECIALS
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Cosine

FIRST = 1 + max(SPECIALS.mask, SPECIALS.separate)
CLASSES, WORDS_OF_CLASS, NEUTRAL = 3, 4, 24
N_WORDS = CLASSES * WORDS_OF_CLASS + NEUTRAL
LENGTH, FOR, AGAINST = 12, 2, 1
D = 24
LABELS = tuple("ABC")


def draw_texts(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw words ``[n, LENGTH]`` and classes: two words of the class, one of another, neutral ones."""
    classes = torch.randint(CLASSES, (n,), generator=generator)
    others = (classes + torch.randint(1, CLASSES, (n,), generator=generator)) % CLASSES

    def words_of(of: Tensor, k: int) -> Tensor:
        return of[:, None] * WORDS_OF_CLASS + torch.randint(WORDS_OF_CLASS, (n, k), generator=generator)

    neutral = torch.randint(NEUTRAL, (n, LENGTH - FOR - AGAINST), generator=generator)
    words = torch.cat(
        [words_of(classes, FOR), words_of(others, AGAINST), CLASSES * WORDS_OF_CLASS + neutral], dim=1
    )
    order = torch.rand(n, LENGTH, generator=generator).argsort(1)
    return words.gather(1, order), classes


def sides_of(words: Tensor, answer: int) -> Tensor:
    """Return 1 for each word of the answer's class, -1 for those of other classes, 0 for neutral words."""
    of = words // WORDS_OF_CLASS
    return torch.where(of >= CLASSES, 0, torch.where(of == answer, 1, -1))


def batch_of(words: Tensor, classes: Tensor) -> Batch:
    """Return texts between the special tokens, with their classes."""
    ids = [[SPECIALS.classify, *row, SPECIALS.separate] for row in (words + FIRST).tolist()]
    return Batch(Tokens.of(ids), torch.zeros(0, dtype=torch.int64), classes=classes)


@cache
def train_classifier(size: Size) -> tuple[Encoder, float]:
    """Train a Transformer encoder on such texts; return it with its accuracy on new ones."""
    layer = LayerConfig(
        mixer=AttentionConfig(n_heads=3, dropout=0.0),
        channels=FeedForwardConfig(d_ff=2 * D),
        norm_placement="pre",
    )
    config = EncoderConfig(
        d_model=D,
        n_layers=1,
        layer=layer,
        max_length=LENGTH + 2,
        dropout=0.0,
        segments=0,
        pooling="first",
        pooler=False,
    )
    with seeded(0):
        model = encoder.build(config, N_WORDS + FIRST)
        model.heads["class"] = class_head(D, CLASSES, dropout=0.0)
    updates, generator = (250 if size == "short" else 600), generator_from(3)
    batches = (batch_of(*draw_texts(32, generator)) for _ in range(updates))
    train(model, SequenceClass(), batches, AdamConfig(), Cosine(peak=1e-2, warmup=20, updates=updates))
    return model, class_accuracy(model, batch_of(*draw_texts(256, generator_from(4))))


def measured_input(model: Encoder, words: Sequence[int], answer: int) -> MeasuredInput:
    """Return a text and its predicted class in the form that attribution methods take."""
    batch = batch_of(torch.tensor([words]), torch.tensor([answer]))
    axis = Axis(("<cls>", *map(str, words), "<sep>"), (-1, *range(len(words)), -1), tuple(map(str, words)))
    targets = PredictionTargets.of_class(model, LABELS, LABELS[answer])
    prepared = ModelInput(batch, {INPUT: axis}, Prediction(LABELS[answer]), targets)
    return MeasuredInput(model, prepared, features_of(prepared), answers_of(prepared))


def attention_received(measured: MeasuredInput) -> Tensor:
    """Return the weight that the class token gives to each word, as a mean of heads."""
    model, inputs = measured.model, measured.prepared.batch.inputs
    assert isinstance(model, Encoder)
    return attention_weights(model, inputs)[-1, 0].mean(0)[0, 1:-1]


METHODS = {
    "attention weights": attention_received,
    "integrated gradients": lambda measured: integrated_gradients(measured).scores[:, 0],
    "words left out": lambda measured: occlusion(measured, seed=seed_of(0))[:, 0],
    "gradient x input": lambda measured: gradient_times_input(measured)[:, 0],
}
"""A number for each word of a text."""


@measures("weights-as-reasons", judged=("attention weights", "integrated gradients"))
def measure_which_words_decided(size: Size, judged: str) -> Series:
    """Measure how often the first word of a method speaks for the answer, and how often against it."""
    model, accuracy = train_classifier(size)
    words, classes = draw_texts(60 if size == "short" else 300, generator_from(5))
    methods = {judged: METHODS[judged]} if size == "short" else METHODS
    first: dict[str, list[int]] = {name: [] for name in methods}
    predicted = predicted_classes(model, batch_of(words, classes).inputs)
    for row, answer in zip(words, predicted.tolist(), strict=True):
        measured, sides = measured_input(model, row.tolist(), answer), sides_of(row, answer)
        for name, method in methods.items():
            first[name].append(int(sides[method(measured).detach().argmax()]))
    shares = {name: _shares(sides) for name, sides in first.items()}
    spoken_for, against = shares[judged]
    return Series(
        {
            "spoken_for": Measured(f"first word by {judged} speaks for the answer", 100 * spoken_for, "%"),
            "against": Measured(f"first word by {judged} speaks against it", 100 * against, "%"),
            "chance": Measured("any word speaks for it", 100 * FOR / LENGTH, "%"),
            **measured_each("{}", {"accuracy of the classifier": 100 * accuracy}, "%"),
        },
        [{"method": name, "for": 100 * a, "against": 100 * b} for name, (a, b) in shares.items()],
        [_panel({name: 100 * a for name, (a, _) in shares.items()})],
    )


def _shares(sides: Sequence[int]) -> tuple[float, float]:
    """Return how often the first word speaks for the answer, and against it."""
    return fmean(side == 1 for side in sides), fmean(side == -1 for side in sides)


def _panel(shares: Mapping[str, float]) -> Bars:
    title, levels = "The first word speaks for the answer", {"by chance": 100 * FOR / LENGTH}
    return Bars(title, "method", "% of texts", shares, levels)
