"""Random constraints on outputs of untrained models: each is held, refused or marked; none is ignored.

Constraints are drawn without a look at the model. What an answer holds is decided here, from its text and
ids: by `jsonschema`, counts of n-grams, and a matcher of regular expressions that does not backtrack. A
refusal must be justified by a search of its own, over the bytes of the vocabulary; and the log-probabilities
of an answer are those of the model, read in one pass.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from PIL import Image

import heedful
from heedful.errors import RequestError
from heedful.nn.layout import Tokens

pytestmark = pytest.mark.slow

SIZES = {"d_model": 12, "n_layers": 1, "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 17}}}
SOURCES = ["the cat sat on the mat", "tea, at ten", "a rat that sat", "The mat", "eau de vie!", "ten rats"]
TARGETS = ["die Katze saß da", "Tee um zehn", "eine Ratte, die saß", "Die Matte", "Wasser!", "zehn Ratten"]
WORDS = [
    *'abeistT,.!ßé漢"{',
    "at",
    "ei",
    "tt",
    "die",
    "Tee",
    "Ratte",
    "zehn Ratten",
    "sat",
    "the cat",
    "x",
    "Q",
]
LONGEST, CONTEXT = 24, 72
PAIRS = {"kind": "jsonl", "paths": "x", "columns": {"source": "source", "target": "target"}}


def translation(tokenizer: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    return {"task": {"kind": "translation"}, "tokenizer": tokenizer, "model": model}


RECIPES: dict[str, dict[str, Any]] = {
    "transformer": translation(
        {"subwords": {"kind": "bpe", "merges": 20}}, {"kind": "transformer", "n_decoder_layers": 1, **SIZES}
    ),
    "recurrent": translation(
        {"subwords": {"kind": "byte-bpe", "merges": 20}, "shared": False, "target": {"lowercase": True}},
        {"kind": "recurrent", "d_embedding": 8, "d_hidden": 10},
    ),
    "language model": {
        "task": {"kind": "language-modelling"},
        "tokenizer": {"subwords": {"kind": "byte-bpe", "merges": 20}},
        "model": {"kind": "language-model", "context": CONTEXT, **SIZES},
    },
    "one text": {
        **translation(
            {
                "subwords": {"kind": "character", "byte_fallback": True},
                "source": {"moses": "de"},
                "target": {"moses": "de"},
            },
            {"kind": "language-model", "context": 2 * CONTEXT, **SIZES},
        ),
        "data": {
            "train": PAIRS,
            "valid": PAIRS,
            "filter": {"max_length": {"source": CONTEXT, "target": LONGEST}},
        },
    },
    "captioner": {
        "task": {"kind": "captioning"},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {"kind": "captioner", "image_size": 8, "patch_size": 4, **SIZES},
    },
}


# What is drawn ------------------------------------------------------------------------------------------


@dataclass
class Case:
    """An input, a decoding and constraints."""

    given: Any
    decoding: dict[str, Any]
    rules: dict[str, Any] = field(default_factory=dict)
    phrases: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def all_rules(self) -> bool:
        return bool(self.rules or self.phrases or self.options)


def some(draw: random.Random, most: int) -> list[str]:
    """Phrases of one to three words, some joined by spaces."""
    texts = (
        draw.choice(["", " "]).join(draw.choices(WORDS, k=draw.randint(1, 3)))
        for _ in range(draw.randint(1, most))
    )
    return [text for text in texts if text.strip()]


def drawn_decoding(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(["greedy", "beam", "beam", "beam", "diverse-beam", "sample", "mbr"])
    if "beam" in kind:
        beam = draw.randint(1, 5)
        penalty = draw.choice([{"kind": "none"}, {"kind": "average"}, {"kind": "gnmt", "alpha": 1.5}])
        return {
            "kind": kind,
            "beam": beam,
            "n_best": draw.randint(1, beam),
            "length_penalty": penalty,
            "unfinished": draw.choice(["keep", "drop"]),
            **({"groups": draw.choice([1, beam, None])} if kind == "diverse-beam" else {}),
        }
    if kind in ("sample", "mbr"):
        return {
            "kind": kind,
            "temperature": draw.choice([0.3, 1.0, 3.0]),
            "n": draw.randint(1, 3) if kind == "sample" else draw.randint(3, 9),
            **({"n_best": draw.randint(1, 3)} if kind == "mbr" else {}),
            "seed": draw.randrange(9),
            **draw.choice([{}, {"top_k": 3}, {"top_p": 0.4}, {"min_p": 0.2}, {"epsilon": 0.1}]),
        }
    return {"kind": kind}


def drawn_rules(draw: random.Random) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    if draw.random() < 0.5:
        rules["min_length"] = draw.choice([1, 2, 5, 9, LONGEST, LONGEST + 1])
    if draw.random() < 0.3:
        rules["repetition_penalty"] = draw.choice([1e-9, 0.5, 1.1, 1.5, 4.0, 1e30])
    if draw.random() < 0.4:
        rules["no_repeat_ngram"] = draw.randint(1, 3)
    return rules


def drawn_phrases(draw: random.Random, given: str, kind: str) -> dict[str, Any]:
    phrases: dict[str, Any] = {}
    if draw.random() < (0.5 if kind == "beam" else 0.03):
        phrases["must"] = some(draw, 3)
    if draw.random() < 0.4:
        phrases["must_not"] = some(draw, 5)
    if draw.random() < 0.35:
        phrases["target_prefix"] = draw.choice(["", " "]).join(draw.choices(WORDS, k=draw.randint(1, 4)))
    if kind == "beam" and given in SOURCES and draw.random() < 0.3:
        words = [*given.split(), "Zug", "ca"]
        phrases["terminology"] = {draw.choice(words): text for text in some(draw, 3)}
    return phrases


@dataclass(frozen=True)
class Pattern:
    """A regular expression: alternatives, each a sequence of parts with their bounds of repetition."""

    alternatives: tuple[tuple[tuple["str | Pattern", int, int | None], ...], ...]

    def __str__(self) -> str:
        marks = {(1, 1): "", (0, 1): "?", (0, None): "*", (1, None): "+", (2, 3): "{2,3}"}
        return "|".join(
            "".join(
                (f"({part})" if isinstance(part, Pattern) else part) + marks[low, high]
                for part, low, high in sequence
            )
            for sequence in self.alternatives
        )

    def ends(self, text: str, starts: set[int]) -> set[int]:
        """Where matches from some positions end: without backtracking, which may take forever."""
        return set().union(*(self._sequence(sequence, text, starts) for sequence in self.alternatives))

    def _sequence(self, sequence: Sequence[Any], text: str, reached: set[int]) -> set[int]:
        for part, low, high in sequence:
            found = reached if low == 0 else set()
            front, n = reached, 0
            while front and n != high:
                n += 1
                front = self._once(part, text, front) - (found if n > low else set())
                found = found | front if n >= low else found
            reached = found
        return reached

    @staticmethod
    def _once(part: "str | Pattern", text: str, starts: set[int]) -> set[int]:
        if isinstance(part, Pattern):
            return part.ends(text, starts)
        matches = (re.compile(part).match(text, start) for start in starts)
        return {match.end() for match in matches if match}

    def matches(self, text: str) -> bool:
        return len(text) in self.ends(text, {0})


def pattern(draw: random.Random, depth: int = 2) -> Pattern:
    """A regular expression that Python and Rust read in the same way."""

    def part() -> tuple[str | Pattern, int, int | None]:
        match draw.randrange(3) if depth else draw.randrange(2):
            case 0:
                return re.escape(draw.choice([*draw.choice(WORDS)])), *bounds()
            case 1:
                return draw.choice(["[a-z]", "[^a ]", "[0-9,]", ".", "[ß-ü]"]), *bounds()
            case _:
                return pattern(draw, depth - 1), *bounds()

    def bounds() -> tuple[int, int | None]:
        return draw.choice([(1, 1), (1, 1), (0, 1), (0, None), (1, None), (2, 3)])

    def sequence() -> tuple[Any, ...]:
        return tuple(part() for _ in range(draw.randint(1, 4)))

    return Pattern(tuple(sequence() for _ in range(draw.choice([1, 1, 2]) if depth else 1)))


def schema(draw: random.Random, depth: int = 2) -> dict[str, Any]:
    bounds = lambda low, high: sorted(draw.choices(range(low, high), k=2))  # noqa: E731
    if draw.random() < 0.02:
        bounds = lambda low, high: [high, low]  # noqa: E731
    match draw.randrange(7 if depth else 5):
        case 0:
            low, high = bounds(-30, 200)
            return {"type": draw.choice(["integer", "number"]), "minimum": low, "maximum": high}
        case 1:
            low, high = bounds(0, 6)
            return {"type": "string", "minLength": low, "maxLength": high}
        case 2:
            return {"enum": draw.sample([None, True, False, 7, "a", "Tee", "ß", -1.5], k=draw.randint(1, 3))}
        case 3:
            return {"type": draw.choice(["boolean", "null"])}
        case 4:
            return {"type": "string", "pattern": f"^{pattern(draw, 0)}$"}
        case 5:
            low, high = bounds(0, 4)
            items = schema(draw, depth - 1)
            return {"type": "array", "items": items, "minItems": low, "maxItems": high}
        case _:
            names = draw.sample(["a", "b", "Tee", "ß"], k=draw.randint(1, 3))
            return {
                "type": "object",
                "properties": {name: schema(draw, depth - 1) for name in names},
                "required": draw.sample(names, k=draw.randint(0, len(names))),
                "additionalProperties": False,
            }


def drawn(draw: random.Random, name: str, inputs: Sequence[Any]) -> Case:
    """Draw a case with at least one constraint."""
    while True:
        decoding = drawn_decoding(draw)
        given = draw.choice(inputs)
        case = Case(given, decoding, drawn_rules(draw), drawn_phrases(draw, given, decoding["kind"]))
        if name == "language model":
            case.phrases.pop("terminology", None)
            if draw.random() < 0.3:
                case.options["stop"] = [draw.choice(["a", "e", " ", "ß", "Tee", "\n"])]
            if draw.random() < 0.6:
                grammar = draw.choice(["regex", "json_schema"])
                case.options[grammar] = pattern(draw) if grammar == "regex" else schema(draw)
        if case.all_rules:
            return case


# What holds ---------------------------------------------------------------------------------------------


def target_tokenizer(run: heedful.Run) -> Any:
    tokenizers = run.processor
    return getattr(tokenizers, "target", None) or getattr(tokenizers, "text", None) or tokenizers.caption


def form(run: heedful.Run, text: str) -> str:
    """A text as the run's target texts are written."""
    preprocessing = target_tokenizer(run).preprocessing
    return preprocessing.undo(preprocessing.apply(text))


