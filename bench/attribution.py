"""Compare heedful's attribution of words with Captum's, on the same model and texts.

Captum's methods are FeatureAblation, IntegratedGradients (50 steps) and ShapleyValueSampling (25
permutations), one variant at a time, as by default, and 64 in a batch. As in Captum's tutorials, the baseline
of a word is the token <unk>. Each is compared with integrated gradients, which heedful recommends, and
FeatureAblation also with occlusion. Comprehensiveness is judged by replacing words with words of the training
data, for all methods; its difference has the 95 % interval of a paired bootstrap over texts.

Runs of classification, and their training data, are needed.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from captum.attr import FeatureAblation, LayerIntegratedGradients, ShapleyValueSampling
from torch import Tensor

import heedful
from harness.machine import describe
from harness.report import grid, write
from harness.turns import log
from heedful.data.batch import Batch
from heedful.errors import HeedfulError
from heedful.explain.attribution.faithfulness import set_effects
from heedful.explain.attribution.integrated_gradients import integrated_gradients
from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.occlusion import DRAWS, occlusion
from heedful.explain.attribution.replacements import training_replacements
from heedful.explain.attribution.variants import Variants, target_values
from heedful.explain.capture import prepare_input
from heedful.nn.layout import Tokens
from heedful.nn.modes import evaluating
from heedful.runs.evaluate import chosen_splits
from heedful.runs.prepare import rows_of
from heedful.tasks.metrics.significance import paired_test
from heedful.tasks.metrics.statistics import mean
from heedful.text.specials import SPECIALS

STEPS, PERMUTATIONS, AT_ONCE = 50, 25, 64

Method = Callable[[Measured], Tensor]

PAIRS = (
    ("occlusion", "FeatureAblation"),
    ("occlusion", f"FeatureAblation, {AT_ONCE} at once"),
    ("integrated gradients", "FeatureAblation"),
    ("integrated gradients", f"FeatureAblation, {AT_ONCE} at once"),
    ("integrated gradients", f"IntegratedGradients, {STEPS} steps"),
    ("integrated gradients", f"ShapleyValueSampling, {PERMUTATIONS}"),
    ("integrated gradients", f"ShapleyValueSampling, {PERMUTATIONS}, {AT_ONCE} at once"),
)
"""Methods of heedful and of Captum that are compared."""


@dataclass(frozen=True, eq=False)
class Ids:
    """A text as ids ``[1, S]``, with a baseline and the word of each position, as Captum takes them."""

    measured: Measured
    ids: Tensor
    baseline: Tensor
    mask: Tensor

    @classmethod
    def of(cls, measured: Measured) -> "Ids":
        """Return the ids of an input; special tokens are features of their own."""
        side = measured.prepared.batch.inputs
        assert isinstance(side, Tokens)
        baseline, mask = side.ids.clone(), torch.zeros_like(side.ids)
        owned = {token: index for index, tokens in enumerate(measured.features.tokens) for token in tokens}
        others = iter(range(len(measured.features), len(measured.features) + len(mask)))
        for position in range(len(mask)):
            mask[position] = owned[position] if position in owned else next(others)
        baseline[list(owned)] = SPECIALS.unknown
        return cls(measured, side.ids[None], baseline[None], mask[None])

    def forward(self, ids: Tensor) -> Tensor:
        """Return the log-odds of the answer of each text ``[n, S]``."""
        targets, n = self.measured.prepared.targets, len(ids)
        index = torch.arange(n)
        answer = targets.answers.repeat(n)
        batch = Batch(Tokens.of(ids.tolist()), answer, None)
        variants = Variants(batch, n, index, torch.zeros_like(index), answer)
        return target_values(self.measured.model, targets, variants, as_log_odds=True)[:, 0]

    def by_word(self, values: Tensor) -> Tensor:
        """Return the sum over the tokens of each word."""
        return torch.stack([values[list(tokens)].sum() for tokens in self.measured.features.tokens])


def ablation(at_once: int) -> Method:
    """Return Captum's FeatureAblation."""

    def method(measured: Measured) -> Tensor:
        text = Ids.of(measured)
        with torch.no_grad():
            found = FeatureAblation(text.forward).attribute(
                text.ids, baselines=text.baseline, feature_mask=text.mask, perturbations_per_eval=at_once
            )
        return _first(text, found[0])

    return method


def shapley(at_once: int) -> Method:
    """Return Captum's ShapleyValueSampling."""

    def method(measured: Measured) -> Tensor:
        text = Ids.of(measured)
        with torch.no_grad():
            found = ShapleyValueSampling(text.forward).attribute(
                text.ids,
                baselines=text.baseline,
                feature_mask=text.mask,
                n_samples=PERMUTATIONS,
                perturbations_per_eval=at_once,
            )
        return _first(text, found[0])

    return method


