"""The cost of teacher forcing: how well references are predicted from correct and from own prefixes.

For a source x and its reference y_1 ... y_n with the end token y_{n+1}, at each position t = 1 ... n + 1:

    forced          p_t = P(. | x, y_1 ... y_{t-1})
    free-running    q_t = P(. | x, z_1 ... z_{t-1}),     z_t = argmax_v q_t(v), special tokens excluded

    accuracy        share of positions at which no token is more probable than y_t
    nats per token  mean of - ln p_t(y_t) or - ln q_t(y_t)

Both passes predict the same positions: the model chooses exactly n tokens. If it would end earlier, that
position counts as an error, and its best other token is read; what it would write after position n + 1 is
not looked at. The gap is 0 for a model that ignores its prefix, and grows if errors cause further errors
(exposure bias: Bengio et al. 2015; Ranzato et al. 2016).

The comparison is by position, so it overestimates the harm: after an inserted or omitted word, or in another
correct wording, all that follows counts as wrong. Compare gaps of models on the same references and
tokenizer; for the quality of the texts, see BLEU, chrF or ROUGE.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import and_

from heedful.tasks.generation.generator import TargetScores
from heedful.tasks.metrics.score import Score


def forcing_gap(forced: Sequence[TargetScores], free: Sequence[TargetScores], tokenizer: str) -> list[Score]:
    """Return accuracy and nats per token of both passes, and their gaps: what own prefixes cost.

    Args:
        forced: scores of each reference with correct prefixes.
        free: scores of the same references with the model's own prefixes.
        tokenizer: identifier of the tokenizer, for the signatures.
    """
    if not forced:
        return []
    counts = {"tokens": sum(len(scores.correct) for scores in forced), "sentences": len(forced)}
    accuracies, nats = [], []
    for passes in (forced, free):
        accuracies.append(sum(int(scores.correct.sum()) for scores in passes) / counts["tokens"])
        nats.append(-sum(float(scores.log_probs.double().sum()) for scores in passes) / counts["tokens"])
    signatures = [f"unit:token|tokenizer:{tokenizer}|prefix:{prefix}" for prefix in ("reference", "greedy")]
    after = _after_first_error(forced, free)
    forced_accuracy, free_accuracy = accuracies
    forced_nats, free_nats = nats
    gap = f"{signatures[1]}-reference"
    return [
        Score("token accuracy, forced", forced_accuracy, signatures[0], counts=counts),
        Score("token accuracy, free", free_accuracy, signatures[1], after, counts),
        Score("accuracy gap", forced_accuracy - free_accuracy, gap, counts=counts),
        Score("nats per token, forced", forced_nats, signatures[0], counts=counts),
        Score("nats per token, free", free_nats, signatures[1], counts=counts),
        Score("nats per token gap", free_nats - forced_nats, gap, counts=counts),
    ]


def _after_first_error(forced: Sequence[TargetScores], free: Sequence[TargetScores]) -> dict[str, float]:
    """Return both accuracies at the positions after the first error of the free-running pass, if any."""
    pairs = [
        (correct, own)
        for given, chosen in zip(forced, free, strict=True)
        for correct, own, so_far in zip(
            given.correct.tolist()[1:],
            chosen.correct.tolist()[1:],
            accumulate(chosen.correct.tolist(), and_),
            strict=False,
        )
        if not so_far
    ]
    if not pairs:
        return {}
    n_correct, n_own = (sum(column) for column in zip(*pairs, strict=True))
    return {
        "tokens_after_first_error": len(pairs),
        "forced_accuracy_after_first_error": n_correct / len(pairs),
        "free_accuracy_after_first_error": n_own / len(pairs),
    }