def required(case: Case) -> list[str]:
    """The phrases that are required, also those of terms, whose words the sources separate by spaces."""
    terms = case.phrases.get("terminology", {})
    words = re.findall(r"\w+|[^\w\s]", case.given) if terms else []
    separate = {*case.given.split(), *words} if terms else set()
    return [*case.phrases.get("must", ()), *(text for term, text in terms.items() if term in separate)]


def is_valid(text: str, wanted: Mapping[str, Any]) -> bool:
    """Whether a text is JSON of a schema."""
    try:
        jsonschema.validate(json.loads(text), wanted)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def unheld(run: heedful.Run, case: Case, answer: heedful.Prediction) -> list[str]:
    """The constraints that an answer does not hold, by the beginnings of their names in notes.

    A text that was cut inside a character ends in U+FFFD, and its bytes match nothing.
    """
    text, ids = answer.text, list(answer.ids)
    names = [f"must {phrase!r}" for phrase in required(case) if text.find(form(run, phrase).strip()) < 0]
    banned = case.phrases.get("must_not", ())
    if any(text.find(form(run, phrase).strip()) >= 0 for phrase in banned):
        names.append("must_not")
    prefix = case.phrases.get("target_prefix", "")
    if not text.startswith(form(run, prefix).rstrip()):
        names.append("target_prefix")
    if len(ids) < case.rules.get("min_length", 0):
        names.append("min_length")
    if n := case.rules.get("no_repeat_ngram"):
        counts = Counter(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))
        if counts and max(counts.values()) > 1:
            names.append("no_repeat_ngram")
    if "regex" in case.options and (text[-1:] == "\ufffd" or not case.options["regex"].matches(text)):
        names.append("regex")
    if "json_schema" in case.options and not is_valid(text, case.options["json_schema"]):
        names.append("json_schema")
    return names