def _first(text: Ids, values: Tensor) -> Tensor:
    """Return the value of each word, which all of its tokens have."""
    return torch.stack([values[tokens[0]] for tokens in text.measured.features.tokens])


def captum_gradients(measured: Measured) -> Tensor:
    """Return Captum's integrated gradients of the embedding's output."""
    text = Ids.of(measured)
    layer: Any = measured.model.embedding.output
    method = LayerIntegratedGradients(text.forward, layer)
    return text.by_word(method.attribute(text.ids, baselines=text.baseline, n_steps=STEPS).sum(-1))


METHODS: dict[str, Method] = {
    "occlusion": lambda measured: occlusion(measured)[:, 0],
    "integrated gradients": lambda measured: integrated_gradients(measured).scores[:, 0],
    "FeatureAblation": ablation(1),
    f"FeatureAblation, {AT_ONCE} at once": ablation(AT_ONCE),
    f"IntegratedGradients, {STEPS} steps": captum_gradients,
    f"ShapleyValueSampling, {PERMUTATIONS}": shapley(1),
    f"ShapleyValueSampling, {PERMUTATIONS}, {AT_ONCE} at once": shapley(AT_ONCE),
}


@dataclass
class Measurements:
    """Seconds and faithfulness of a method, by text."""

    seconds: list[float]
    comprehensiveness: list[float]
    sufficiency: list[float]


def measure(path: Path, file: Path | None, limit: int) -> dict[str, Measurements]:
    """Measure all methods on the texts of a run, in random order for each text."""
    run = heedful.load(path, device="cpu")
    (source,) = chosen_splits(run, "test", file and [file]).values()
    inputs = [run.task.columns.input_of(row.row) for row in islice(rows_of(run.recipe, source), limit)]
    found = {name: Measurements([], [], []) for name in METHODS}
    generator, words = np.random.default_rng(1), None
    with evaluating(run.model), torch.inference_mode(False):
        for number, text in enumerate(inputs):
            try:
                measured = Measured.of(run.model, prepare_input(run, text))
            except HeedfulError:
                continue
            if len(measured.features) < 2:
                continue
            words = words or training_replacements(run, measured)
            for name in generator.permutation(list(METHODS)).tolist():
                torch.manual_seed(number)
                start = time.perf_counter()
                scores = METHODS[name](measured)
                found[name].seconds.append(time.perf_counter() - start)
                order = np.argsort(-scores.detach().double().numpy(), kind="stable")
                removed, kept = set_effects(measured, words, order, [0], DRAWS, number)
                found[name].comprehensiveness.append(removed)
                found[name].sufficiency.append(kept)
            if number % 10 == 9:
                log(f"{path.name}: {number + 1} of {len(inputs)} texts")
    return found


def table(found: dict[str, Measurements]) -> str:
    """Return a row for each pair of methods."""
    rows = []
    for own, peer in PAIRS:
        a, b = found[own], found[peer]
        test = paired_test(mean(b.comprehensiveness), mean(a.comprehensiveness))
        ratio = statistics.median(x / y for x, y in zip(a.seconds, b.seconds, strict=True))
        rows.append(
            [
                f"{own} / {peer}",
                f"{np.mean(a.comprehensiveness):.3f} / {np.mean(b.comprehensiveness):.3f}",
                f"{test.difference:+.3f} ({test.low:+.3f} to {test.high:+.3f})",
                f"{np.mean(a.sufficiency):.3f} / {np.mean(b.sufficiency):.3f}",
                f"{1000 * statistics.median(a.seconds):.0f} / {1000 * statistics.median(b.seconds):.0f}",
                f"{ratio:.2f}",
            ]
        )
    heads = ["heedful / Captum", "comprehensiveness", "difference", "sufficiency", "ms a text", "time ratio"]
    return grid(heads, rows)


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="runs of classification")
    parser.add_argument("--data", type=Path, help="a file instead of the test data of the runs")
    parser.add_argument("--limit", type=int, default=80, help="number of texts (80)")
    parser.add_argument("--threads", type=int, default=1, help="number of threads (1)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    record = {path.name: measure(path, args.data, args.limit) for path in args.runs}
    parts = [
        f"{name}, {len(next(iter(found.values())).seconds)} texts:\n\n{table(found)}"
        for name, found in record.items()
    ]
    plain = {name: {key: vars(value) for key, value in found.items()} for name, found in record.items()}
    write("attribution", "Attribution of words: heedful and Captum", parts, plain, describe(), args.out)


if __name__ == "__main__":
    main()
