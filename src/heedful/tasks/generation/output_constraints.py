"""What a caller wants of the text of an output: its prefix, phrases that it must and must not contain.

`OutputConstraints` are checked (`ConstraintBuilder.problem`) before anything is decoded, become constraints
of a decoder, and are compared with the text that comes out (`ConstraintBuilder.checked`).

Texts are compared in the form in which the run writes them: lowercased, composed or with the punctuation of
Moses if its target tokenizer does that. Phrases are compared without white space around them.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path

from heedful.decoding.config import DecodingConfig
from heedful.decoding.constraints import Constraint
from heedful.decoding.grammars import GrammarConstraint, regex_grammar, schema_grammar
from heedful.decoding.phrases import BlockedPhrases, ForcedPrefix, RequiredPhrase
from heedful.decoding.spelling import Spelling
from heedful.errors import DataError, RequestError, type_name
from heedful.files import is_unicode
from heedful.tasks.inputs.texts import join_notes, violated_note
from heedful.tasks.prediction import Prediction, PredictOptions
from heedful.text.scripts import has_script_without_spaces
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping, JsonObject


@dataclass(frozen=True)
class OutputConstraints:
    """Constraints on the text of one output.

    Args:
        must: phrases that it contains; needs a beam search.
        must_not: phrases that it does not contain.
        target_prefix: how it begins.
    """

    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    target_prefix: str = ""

    def __bool__(self) -> bool:
        return bool(self.must or self.must_not or self.target_prefix)

    @classmethod
    def of(cls, given: JsonMapping) -> "OutputConstraints":
        """Return the constraints among the keys of a mapping; other keys are ignored.

        Raises:
            DataError: a value has the wrong type, is empty or is not Unicode; the message has the key.
        """
        lists = {key: _phrases(key, given[key]) for key in ("must", "must_not") if given.get(key) is not None}
        prefix = given.get("target_prefix")
        if prefix is not None and not isinstance(prefix, str):
            raise DataError(f"target_prefix: expected a text, got {type_name(prefix)}")
        _check_unicode("target_prefix", prefix or "")
        return cls(target_prefix=prefix or "", **lists)

    def joined(self, other: "OutputConstraints") -> "OutputConstraints":
        """Return both together; the prefix of the other takes precedence."""
        return OutputConstraints(
            tuple(dict.fromkeys((*self.must, *other.must))),
            tuple(dict.fromkeys((*self.must_not, *other.must_not))),
            other.target_prefix or self.target_prefix,
        )


NO_CONSTRAINTS = OutputConstraints()

CONSTRAINT_KEYS = tuple(entry.name for entry in fields(OutputConstraints))
"""Keys of inputs in JSON lines, and arguments in Python."""


def _phrases(key: str, value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"{key}: expected a list of texts, got {type_name(value)}")
    for text in texts:
        _check_unicode(key, text)
        if not text.strip():
            raise DataError(f"{key}: texts must not be empty or white space alone")
    return tuple(texts)


def _check_unicode(key: str, text: str) -> None:
    if not is_unicode(text):
        raise DataError(f"{key}: not valid Unicode (half of a surrogate pair)")


def arguments_of(constraints: Sequence[OutputConstraints]) -> JsonObject:
    """Return the argument ``constraints`` of a predictor, if there are any; other tasks do not have it."""
    return {"constraints": constraints} if any(constraints) else {}


def separated(lengths: Mapping[int, int], constraints: Sequence[OutputConstraints]) -> list[dict[int, int]]:
    """Return the lengths of inputs without constraints, and of those with, which are decoded separately.

    So an output without constraints is the same, bit for bit, whatever the others are.
    """
    parts: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for i, length in lengths.items():
        parts[bool(constraints and constraints[i])][i] = length
    return [part for part in parts if part]


class ConstraintBuilder:
    """Makes constraints of decoders for the outputs of a tokenizer, and checks them.

    Args:
        tokenizer: of the output.
        decoding: how it is decoded.
        grammar: name and grammar that all outputs match (`grammar_of`); None: any output does.

    Raises:
        RequestError: the grammar is invalid.
    """

    def __init__(
        self, tokenizer: Tokenizer, decoding: DecodingConfig, grammar: tuple[str, str] | None = None
    ) -> None:
        self.tokenizer, self.decoding = tokenizer, decoding
        self._preprocessing = tokenizer.preprocessing
        self._required = lru_cache(maxsize=4096)(self._make_required)
        self._blocked = lru_cache(maxsize=256)(self._make_blocked)
        self._grammars: dict[bool, GrammarConstraint] = {}
        if grammar is not None:
            name, text = grammar
            self._grammars = {
                is_continuation: GrammarConstraint(spelling, tokenizer.specials.end, text, name)
                for is_continuation, spelling in ((False, self._beginning), (True, self._continuing))
            }

    @cached_property
    def _continuing(self) -> Spelling:
        pieces = [*self.tokenizer.model.pieces]
        for i in self.tokenizer.specials.never_generated:
            pieces[i] = b""
        return Spelling(pieces)

    @cached_property
    def _beginning(self) -> Spelling:
        return Spelling(self._continuing.pieces, self.tokenizer.model.space.encode())

    def form(self, phrase: str) -> str:
        """Return a phrase as outputs have it."""
        preprocessing = self._preprocessing
        return preprocessing.undo(preprocessing.apply(phrase)).strip()

    def problem(self, wanted: OutputConstraints, max_length: int) -> str | None:
        """Return why no output can hold constraints, or None if none is known.

        Args:
            wanted: the constraints.
            max_length: maximum number of generated tokens.
        """
        if self.decoding.min_length > max_length:
            return (
                f"min_length must be at most the maximum length of this output ({max_length}), got "
                f"{self.decoding.min_length}; raise decoding.max_length"
            )
        required, banned = map(self.form, wanted.must), [self.form(phrase) for phrase in wanted.must_not]
        prefix = self._preprocessing.apply(wanted.target_prefix)
        for key, text in (*(("must", phrase) for phrase in required), ("target_prefix", prefix)):
            if phrase := next((phrase for phrase in banned if phrase in text), None):
                return f"{key} and must_not contradict each other: {text!r} contains {phrase!r}"
        for phrase in wanted.must:
            constraint = self._required(phrase)
            if constraint is None:
                return f"must: {phrase!r} has characters or words that the run's vocabulary cannot write"
            if constraint.n_goals > max_length and self._fewest(constraint) > max_length:
                return (
                    f"must: {phrase!r} has more tokens ({constraint.n_goals}) than the maximum length of "
                    f"this output ({max_length}); raise decoding.max_length"
                )
        return self._prefix_problem(wanted.target_prefix, max_length)

    def _fewest(self, constraint: RequiredPhrase) -> int:
        return len(self._continuing.shortest(constraint.phrase) or ())

    def _prefix_problem(self, prefix: str, max_length: int) -> str | None:
        if not prefix:
            return None
        n_tokens = min(self._forced(prefix, each).n_tokens for each in (False, True))
        if n_tokens == float("inf"):
            return f"target_prefix: {prefix!r} has characters or words that the run's vocabulary cannot write"
        if n_tokens > max_length:
            return (
                f"target_prefix: has at least {n_tokens:.0f} tokens, more than the maximum length of this "
                f"output ({max_length}); raise decoding.max_length"
            )
        return None

    def refused(
        self,
        constraints: Sequence[OutputConstraints],
        max_lengths: Mapping[int, int],
    ) -> dict[int, Prediction]:
        """Return the predictions, each with its error, for inputs whose constraints no output can hold.

        Args:
            constraints: of each input; empty: none.
            max_lengths: maximum number of generated tokens of each input that is decoded.

        Raises:
            RequestError: phrases are required, and the decoding is no beam search.
        """
        for wanted in constraints:
            self.check_kind(wanted)
        if not constraints and not self.decoding.min_length:
            return {}
        pairs = ((i, constraints[i] if constraints else NO_CONSTRAINTS) for i in max_lengths)
        problems = ((i, self.problem(wanted, max_lengths[i])) for i, wanted in pairs)
        return {i: Prediction("", error=problem) for i, problem in problems if problem}

    def build(self, wanted: OutputConstraints, *, is_continuation: bool = False) -> list[Constraint]:
        """Return the constraints of a decoder.

        Args:
            wanted: constraints without a `problem`.
            is_continuation: whether the output continues a text (`Tokenizer.token_bytes`).
        """
        built: list[Constraint] = [each for phrase in wanted.must if (each := self._required(phrase))]
        if self._grammars:
            built.append(self._grammars[is_continuation])
        if wanted.must_not:
            built.append(self._blocked(wanted.must_not))
        if wanted.target_prefix:
            built.append(self._forced(wanted.target_prefix, is_continuation))
        return built

    def check_kind(self, wanted: OutputConstraints) -> None:
        """Check that the decoding can lead to required phrases.

        Raises:
            RequestError: it is no beam search.
        """
        if wanted.must and self.decoding.kind != "beam":
            raise RequestError(
                f"must: requires a beam search, got decoding.kind={self.decoding.kind}; set the kind of "
                "decoding to beam"
            )

    def _make_required(self, phrase: str) -> RequiredPhrase | None:
        """Return the constraint for a phrase; None if the vocabulary cannot spell it."""
        model, text = self.tokenizer.model, self._preprocessing.apply(phrase).strip()
        spelled, spelling = text.encode(), self._continuing
        # As a word after others; and, if encoding adds no space, as it continues them.
        encoded = model.encode([text] if model.space else [text, f" {text}"])
        exact = [ids for ids in encoded if spelled in b"".join(spelling.pieces[i] for i in ids)]
        if not exact:
            shortest = spelling.shortest(spelled)
            exact = [] if shortest is None else [shortest]
        return RequiredPhrase(spelling, spelled, exact, f"must {phrase!r}") if exact else None

    def _make_blocked(self, phrases: tuple[str, ...]) -> BlockedPhrases:
        name = f"must_not {', '.join(map(repr, phrases))}"
        texts = {self._preprocessing.apply(phrase).strip() for phrase in phrases}
        if self._preprocessing.moses is None:
            return BlockedPhrases(self._continuing, sorted(text.encode() for text in texts), name)
        # Detokenisation removes spaces between tokens, so phrases are compared without any.
        squeezed = {"".join(text.split()) for text in (*texts, *map(self.form, phrases))}
        spelling = self._continuing.without_spaces
        return BlockedPhrases(spelling, sorted(text.encode() for text in squeezed), name)

    def _forced(self, prefix: str, is_continuation: bool) -> ForcedPrefix:
        spelling = self._continuing if is_continuation else self._beginning
        return ForcedPrefix(spelling, self._preprocessing.apply(prefix).encode(), f"target_prefix {prefix!r}")

    def checked(self, prediction: Prediction, wanted: OutputConstraints) -> Prediction:
        """Return a prediction, marked if its text does not hold the constraints.

        The decoder holds them for what it writes; stop strings and detokenisation come after it, and an input
        without tokens is not decoded.
        """
        if prediction.alternatives:
            alternatives = [self.checked(other, wanted) for other in prediction.alternatives]
            prediction = replace(prediction, alternatives=alternatives)
        if prediction.error is not None:
            return prediction
        text, prefix = prediction.text, self._preprocessing
        names = [f"must {phrase!r}" for phrase in wanted.must if self.form(phrase) not in text]
        names += [f"must_not {phrase!r}" for phrase in wanted.must_not if self.form(phrase) in text]
        if not text.startswith(prefix.undo(prefix.apply(wanted.target_prefix)).rstrip()):
            names.append(f"target_prefix {wanted.target_prefix!r}")
        if (grammar := self._grammars.get(True)) and not grammar.matches(text):
            names.append(grammar.name)
        if len(prediction.ids) < self.decoding.min_length:
            names.append(f"min_length={self.decoding.min_length}")
        mark = next((note for note in prediction.notes if note.startswith(_MARK)), "")
        known = f", {mark.removeprefix(_MARK)},"
        if not (missing := [name for name in names if f", {name}," not in known]):
            return prediction
        notes = tuple(note for note in prediction.notes if note != mark)
        mark = ", ".join([mark, *missing]) if mark else violated_note(missing) or ""
        return replace(prediction, finished=False, notes=join_notes(mark, notes))


def grammar_of(options: PredictOptions) -> tuple[str, str] | None:
    """Return the name and the grammar of the texts that an option requires; None without one.

    Raises:
        RequestError: there are two, or llguidance is not installed.
    """
    if options.regex is not None and options.json_schema is not None:
        raise RequestError("regex and json_schema exclude each other; remove one")
    if options.regex is not None:
        return "regex", regex_grammar(options.regex)
    return None if options.json_schema is None else ("json_schema", schema_grammar(options.json_schema))


_MARK = violated_note([""]) or ""
"""How the note begins that a decoder has already given to an output."""


@dataclass(frozen=True)
class Terminology:
    """Terms that have to be translated in a given way.

    Args:
        terms: pairs of a source term and a target term.
    """

    terms: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, given: object) -> "Terminology":
        """Return the terminology of a mapping from source terms to target terms, or of a file (`read`).

        Raises:
            RequestError: it is neither.
        """
        if isinstance(given, str | Path):
            return cls.read(given)
        if not isinstance(given, Mapping):
            raise RequestError(
                f"terminology: expected a mapping of terms or the path of a file, got {type_name(given)}"
            )
        for term in (*given, *given.values()):
            if not isinstance(term, str) or not is_unicode(term) or not term.strip():
                raise RequestError(f"terminology: expected texts that are not empty, got {term!r}")
        return cls(tuple(given.items()))

    @classmethod
    def read(cls, path: str | Path) -> "Terminology":
        """Read a file with a source term, a tab and a target term in each line; blank lines are skipped.

        Raises:
            DataError: it cannot be read, or a line is something else.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot read the terminology: {error}") from error
        terms = []
        for number, line in enumerate(lines, 1):
            cells = [cell.strip() for cell in line.split("\t")]
            if not any(cells):
                continue
            if len(cells) != 2 or not all(cells):
                raise DataError(f"{path}:{number}: expected a source term, a tab and a target term")
            terms.append((cells[0], cells[1]))
        return cls(tuple(terms))

    def constraints(self, source: str) -> OutputConstraints:
        """Return that the output has the target terms of all source terms that the source has as words."""
        targets = (target for term, target in self.terms if _has_words(source, term.strip()))
        return OutputConstraints(must=tuple(dict.fromkeys(targets)))


def _has_words(text: str, term: str) -> bool:
    """Return whether a text has a term as it is written, not as a part of longer words.

    In scripts without spaces between words, any occurrence counts.
    """
    start = text.find(term)
    while start >= 0:
        end = start + len(term)
        if not _joins(text[start - 1 : start], term[0]) and not _joins(term[-1], text[end : end + 1]):
            return True
        start = text.find(term, start + 1)
    return False


def _joins(left: str, right: str) -> bool:
    """Return whether two neighbouring characters are in one word."""
    are_letters = all(c.isalnum() or unicodedata.category(c)[0] == "M" for c in (left, right) if c)
    return bool(left and right) and are_letters and not has_script_without_spaces(left + right)