def fewest_tokens(pieces: Sequence[bytes], text: bytes, *, inside: bool) -> float:
    """The fewest tokens whose bytes have a text inside, or begin with it, by a search over positions."""
    if not text:
        return 0
    reached, steps = {0}, 0
    seen = set(reached)
    if inside:
        if any(text in piece for piece in pieces):
            return 1
        starts = {n for piece in pieces for n in range(1, min(len(piece), len(text)) + 1)}
        reached = {n for n in starts if any(piece.endswith(text[:n]) for piece in pieces)}
        seen, steps = set(reached), 1
    while reached:
        steps += 1
        following = set()
        for position in reached:
            rest = text[position:]
            for piece in pieces:
                if piece and piece.startswith(rest):
                    return steps
                if piece and rest.startswith(piece):
                    following.add(position + len(piece))
        reached = following - seen
        seen |= following
    return float("inf")


def pieces_of(run: heedful.Run) -> list[bytes]:
    """What each token adds to a text, those that are never generated left out."""
    tokenizer = target_tokenizer(run)
    ids = set(range(tokenizer.vocab_size)) - {*tokenizer.specials.never_generated, tokenizer.specials.end}
    return [tokenizer.token_bytes([i], is_continuation=True)[0] for i in sorted(ids)]


def prefix_length(run: heedful.Run, prefix: str) -> float:
    """The fewest tokens that begin with a prefix; a first token may lose its space."""
    text = target_tokenizer(run).preprocessing.apply(prefix).encode()
    return min(fewest_tokens(pieces_of(run), start + text, inside=False) for start in (b"", b" "))


