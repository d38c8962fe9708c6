"""Tagging: a tag for every word, predicted at the word's first token (Devlin et al. 2019, section 5.3).

A language model predicts it at the word's last token, where it has read the whole word and nothing after it.

words, tags -> ids of the words, a mark on each first one -> stretches -> `Batch.tagged` -> model -> loss
words -> ids -> stretches -> hidden states of first tokens -> probabilities of tags -> well-formed tags
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from heedful.artifacts.run_folder import TRANSITIONS, RunFolder
from heedful.data.annotated import SentenceRow
from heedful.data.batch import Batch
from heedful.data.conll_lines import COMMENT
from heedful.data.findings import counted
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.errors import DataError, RequestError, quoted
from heedful.identifiers import in_order
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.models.language_model import LanguageModelConfig
from heedful.objectives.classification import TAG
from heedful.objectives.registry import TAG as TAG_LOSSES
from heedful.objectives.registry import Losses
from heedful.recipes import schema
from heedful.tasks.base import Log, PreparedData, RowReader
from heedful.tasks.calibration import CalibrationConfig, Classes, Tuned
from heedful.tasks.class_weights import with_class_weights
from heedful.tasks.classification import LabelProcessor
from heedful.tasks.entities import entities_of
from heedful.tasks.evaluation import Batches, PredictedRows
from heedful.tasks.inputs.labels import (
    FEWEST_LABELS,
    UnknownLabels,
    check_new,
    first_labels,
    index_of_label,
    label_index,
)
from heedful.tasks.inputs.texts import (
    N_SPECIALS,
    group_by_length,
    join_notes,
    unknown_note,
    unknown_notes,
)
from heedful.tasks.inputs.words import (
    TAG_AT_FIRST_TOKEN,
    TAG_AT_LAST_TOKEN,
    TAGS,
    WORDS,
    WordLimit,
    WordTemplate,
    split,
    split_text,
    stretches,
    with_content,
    words_and_tags,
)
from heedful.tasks.metrics.calibration import calibration_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.spans import (
    SCHEMES,
    Scheme,
    SchemeName,
    Span,
    nearest_scheme,
    other_scheme,
    scheme_of,
)
from heedful.tasks.metrics.tagging import tagging_scores
from heedful.tasks.model_input import (
    INPUT,
    AnswerOptions,
    ModelInput,
    PredictionTargets,
    chunked_logits,
    ids_in,
    refuse_empty,
    text_in,
    words_axis,
)
from heedful.tasks.prediction import (
    BATCH_TOKENS,
    BELOW_THRESHOLD,
    DEFAULT_OPTIONS,
    EMPTY,
    HELD_BACK,
    Prediction,
    PredictOptions,
    TaskInput,
    as_texts,
)
from heedful.tasks.tag_sequences import (
    MOST_ILL_FORMED,
    Transitions,
    TransitionsRecord,
    read_transitions,
    tag_sentences,
)
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.tasks.text_task import AnyReader, TextRecipe, TextTask, WholeDataConfig, synthetic_texts
from heedful.text.tokenizer import EncodedTexts, Tokenizer
from heedful.text.words import word_ids, word_ids_of_all
from heedful.typing import JsonMapping, JsonObject

# Rows whose words are encoded together.
CHUNK = 1000

COMMENTS_REMEDY = (
    "if such lines are comments, train with data.train.comments=always (and data.valid.comments=always, if "
    "there is a file of validation data); otherwise correct their tags"
)
"""What to do about unknown tags of lines that begin with ``#``."""

SPAN_METRICS = frozenset({"span-f1", "span-precision", "span-recall"})
"""Metrics of tags that encode spans."""

# Recipes ------------------------------------------------------------------------------------------------


class TaggingConfig(CalibrationConfig):
    """A tag for every word; the data have the columns ``words`` and ``tags``: lines with blanks, or lists.

    Args:
        transitions: ``well-formed``: of tags that encode spans, the answer is the most probable sequence in
            which they fit together, if those of the training data do; ``any``: the most probable tag of each
            word by itself.
    """

    kind: Literal["tagging"] = "tagging"
    transitions: Literal["well-formed", "any"] = "well-formed"


