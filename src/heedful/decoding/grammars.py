"""Outputs that match a regular expression or a JSON schema, by the library llguidance (an extra).

llguidance runs a parser over the bytes of an output and computes which tokens can follow. Its tokenizer is
built from the bytes of the vocabulary; to these it adds one token for each byte, so that any bytes can be
parsed.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.decoding.constraints import Blocked, Constraint
from heedful.decoding.spelling import Spelling
from heedful.errors import RequestError
from heedful.typing import JsonMapping

_N_BYTES = 256


class GrammarConstraint(Constraint):
    """The output matches a grammar as a whole. The state is a parser that has read it.

    Args:
        spelling: of the vocabulary.
        end: the end token.
        grammar: in the format of llguidance (`regex_grammar`, `schema_grammar`).
        name: of the constraint, for notes and messages.

    Raises:
        RequestError: llguidance is not installed, or the grammar is invalid.
    """

    def __init__(self, spelling: Spelling, end: int, grammar: str, name: str) -> None:
        self._library, self.name = _library(name), name
        self.spelling = self._first_spelling = spelling
        tokenizer = self._tokenizer(spelling, end)
        if problem := self._library.LLMatcher.validate_grammar(grammar, tokenizer):
            raise RequestError(f"{name}: {' '.join(problem.split())}")
        self._parser = self._first_parser = self._library.LLMatcher(tokenizer, grammar, log_level=0)
        # The first token loses its space, if outputs do not continue a text.
        if space := spelling.first_space:
            self._first_spelling = Spelling([piece.removeprefix(space) for piece in spelling.pieces])
            tokenizer = self._tokenizer(self._first_spelling, end)
            self._first_parser = self._library.LLMatcher(tokenizer, grammar, log_level=0)

    def _tokenizer(self, spelling: Spelling, end: int) -> Any:
        tokenizer = self._library.TokenizerWrapper(_Vocabulary(spelling.pieces, end))
        return self._library.LLTokenizer(tokenizer, slices=[])

    def start(self) -> Any:
        """Return None, since the first token may lose its space."""
        return None

    def advance(self, state: Any, token: int) -> Any:
        """Return a parser that has read one more token."""
        piece = self.spelling.pieces[token]
        if state is None:
            return self._after(self._parser, piece.removeprefix(self.spelling.first_space))
        return self._after(state, piece)

    def _after(self, parser: Any, text: bytes) -> Any:
        """Return a copy of a parser after a text."""
        parser = parser.deep_copy()
        parser.consume_tokens(self._bytes(text))
        return parser

    def _bytes(self, text: bytes) -> list[int]:
        """Return the tokens that spell a text byte by byte."""
        n_tokens = len(self.spelling.pieces)
        return [n_tokens + byte for byte in text]

    def is_met(self, state: Any) -> bool:
        """Return whether the grammar accepts the output as it is."""
        return bool((self._parser if state is None else state).is_accepting())

    def block(self, state: Any, blocked: Blocked) -> None:
        """Block the tokens that the grammar does not allow next."""
        first = state is None
        parser = self._first_parser if first else state
        spelling = self._first_spelling if first else self.spelling
        if parser.is_stopped():
            blocked[:] = True
        elif forced := parser.compute_ff_bytes():
            # The mask of llguidance would allow one way alone to spell what has to come.
            is_other = np.ones_like(blocked)
            is_other[self._spelling_next(parser, spelling, forced)] = False
            blocked |= is_other
        else:
            bits = np.frombuffer(parser.compute_bitmask(), np.uint8)
            blocked |= np.unpackbits(bits, count=len(blocked), bitorder="little") == 0

    def _spelling_next(self, parser: Any, spelling: Spelling, forced: bytes) -> list[int]:
        """Return the tokens that spell the bytes that have to come, perhaps with others after them."""
        inner = [i for _, ids in spelling.prefixes(forced) for i in ids.tolist()]
        for i in spelling.starting_with(forced).tolist():
            text = spelling.pieces[i]
            if parser.validate_tokens(self._bytes(text)) == len(text):
                inner.append(i)
        return inner

    def matches(self, text: str) -> bool:
        """Return whether a text matches the grammar."""
        return self.is_met(self._after(self._parser, text.encode("utf-8", "replace")))


class _Vocabulary:
    """The vocabulary as llguidance reads it.

    Args:
        pieces: the bytes of each token.
        end: the end token.
    """

    bos_token_id = None

    def __init__(self, pieces: Sequence[bytes], end: int) -> None:
        self.tokens = [*pieces, *(bytes([byte]) for byte in range(_N_BYTES))]
        self.eos_token_id = end
        self.special_token_ids = [i for i, piece in enumerate(pieces) if not piece]
        for i in self.special_token_ids:
            self.tokens[i] = f"<special {i}>".encode()

    def __call__(self, text: bytes) -> list[int]:
        """Encode a text as bytes."""
        n = len(self.tokens) - _N_BYTES
        return [n + byte for byte in text]


def regex_grammar(pattern: str) -> str:
    """Return the grammar of a regular expression, in the syntax of Rust's crate regex.

    Raises:
        RequestError: llguidance is not installed.
    """
    return str(_library("regex").LLMatcher.grammar_from_regex(pattern))


def schema_grammar(schema: JsonMapping) -> str:
    """Return the grammar of a JSON schema; values are written with at most one space between their parts.

    Any white space would be valid JSON, and a weak model may write nothing else.

    Raises:
        RequestError: llguidance is not installed, or the schema has values that JSON does not have.
    """
    matcher = _library("json_schema").LLMatcher
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"json_schema: not JSON: {error}") from None
    return str(matcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": " ?"}))


def _library(name: str) -> Any:
    try:
        import llguidance
    except ImportError:
        raise RequestError(
            f"{name}: requires the library llguidance; install it: pip install 'heedful[constraints]'"
        ) from None
    return llguidance