def has_contradictory_bounds(wanted: object) -> bool:
    if isinstance(wanted, list):
        return any(map(has_contradictory_bounds, wanted))
    if not isinstance(wanted, dict):
        return False
    pairs = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))
    if any(low in wanted and wanted[low] > wanted[high] for low, high in pairs):
        return True
    return any(map(has_contradictory_bounds, wanted.values()))


def reason_to_refuse(run: heedful.Run, case: Case, message: str) -> bool:
    """Whether a refusal is true: the constraint that it names cannot be held."""
    apply = target_tokenizer(run).preprocessing.apply
    must, banned = required(case), [form(run, p).strip() for p in case.phrases.get("must_not", ())]
    prefix = case.phrases.get("target_prefix", "")
    count = lambda phrase: fewest_tokens(pieces_of(run), apply(phrase).strip().encode(), inside=True)  # noqa: E731
    if "requires a beam search" in message:
        return bool(must) and case.decoding["kind"] != "beam"
    if "min_length" in message:
        return case.rules["min_length"] > LONGEST
    if message.startswith("must and must_not"):
        return any(ban in form(run, phrase) for ban in banned for phrase in must)
    if message.startswith("target_prefix and must_not"):
        return any(ban in apply(prefix) for ban in banned)
    if "more tokens" in message or "more than the maximum" in message:
        numbers = map(count, must) if message.startswith("must") else [prefix_length(run, prefix)]
        return any(LONGEST < n < float("inf") for n in numbers)
    if "cannot write" in message:
        numbers = map(count, must) if message.startswith("must") else [prefix_length(run, prefix)]
        return any(n == float("inf") for n in numbers)
    if message.startswith("json_schema"):
        return has_contradictory_bounds(case.options["json_schema"])
    return False


def is_certain(run: heedful.Run, case: Case) -> bool:
    """Whether the first answer holds the constraints, whatever the model: nothing can be in their way.

    Either any output may end, or nothing is banned and there are tokens enough for every way to spell the
    goals.
    """
    goals = {*case.phrases} - {"must_not"}
    bans = {*case.phrases, *case.rules} & {"must_not", "no_repeat_ngram"}
    preprocessing = target_tokenizer(run).preprocessing
    if case.options or (bans and (goals or "min_length" in case.rules)):
        return False
    if goals and preprocessing.moses:  # detokenisation joins what comes after a phrase
        return False
    n_bytes = len(preprocessing.apply(case.phrases.get("target_prefix", "")).encode())
    return n_bytes + sum(len(target_tokenizer(run).encode(p)) + 1 for p in required(case)) < LONGEST