class ObjectiveConfig(schema.ObjectiveConfig):
    """The loss on the tags of words.

    Args:
        label_smoothing: of cross-entropy.
        class_weights: weights of the tags in the loss: ``balanced``, or a map of tags to weights, 1 for
            others; null: none.
    """

    losses: ClassVar[Losses] = TAG_LOSSES

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    class_weights: schema.ClassWeights = None


class EvaluationConfig(schema.EvaluationConfig):
    """How ``evaluate`` scores tags.

    Args:
        spans: the scheme in which tags encode spans, of which precision, recall and F1 are reported: ``bio``
            (also IO and IOB1), ``bioes``, ``bilou`` or ``bmes``, where other tags are outside of spans;
            ``auto``: that of the training tags, if all are ``O`` or fit one scheme; ``none``: no spans. A
            scheme is refused if the training tags are in another.
    """

    spans: Literal["auto", "none"] | SchemeName = "auto"


class TaggingRecipe(TextRecipe):
    """A whole recipe; a language model predicts the tag of a word before it reads what follows."""

    task: TaggingConfig
    data: WholeDataConfig
    model: AnyReader
    objective: ObjectiveConfig = ObjectiveConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})
    scored_metrics: ClassVar[frozenset[str]] = frozenset({"macro-f1", "micro-f1"}) | SPAN_METRICS

    def metric_names(self) -> set[str]:
        """What validation measures, over words."""
        return {"loss", "accuracy"}

    @property
    def word_template(self) -> WordTemplate:
        """The special tokens around words, and the token at which a word's tag is predicted."""
        return TAG_AT_LAST_TOKEN if isinstance(self.model, LanguageModelConfig) else TAG_AT_FIRST_TOKEN


# Data and predictions -----------------------------------------------------------------------------------


class TagBatches:
    """Batches of words with tags; a sample is a row, or a stretch of a row that is too long for the model.

    Args:
        store: ids of words, and marks at the first id of each word.
        longest: the most tokens of a sequence.
        template: how the words are presented to the model.
    """

    def __init__(self, store: TokenStore, longest: int, template: WordTemplate) -> None:
        self.store, self.template = store, template
        limit, lengths = longest - N_SPECIALS, store.lengths(WORDS).tolist()
        parts = [(row, *bounds) for row, n in enumerate(lengths) for bounds in self._parts(row, n, limit)]
        self.parts = np.array(parts, dtype=np.int64).reshape(-1, 3)
        self.lengths: Lengths = self.parts[:, 2] - self.parts[:, 1] + N_SPECIALS

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of these stretches."""
        parts = self.parts[list(samples)]
        rows = self.store.gather(parts[:, 0].tolist())
        slices = [slice(first, last) for _, first, last in parts.tolist()]
        texts, marks = (
            [ids[part] for ids, part in zip(rows[column], slices, strict=True)] for column in (WORDS, TAGS)
        )
        return self.template(texts, marks, samples)

    def _parts(self, row: int, n_tokens: int, limit: int) -> Iterator[tuple[int, int]]:
        """Yield the first token of each stretch of a row, and the first one after it."""
        if n_tokens <= limit:
            yield 0, n_tokens
            return
        bounds = np.append(np.flatnonzero(self.store[row][TAGS]), n_tokens)
        for first, last in stretches(np.diff(bounds).tolist(), limit):
            yield int(bounds[first]), int(bounds[last])


@dataclass(frozen=True, repr=False)
class Tagged(Prediction):
    """A prediction of tags: ``text`` has them with blanks between, ``score`` is the sum of ``log_probs``.

    Args:
        words: the words of the input.
        tags: one for each word, as ``log_probs``.
        line: the input; of a list of words, they with blanks between.
        spans: those that the tags encode.
    """

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    line: str = field(default="", repr=False)
    spans: list[Span] = field(default_factory=list, repr=False)

    @property
    def entities(self) -> list[JsonObject]:
        """The spans as parts of the text (`heedful.tasks.entities`)."""
        return entities_of(self.line, self.words, self.spans)

    @property
    def output(self) -> object:
        """The tags."""
        return self.tags

    def above(self, threshold: float, otherwise: str | None) -> Self:
        """Return the prediction with a text in place of each tag that is less probable than a threshold."""
        held = [math.exp(min(log_prob, 0.0)) < threshold for log_prob in self.log_probs]
        if not any(held):
            return self
        if otherwise is None:
            raise RequestError(
                "threshold: tags also need otherwise, the text in place of those below it, for example _"
            )
        tags = [otherwise if is_held else tag for tag, is_held in zip(self.tags, held, strict=True)]
        note = f"{HELD_BACK} {threshold:g}: {sum(held)} of {len(tags)} tags"
        spans = [span for span in self.spans if not any(held[span[1] : span[2]])]
        return replace(
            self,
            text=" ".join(tags),
            tags=tags,
            spans=spans,
            held_back=BELOW_THRESHOLD,
            suggestion=self.tags,
            notes=(*self.notes, note),
        )

    def details(self) -> JsonObject:
        """Return the words and the entities."""
        return {"words": self.words, "entities": self.entities}


class _Stretch(NamedTuple):
    """Some words of an input: its index, that of the first word, their ids, and how many tokens were cut."""

    input_index: int
    first: int
    ids: list[list[int]]
    cut: int

    @property
    def flat(self) -> list[int]:
        return list(chain(*self.ids))

    @property
    def marks(self) -> list[int]:
        return [int(i == 0) for ids in self.ids for i in range(len(ids))]


# The task -----------------------------------------------------------------------------------------------


class Tagging(TextTask):
    """Predict a tag for every word."""

    Recipe = TaggingRecipe
    Processor = LabelProcessor
    info = TaskInfo(
        unit="words",
        evaluation_verb="tagging",
        memory_advice="lower model.max_length (language models: model.context)",
        options=("threshold", "words"),
    )
    target_column = TAGS
    validation_terms: ClassVar = {"loss": TAG, "accuracy": "correct"}
    calibrated_head: ClassVar[str] = TAG

    recipe: TaggingRecipe
    processor: LabelProcessor
    transitions: Transitions | None = None

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The words."""
        return (WORDS,)

    @property
    def columns(self) -> Columns:
        """Words and tags."""
        return Columns((WORDS, TAGS), (WORDS,), list_valued=(WORDS, TAGS), input_lists=True)

    def processor_with(self, tokenizer: Tokenizer, read_rows: RowReader) -> LabelProcessor:
        """Collect the tags, sorted.

        Raises:
            DataError: if the numbers of words and tags of a row differ, or there are fewer than two tags, or
                too many or too long ones.
        """
        known, first = set[str](), None
        for row in read_rows():
            first = first or row.location
            for tag in words_and_tags(row)[1]:
                if tag not in known:
                    check_new(tag, row.location, len(known))
                    known.add(tag)
        tags = in_order(known)
        if len(tags) < FEWEST_LABELS:
            where = f"{first}: " if first else ""
            raise DataError(
                f"{where}at least two different tags are needed, got {len(tags)}: {tags}; if another field "
                "has the tags, name it: --column tags=N (in a recipe, columns)"
            )
        return LabelProcessor(tokenizer, tuple(tags))

    @property
    def known_tags(self) -> frozenset[str]:
        """The tags; none before the processor is made."""
        return frozenset(self.processor.labels if hasattr(self, "processor") else ())

    def unseen_labels(self, row: LocatedRow[Row]) -> Sequence[str]:
        """Return the tags of the row that do not occur in the training rows."""
        known = index_of_label(self.processor.labels)
        return [tag for tag in words_and_tags(row)[1] if tag not in known]

    def encode_rows(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of the words, and for each id 0, or the number of its tag plus 1 if a word begins.

        Raises:
            DataError: the numbers of words and tags of a row differ, or a tag is unknown.
        """
        rows, known = iter(rows), index_of_label(self.processor.labels)
        while block := list(islice(rows, CHUNK)):
            pairs = [words_and_tags(row) for row in block]
            ids = word_ids_of_all(self.processor.text, [words for words, _ in pairs])
            for row, (texts, tags), words in zip(block, pairs, ids, strict=True):
                tag_ids = [
                    (known[tag] if tag in known else self._refuse_tag(row, text, tag)) + 1
                    for text, tag in zip(texts, tags, strict=True)
                ]
                marks = (
                    [tag_id, *[0] * (len(word) - 1)] for tag_id, word in zip(tag_ids, words, strict=True)
                )
                yield LocatedRow({WORDS: list(chain(*words)), TAGS: list(chain(*marks))}, row.location)

    def _refuse_tag(self, row: LocatedRow[Row], word: str, tag: str) -> int:
        """Raise `DataError` for a tag that is unknown, with the remedy."""
        labels = self.processor.labels
        if _may_be_comment(row, word):
            return label_index(tag, labels, row.location, "tag", COMMENTS_REMEDY)
        own = self.scheme
        if own is not None and "-" in tag and not own.encodes(tag):
            for other in SCHEMES.values():
                if other.encodes(tag):
                    raise DataError(
                        f"{row.location}: the tag {quoted(tag)} is in the scheme {other.name}, but spans are "
                        f"scored in {own.name}; {self._scheme_remedy(other)}"
                    )
        return label_index(tag, labels, row.location, "tag")

    def limits(self) -> Sequence[WordLimit]:
        """Return the limit of words; long rows are read in stretches."""
        recipe = self.recipe
        return [WordLimit(recipe.max_text_tokens, f"{recipe.max_length_key}={recipe.model.longest}")]

    @property
    def n_target_ids(self) -> int:
        """The tags, and no tag."""
        return len(self.processor.labels) + 1

    def expected_sizes(self, vocab_sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes with the smallest number of tags; the data determine it."""
        return (*vocab_sizes, FEWEST_LABELS)

    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """Return a layer that computes the logits of the tags."""
        return {TAG: class_head(self.recipe.model.d_model, sizes[-1], self.recipe.model.dropout)}

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Fill in word vectors, and log the tags."""
        super().initialise(model, log)
        spans = f" (spans in the scheme {self.scheme.name})" if self.scheme is not None else ""
        log(f"{len(self.processor.labels)} tags{spans}: {first_labels(self.processor.labels)}")

    @property
    def scheme(self) -> Scheme | None:
        """The scheme in which the tags encode spans; None: they do not."""
        setting = self.recipe.evaluation.spans
        if setting == "none":
            return None
        return scheme_of(self.processor.labels) if setting == "auto" else SCHEMES[setting]

    def check_data(self, data: PreparedData) -> None:
        """Check that a scheme of the recipe is that of the tags."""
        scheme, tags = self.scheme, self.processor.labels
        if scheme is not None and not any(map(scheme.encodes, tags)):
            raise RequestError(
                f"evaluation.spans={scheme.name}: no tag encodes a span in this scheme; the tags are "
                f"{first_labels(tags)}; remove this setting"
            )
        if scheme is None or self.recipe.evaluation.spans == "auto":
            return
        if other := other_scheme(tag_sentences(data.train, tags), scheme):
            n_rows = counted(other.n_unfitting, other.n_sentences)
            raise RequestError(
                f"evaluation.spans={scheme.name}: the training tags are in the scheme {other.scheme.name}: "
                f"{n_rows} rows with spans do not fit {scheme.name}, such as {other.example}; set "
                f"evaluation.spans={other.scheme.name}, or remove this setting"
            )

    def unavailable_metrics(self, data: PreparedData) -> Mapping[str, str]:
        """Return the metrics of spans, if the tags encode none."""
        if self.scheme is not None:
            return {}
        if self.recipe.evaluation.spans == "none":
            return dict.fromkeys(SPAN_METRICS, "evaluation.spans=none leaves out the scores of spans")
        tags = first_labels(self.processor.labels)
        reason = self._almost_spans() or f"the tags encode no spans in a scheme such as BIO; they are {tags}"
        return dict.fromkeys(SPAN_METRICS, reason)

    def split_labels(self, text: str) -> list[str]:
        """Return the tags in a text."""
        return split(text)

    def data_notes(self, data: PreparedData) -> Sequence[str]:
        """Note that spans are not scored, if some of the tags encode spans, or are in two schemes."""
        note = self._almost_spans() if self.recipe.evaluation.spans == "auto" else ""
        notes = [f"no scores of spans: {note}"] if note else []
        if other := self._scheme_note(tag_sentences(data.valid, self.processor.labels)):
            notes.append(f"data.valid: {other}")
        return notes

    def _scheme_note(self, sentences: Iterable[Sequence[str]]) -> str:
        """Return that tags are in another scheme than those of the run, and what to do; empty if not."""
        other = None if self.scheme is None else other_scheme(sentences, self.scheme)
        if other is None or self.scheme is None:
            return ""
        own, name = self.scheme.name, other.scheme.name
        return (
            f"the tags are in the scheme {name}, such as {other.example}, but spans are scored in {own}; "
            f"{self._scheme_remedy(other.scheme)}"
        )

    def _scheme_remedy(self, other: Scheme) -> str:
        """Return what to do about tags in another scheme."""
        assert self.scheme is not None
        if scheme_of(self.processor.labels) == other:
            return f"set evaluation.spans={other.name}"
        return f"convert them to {self.scheme.name}, or train on tags in {other.name}"

    def _almost_spans(self) -> str:
        """Return why tags do not encode spans of which some look as if they did; empty if none does."""
        nearest = nearest_scheme(self.processor.labels) if self.scheme is None else None
        if nearest is None:
            return ""
        scheme, tag, other = nearest
        return (
            f"the tag {tag} encodes a span in the scheme {scheme.name}, but {other} does not; set "
            f"evaluation.spans={scheme.name} to count such tags as outside of spans"
        )

    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return batches of rows, or stretches of long ones; training tags may have weights."""
        batches = TagBatches(store, self.recipe.model.longest, self.recipe.word_template)
        if not training:
            return batches
        marks = store.stream(TAGS)  # 0, or one more than the number of the tag
        setting, labels = self.recipe.objective.class_weights, self.processor.labels
        return with_class_weights(batches, setting, labels, marks[marks > 0] - 1)

    def classes_of(self, model: Model, batch: Batch) -> Classes:
        """Return the logits of the tags of each word, and its tag."""
        return model.heads[TAG](batch.picked(model(batch.inputs))), batch.targets

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return rows that differ by a token or two in length; two words of three are one token."""
        batch = synthetic_texts(sizes[0], n, length, 1, self.recipe.template)
        lengths = batch.inputs.layout.lengths
        return batch.tagged([[1 + i % sizes[-1] if i % 4 else 0 for i in range(k - 2)] for k in lengths])

    def tune(self, model: Model, data: PreparedData, log: Log) -> Tuned:
        """Return the temperature, and the scheme in which predicted tags are well-formed, if there is one."""
        tuned = super().tune(model, data, log)
        if self.scheme is None or self.recipe.task.transitions == "any":
            return tuned
        sentences = filter(None, tag_sentences(data.train, self.processor.labels))
        well_formed = [*map(self.scheme.is_well_formed, sentences)]
        n_bad, n_rows = well_formed.count(False), len(well_formed)
        if n_bad > MOST_ILL_FORMED * n_rows:
            log(
                f"the most probable tag of each word: tags of {n_bad:,} of {n_rows:,} training rows are not "
                f"well-formed in the scheme {self.scheme.name}"
            )
            return tuned
        record = TransitionsRecord(scheme=self.scheme.name)
        return replace(tuned, records={**tuned.records, TRANSITIONS: record.model_dump()})

    def load_tuned(self, folder: RunFolder) -> None:
        """Read the scheme of well-formed tags too."""
        super().load_tuned(folder)
        self.transitions = read_transitions(folder.transitions, self.processor.labels)

    @property
    def max_word_tokens(self) -> int:
        """The most tokens of words that the model reads at once."""
        return int(self.recipe.model.longest) - N_SPECIALS

    @torch.inference_mode()
    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Tag each input: a line of words with blanks between, a raw text, or a list of words.

        Inputs that are too long for the model are read in stretches of whole words, with a note.
        """
        split_line = split_text if options.words == "raw" else split
        words = [_words_in(task_input, split_line) for task_input in inputs]
        pieces = [piece for i, row_words in enumerate(words) for piece in self._stretches(i, row_words)]
        parts: defaultdict[int, dict[int, NDArray[np.float32]]] = defaultdict(dict)
        tags: list[list[tuple[int, float]]] = [[] for _ in words]
        remaining = Counter(piece.input_index for piece in pieces)
        options.progress(len(words) - len(remaining))
        lengths = {i: len(piece.flat) + N_SPECIALS for i, piece in enumerate(pieces)}
        for group in group_by_length(lengths, BATCH_TOKENS):
            group_pieces = [pieces[i] for i in group]
            for piece, values in zip(group_pieces, self._log_probs(model, group_pieces), strict=True):
                i = piece.input_index
                parts[i][piece.first] = values
                remaining[i] -= 1
                if is_done := remaining[i] == 0:
                    in_order = sorted(parts.pop(i).items())
                    tags[i] = self._best(np.concatenate([part for _, part in in_order]))
                options.progress(int(is_done))
        pieces_of_input: list[list[_Stretch]] = [[] for _ in words]
        for piece in pieces:
            pieces_of_input[piece.input_index].append(piece)
        return [self._tagged(*parts) for parts in zip(inputs, words, tags, pieces_of_input, strict=True)]

    def _stretches(self, input_index: int, words: Sequence[str]) -> Iterator[_Stretch]:
        all_ids = word_ids(self.processor.text, words)
        ids = [word[: self.max_word_tokens] for word in all_ids]
        for first, last in stretches([len(word) for word in ids], self.max_word_tokens):
            n_truncated = sum(map(len, all_ids[first:last])) - sum(map(len, ids[first:last]))
            yield _Stretch(input_index, first, ids[first:last], n_truncated)

    def _log_probs(self, model: Model, pieces: Sequence[_Stretch]) -> Iterator[NDArray[np.float32]]:
        """Yield for each piece the log-probabilities of all tags of each of its words, ``[n, C]``."""
        batch = self.recipe.word_template([piece.flat for piece in pieces], [piece.marks for piece in pieces])
        batch = batch.to(next(model.parameters()).device)
        logits = model.heads[TAG](batch.picked(model(batch.inputs))).float()
        sizes = [len(piece.ids) for piece in pieces]
        return iter(np.split(logits.log_softmax(-1).cpu().numpy(), np.cumsum(sizes[:-1])))

    def _best(self, log_probs: NDArray[np.float32]) -> list[tuple[int, float]]:
        """Return the number and the log-probability of the tag of each word, given those of all tags."""
        indices = log_probs.argmax(axis=1) if self.transitions is None else self.transitions.best(log_probs)
        chosen = np.take_along_axis(log_probs, indices[:, None], axis=1)[:, 0]
        return list(zip(indices.tolist(), chosen.tolist(), strict=True))

    def _tagged(
        self,
        task_input: TaskInput,
        words: list[str],
        scored_tags: Sequence[tuple[int, float]],
        pieces: Sequence[_Stretch],
    ) -> Tagged:
        tags = [self.processor.labels[index] for index, _ in scored_tags]
        log_probs = [log_prob for _, log_prob in scored_tags]
        n_truncated = sum(piece.cut for piece in pieces)
        notes = join_notes(
            f"words longer than {self.max_word_tokens} tokens are cut, by {n_truncated} in all"
            if n_truncated
            else None,
            f"read in {len(pieces)} parts" if len(pieces) > 1 else None,
            unknown_note(self.processor.text, words, [list(chain(*(piece.flat for piece in pieces)))]),
        )
        return Tagged(
            " ".join(tags),
            sum(log_probs),
            log_probs=log_probs,
            notes=notes if words else (EMPTY,),
            cut=n_truncated,
            words=words,
            tags=tags,
            line=task_input if isinstance(task_input, str) else " ".join(words),
            spans=self.scheme.spans(tags) if self.scheme else [],
        )

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare a list of words, or a line of words separated by spaces."""
        options.refuse_target(self.recipe.task.kind, "the answer is a tag for each word")
        processor, longest = self.processor, self.max_word_tokens
        words = [text_in(word, self.recipe.task.kind) for word in _words_in(task_input)]
        ids = [word[:longest] for word in word_ids(processor.text, words)]
        refuse_empty(*ids)
        bounds = stretches([len(word) for word in ids], longest)
        if len(bounds) > 1:
            raise RequestError(
                f"the input must fit into one part of {longest} tokens, got {len(bounds)} parts; shorten it, "
                f"for example to the first {bounds[0][1]} words"
            )
        assert isinstance(answer, Tagged)
        stretch = _Stretch(0, 0, ids, 0)
        batch = self.recipe.word_template([stretch.flat], [stretch.marks])
        assert batch.rows is not None
        targets = PredictionTargets(
            INPUT,
            tuple(batch.rows.tolist()),
            torch.tensor([processor.labels.index(tag) for tag in answer.tags]),
            chunked_logits(model.heads[TAG]),
            lambda i, number: processor.labels[number],
        )
        axis = words_axis(processor.text, ids_in(batch), words, ids)
        return ModelInput(batch, {INPUT: axis}, answer, targets)

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], JsonObject]:
        """Return all rows, if any has a word."""
        selected = list(islice(rows, limit))
        return (selected if any(words_and_tags(row)[0] for row in selected) else []), {}

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Check that not all tags are unknown."""
        self._unknown_tags(rows)

    def metrics(self, model: Model, predicted: PredictedRows[Tagged]) -> tuple[list[Score], list[str]]:
        """Return accuracy and F1 of words, of spans if the tags encode them, and scores of probabilities."""
        unknown = self._unknown_tags(predicted.rows)
        target_tags = [words_and_tags(row)[1] for row in predicted.rows]
        tags = [prediction.tags for prediction in predicted.predictions]
        scores = tagging_scores(tags, target_tags, self.processor.labels, unknown.labels, self.scheme)
        scores += calibration_scores(
            np.exp([value for prediction in predicted.predictions for value in prediction.log_probs]),
            [a == b for pair in zip(tags, target_tags, strict=True) for a, b in zip(*pair, strict=True)],
            unit="words",
            temperature=self.temperature,
            is_independent=False,  # words of one sentence
        )
        texts = [" ".join(prediction.words) for prediction in predicted.predictions]
        notes = unknown_notes("", EncodedTexts.encode(self.processor.text, texts))
        of_scheme = [note] if (note := self._scheme_note(target_tags)) else []
        of_tags = [*unknown.notes("tag", has_hints=not of_scheme), *self._notes_on_comments(predicted.rows)]
        of_tags += of_scheme
        return unknown.counted_in(scores), [*of_tags, *notes]

    def compared(self, predicted: PredictedRows[Tagged]) -> Iterator[JsonMapping]:
        """Yield the right tags of each row, and how many were predicted."""
        for row, prediction in predicted:
            target = words_and_tags(row)[1]
            n_right = sum(a == b for a, b in zip(target, prediction.tags, strict=True))
            scores = {"correct_words": n_right, "words": len(target)}
            yield {"target": target, "correct": n_right == len(target), "scores": scores}

    def _unknown_tags(self, rows: Sequence[LocatedRow[Row]]) -> UnknownLabels:
        located_tags = ((tag, row.location) for row in rows for tag in words_and_tags(row)[1])

        def remedy() -> str:
            return COMMENTS_REMEDY if self._n_like_comments(rows) else self._scheme_note(_tags_of(rows))

        return UnknownLabels.among(located_tags, self.processor.labels, "tag", remedy)

    def _n_like_comments(self, rows: Sequence[LocatedRow[Row]]) -> int:
        """Return the number of words with unknown tags whose lines begin with ``#``."""
        known = index_of_label(self.processor.labels)
        return sum(
            tag not in known and _may_be_comment(row, word)
            for row in rows
            for word, tag in zip(*words_and_tags(row), strict=True)
        )

    def _notes_on_comments(self, rows: Sequence[LocatedRow[Row]]) -> Iterator[str]:
        """Yield a note if lines with unknown tags begin with ``#``."""
        if n := self._n_like_comments(rows):
            yield f"lines with unknown tags that begin with #: {n:,}; {COMMENTS_REMEDY}"


def _tags_of(rows: Iterable[LocatedRow[Row]]) -> Iterator[list[str]]:
    return (words_and_tags(row)[1] for row in rows)


def _may_be_comment(row: LocatedRow[Row], word: str) -> bool:
    """Whether a word of a CoNLL file may be a comment."""
    return isinstance(row.row, SentenceRow) and word.startswith(COMMENT)


def _words_in(task_input: TaskInput, split_line: Callable[[str], list[str]] = split) -> list[str]:
    """Return the words of an input: a line, which is split, or a list; none if all are white space."""
    return with_content(split_line(task_input) if isinstance(task_input, str) else as_texts(task_input))