# What the model says ------------------------------------------------------------------------------------


def model_log_probs(run: heedful.Run, case: Case, answer: heedful.Prediction) -> list[tuple[float, float]]:
    """The log-probability of each token of an answer, from one pass over it, after a repetition penalty.

    And how exact it is: penalties enlarge logits, with their errors.
    """
    tokenizer, ids = target_tokenizer(run), list(answer.ids)
    n = len(answer.log_probs)
    with torch.inference_mode():
        if run.recipe.task.kind == "language-modelling":
            prompt = tokenizer.encode(case.given) or [tokenizer.specials.end]
            hidden = run.model.eval()(Tokens.of([[*prompt, *ids]]))[len(prompt) - 1 :]
        else:
            predictor = run.predictor()
            if run.recipe.task.kind == "captioning":
                source = predictor.sequence_format.reader.pixels(heedful.data.images.LazyImage.of(case.given))
                source = source.reshape(-1)
            else:
                source = run.processor.source.encode(case.given)
            batch = predictor.sequence_format.collate([source], [ids])
            hidden = batch.picked(run.model.eval()(batch.inputs, batch.source))
        logits = run.model.heads["token"](hidden)[:n].double()
    penalty = case.rules.get("repetition_penalty", 1.0)
    values = []
    for position, token in enumerate([*ids, tokenizer.specials.end][:n]):
        row = logits[position].clone()
        for earlier in {*ids[:position]}:
            row[earlier] = row[earlier] * penalty if row[earlier] < 0 else row[earlier] / penalty
        error = 2e-4 * max(1.0, penalty, 1 / penalty)
        values.append((row.log_softmax(0)[token].item(), error))
    return values


# The attack ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(make_run, tmp_path_factory):
    """Return a function from the name of a recipe to its run and inputs; each is made once."""
    made: dict[str, tuple[heedful.Run, list[Any]]] = {}
    folder = tmp_path_factory.mktemp("runs")

    def run_of(name: str) -> tuple[heedful.Run, list[Any]]:
        if name not in made:
            inputs: list[Any] = list(SOURCES)
            rows = [{"source": s, "target": t} for s, t in zip(SOURCES, TARGETS, strict=True)] * 3
            if name == "language model":
                rows = [{"text": text} for text in (*SOURCES, *TARGETS)] * 3
                inputs.append("")
            elif name == "captioner":
                pixels = np.random.default_rng(3).integers(256, size=(3, 8, 8, 3), dtype=np.uint8)
                inputs = [str(folder / f"{i}.png") for i in range(len(pixels))]
                for path, values in zip(inputs, pixels, strict=True):
                    Image.fromarray(values).save(path)
                rows = [{"image": inputs[0], "caption": text} for text in (*TARGETS, *WORDS[3:])] * 3
            run = heedful.load(make_run(folder / name.replace(" ", "-"), RECIPES[name], rows), device="cpu")
            made[name] = run, inputs
        return made[name]

    return run_of


def arguments(run: heedful.Run, case: Case, *, constrained: bool = True) -> dict[str, Any]:
    """The arguments of `Run.predict` for a case, or the same without its constraints."""
    decoding, options = {**case.decoding}, {}
    if run.recipe.task.kind == "language-modelling":
        options["max_new_tokens"] = LONGEST
        options.update({"stop": case.options["stop"]} if "stop" in case.options else {})
    else:
        decoding["max_length"] = {"ratio": 0.0, "extra": LONGEST}
    if constrained:
        decoding |= case.rules
        options |= {**case.options, **case.phrases}
        options |= {"regex": str(case.options["regex"])} if "regex" in case.options else {}
    return {"decoding": decoding, **options}


def outcome(run: heedful.Run, case: Case) -> tuple[str, list[heedful.Prediction]]:
    """Return what came of a case, ``held``, ``refused`` or ``marked``, with its answers."""
    try:
        (prediction,) = run.predict([case.given], **arguments(run, case))
    except RequestError as error:
        prediction = heedful.Prediction("", error=str(error).removeprefix("decoding."))
    if prediction.error is not None:
        assert prediction.text == ""
        assert reason_to_refuse(run, case, prediction.error), prediction.error
        return "refused", []
    answers = [prediction, *prediction.alternatives]
    assert len({answer.text for answer in answers}) == len(answers)
    is_marked = False
    for answer in answers:
        names = unheld(run, case, answer)
        notes = [note for note in answer.notes if note.startswith("constraints not satisfied: ")]
        assert all(name in note for name in names for note in notes), (names, notes, answer.text)
        assert bool(notes) == bool(names), (names, notes, answer.text)
        assert answer.finished is False or not names, (names, answer.text)
        assert not names or answer is not prediction or not is_certain(run, case), (names, answer.text)
        is_marked |= bool(names)
        if "stop" not in case.options:
            for value, (expected, error) in zip(
                answer.log_probs, model_log_probs(run, case, answer), strict=True
            ):
                assert value == pytest.approx(expected, abs=error)
    return "marked" if is_marked else "held", answers


@pytest.mark.parametrize("name", RECIPES)
def test_constraints_are_held_refused_or_marked(name, runs, draw, amount):
    run, inputs = runs(name)
    counts, n_cases = Counter(), amount(12, 400)
    for _ in range(n_cases):
        case = drawn(draw, name, inputs)
        try:
            kind, answers = outcome(run, case)
        except BaseException:
            print(f"{name}: {case}")
            raise
        counts[kind] += 1
        if answers:
            (free,) = run.predict([case.given], **arguments(run, case, constrained=False))
            counts["changed"] += [free.text, *(a.text for a in free.alternatives)] != [
                a.text for a in answers
            ]
    print(f"{name}: {dict(counts)} of {n_cases}")
    assert counts["changed"] * 4 >= n_cases
    assert counts["held"] * 4 >= n_cases


def drawn_for_each(
    draw: random.Random, name: str, inputs: Sequence[Any]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    for given in inputs:
        phrases = drawn_phrases(draw, given, "beam")
        phrases.pop("terminology", None)
        yield given, phrases


def test_the_matcher_of_regular_expressions_is_right(draw, amount):
    for _ in range(amount(60, 2_000)):
        drawn_pattern = pattern(draw, 1)
        for text in ("".join(draw.choices("abeT7, ßü.", k=draw.randint(0, 7))) for _ in range(30)):
            assert drawn_pattern.matches(text) == bool(re.fullmatch(str(drawn_pattern), text)), (
                str(drawn_pattern), text
            )  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_an_answer_depends_on_its_own_constraints_alone(name, runs, draw, amount):
    run, inputs = runs(name)
    for _ in range(amount(2, 20)):
        case = drawn(draw, name, inputs)
        if case.rules.get("min_length", 0) > LONGEST:
            case.rules["min_length"] = 5
        given, phrases = zip(*drawn_for_each(draw, name, inputs), strict=True)
        keys = (
            ("must", "must_not", "target_prefix")
            if case.decoding["kind"] == "beam"
            else ("must_not", "target_prefix")
        )
        options = arguments(run, case)
        for key in ("must", "must_not", "target_prefix", "terminology", "json_schema"):
            options.pop(key, None)
        together = run.predict(given, **options, **{key: [each.get(key) for each in phrases] for key in keys})
        penalty = case.rules.get("repetition_penalty", 1.0)
        error = 1e-5 * max(1.0, penalty, 1 / penalty)
        for i, prediction in enumerate(together):
            own = {key: [phrases[i].get(key)] for key in keys}
            (alone,) = run.predict([given[i]], first=i, **options, **own)
            for one, other in zip(
                [alone, *alone.alternatives], [prediction, *prediction.alternatives], strict=True
            ):
                described = (case, phrases[i], one, other)
                assert (one.text, one.ids, one.notes, one.error) == (
                    other.text, other.ids, other.notes, other.error
                ), described  # fmt: skip
                assert one.log_probs == pytest.approx(other.log_probs, abs=error), described
