"""What an engine does with a request: the verbs of a run, with inputs and options in JSON.

Inputs are read by the reader of ``heedful predict --jsonl`` (`heedful.runs.inputs`), and answers are the
objects that the command prints. Nothing opens a path that a client names: a prefix and a JSON schema are
values, and images are bytes.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from heedful.data.lines import Location, Record, ValueList
from heedful.decoding.config import SampleSettings
from heedful.decoding.protocol import OnStep
from heedful.errors import DataError, RequestError, nearest, type_name
from heedful.explain.alignment.predictions import aligning
from heedful.explain.json_format import json_pieces
from heedful.explain.views import OVER_INPUTS
from heedful.runs.arguments import at_least_one, decoding_of, streaming, text_scoring, with_beam
from heedful.runs.inputs import answered, read_inputs
from heedful.runs.loading import TaskOptions
from heedful.runs.output_constraints import ConstraintOptions, constraints_of
from heedful.serve.completions import completion, writer_of
from heedful.tasks.abstaining import Abstaining
from heedful.tasks.embedding import Embedding
from heedful.tasks.generation.output_constraints import NO_CONSTRAINTS, OutputConstraints, arguments_of
from heedful.tasks.prediction import Prediction, TaskInput
from heedful.tasks.task_info import Columns
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.api.run import Run

SHARED_OPTIONS = ("beam", "n_best", "decoding", "alignment", "attention", "threshold", "otherwise")
TASK_OPTIONS = tuple(TaskOptions.__annotations__)
CONSTRAINTS = tuple(ConstraintOptions.__annotations__)
OBJECTS = ("json_schema", "terminology")
"""Options that may be the path of a file elsewhere."""

EMBED_OPTIONS = ("pooling", "layer")
EXPLAIN_OPTIONS = ("views", "layers", "heads", "kinds", "target", "alternative", "decoding")


@dataclass(frozen=True, eq=False)
class Body:
    """The body of a request.

    Args:
        inputs: texts, lists of texts (a pair, or words), or objects with the columns of an input.
        options: the other entries.
    """

    inputs: Sequence[Any]
    options: JsonObject

    @classmethod
    def parsed(cls, payload: bytes) -> "Body":
        """Return a body as the front accepted it.

        Raises:
            RequestError: it has no list of inputs.
        """
        found = json.loads(payload)
        inputs = found.pop("inputs", None) if isinstance(found, dict) else None
        if not isinstance(inputs, list):
            raise RequestError("inputs: expected a list")
        return cls(inputs, {name: value for name, value in found.items() if value is not None})


@dataclass(frozen=True, eq=False)
class Prepared:
    """A request that is read and checked, before anything is predicted.

    Args:
        predictor: what predicts.
        inputs: of the predictor.
        constraints: of each output; empty: none.
        to_json: maps the predictions, in order, to the objects of the answer.
    """

    predictor: Any
    inputs: Sequence[TaskInput]
    constraints: Sequence[OutputConstraints]
    to_json: Callable[[Sequence[Prediction]], list[JsonObject]]

    def answers(self, **arguments: Any) -> list[JsonObject]:
        """Return the objects of the answer; arguments are those of the predictor."""
        constraints = arguments_of(self.constraints)
        return self.to_json(self.predictor.predict(self.inputs, **constraints, **arguments))


class NoTokens:
    """Predicts the empty continuation of prompts, of which only the log-probabilities are wanted."""

    def predict(self, inputs: Sequence[TaskInput]) -> list[Prediction]:
        """Return the predictions."""
        return [Prediction("", finished=False) for _ in inputs]


class Answering:
    """Answers requests with one run.

    Args:
        run: the run.
        precision: of the weights during decoding.
        on_step: called after each step of a decoding (`heedful.decoding.protocol.OnStep`), and after each
            batch of verbs that decode nothing.
    """

    def __init__(self, run: "Run", precision: str, on_step: OnStep) -> None:
        self.run, self.precision, self.on_step = run, precision, on_step

    def _progress(self, n: int) -> None:
        """Note that ``n`` inputs are done."""
        self.on_step()

    def joins(self, verb: str, body: Body) -> bool:
        """Return whether requests with equal options can be answered in one batch, with the same answers.

        What is sampled depends on the number of an input, which is its own in each request.

        Raises:
            RequestError: the options are invalid.
        """
        if verb not in ("predict", "complete"):
            return verb in ("score", "embed")
        if {*body.options} & {*CONSTRAINTS}:
            return False
        return not isinstance(self._decoding(body.options), SampleSettings)

    def _decoding(self, options: Mapping[str, Any]) -> Any:
        own = self.run.recipe.decoding
        given = decoding_of(options.get("decoding"), own)
        return given if own is None else with_beam(given, at_least_one("beam", options.get("beam")), None)

    # The verbs ---------------------------------------------------------------------------------------------

    def answers(self, verb: str, bodies: Sequence[Body]) -> list[list[JsonObject]]:
        """Return the answers to the inputs of requests with the same options.

        Args:
            verb: ``predict``, ``complete``, ``score`` or ``embed``.
            bodies: the requests.

        Raises:
            RequestError: an input or an option is invalid.
        """
        columns = self._columns(verb)
        read = [self._records(body, columns) for body in bodies]
        together, options = [record for records in read for record in records], bodies[0].options
        match verb:
            case "score":
                found = self._score(together, options)
            case "embed":
                found = self._embed(together, options)
            case _:
                found = self._prepared(verb, together, options).answers()
        answers = iter(found)
        return [[next(answers) for _ in records] for records in read]

    def stream(self, body: Body, on_text: Callable[[str], None]) -> JsonObject:
        """Return the answer to one input; ``on_text`` is called with each piece of it.

        Raises:
            RequestError: there are several inputs, or the decoding does not support streaming.
        """
        (answer,) = self.prepared("stream", body).answers(on_text=on_text)
        return answer

    def prepared(self, verb: str, body: Body) -> Prepared:
        """Return a request whose inputs and options are read and checked.

        Args:
            verb: ``predict``, ``complete`` or ``stream``.
            body: the request.

        Raises:
            RequestError: an input or an option is invalid.
        """
        return self._prepared(verb, self._records(body, self._columns(verb)), body.options)

    def _prepared(self, verb: str, records: Sequence[Record], options: JsonObject) -> Prepared:
        prepare = {"predict": self._prediction, "complete": self._completion, "stream": self._streamed}[verb]
        return prepare(records, options)

    def _streamed(self, records: Sequence[Record], options: JsonObject) -> Prepared:
        if len(records) != 1:
            raise RequestError(f"inputs: a stream answers one input, got {len(records)}")
        _check_names(options, {*SHARED_OPTIONS, *TASK_OPTIONS, *CONSTRAINTS} - {"threshold", "otherwise"})
        (record,) = records
        if record.error is not None:
            raise record.error
        return Prepared(
            streaming(self._predictor(options), self.run.recipe.task.kind),
            [self.run.task.columns.input_of(record.row)],
            self._constraints(records, options),
            lambda predictions: [prediction.to_dict(record.fields) for prediction in predictions],
        )

    def _prediction(self, records: Sequence[Record], options: JsonObject) -> Prepared:
        _check_names(options, {*SHARED_OPTIONS, *TASK_OPTIONS, *CONSTRAINTS})
        predictor = self._predictor(options)
        abstaining = Abstaining.of(
            self.run.task, predictor, options.get("threshold"), options.get("otherwise")
        )
        columns = self.run.task.columns
        empty = dict.fromkeys(columns.inputs, "")

        def to_json(predictions: Sequence[Prediction]) -> list[JsonObject]:
            pairs = list(zip(records, predictions, strict=True))
            answers = [
                Prediction("", error=str(record.error)) if record.error else abstaining.held_back(prediction)
                for record, prediction in pairs
            ]
            return [answer.to_dict(record.fields) for answer, (record, _) in zip(answers, pairs, strict=True)]

        inputs = [columns.input_of(empty if record.error else record.row) for record in records]
        return Prepared(predictor, inputs, self._constraints(records, options), to_json)

    def _completion(self, records: Sequence[Record], options: JsonObject) -> Prepared:
        """Prepare completions (`heedful.serve.completions`); of no new tokens, only what is echoed."""
        writer_of(self.run)
        _check_names(options, ("max_new_tokens", "decoding", "stop", "echo", "n_candidates"))
        echo, n_candidates = _flag(options, "echo"), options.get("n_candidates")
        prompts = [str(record.row[self.run.task.columns.inputs[0]]) for record in records]
        chosen = {name: value for name, value in options.items() if name not in ("echo", "n_candidates")}
        predictor = NoTokens() if options.get("max_new_tokens") == 0 else self._predictor(chosen)

        def to_json(predictions: Sequence[Prediction]) -> list[JsonObject]:
            return [
                completion(self.run, prompt, prediction, echo=echo, n_candidates=n_candidates)
                for prompt, prediction in zip(prompts, predictions, strict=True)
            ]

        return Prepared(predictor, prompts, [], to_json)

    def _score(self, records: Sequence[Record], options: JsonObject) -> list[JsonObject]:
        _check_names(options, ())
        score = partial(self.run.score, progress=self._progress)
        answers = answered([records], self._columns("score"), score, lambda e: Prediction("", error=e))
        return [answer.to_dict(record.fields) for record, answer in answers]

    def _embed(self, records: Sequence[Record], options: JsonObject) -> list[JsonObject]:
        _check_names(options, EMBED_OPTIONS)
        embed = partial(self.run.embeddings, **options, progress=self._progress)
        answers = answered([records], self._columns("embed"), embed, lambda e: Embedding(None, error=e))
        return [answer.to_dict(record.fields) for record, answer in answers]

    def explanation(self, body: Body, *, page: bool) -> str:
        """Return the explanation of the answer to one input: its JSON, or a page.

        Raises:
            RequestError: the input or an option is invalid.
        """
        _check_names(body.options, EXPLAIN_OPTIONS)
        if len(body.inputs) != 1:
            raise RequestError(f"inputs: expected one to explain, got {len(body.inputs)}")
        views = body.options.get("views") or ()
        for name in (name for name in OVER_INPUTS if name in views):
            raise RequestError(f"views: {name} compares several inputs, and a request has one")
        (record,) = self._records(body, self._columns("predict"))
        if record.error is not None:
            raise record.error
        explanation = self.run.explain(self.run.task.columns.input_of(record.row), **body.options)
        return explanation.page() if page else "".join(json_pieces(explanation))

    # Inputs and options ------------------------------------------------------------------------------------

    def _columns(self, verb: str) -> Columns:
        task = self.run.task
        if verb == "score":
            return text_scoring(task).scored
        return task.embedded_columns if verb == "embed" else task.columns

    def _records(self, body: Body, columns: Columns) -> list[Record]:
        """Return the inputs of a request as records of a file of JSON lines.

        Raises:
            RequestError: an input has the wrong type.
        """
        fields = [_fields(value, columns, f"inputs[{i}]") for i, value in enumerate(body.inputs)]
        if columns.images:
            return [_with_images(own, columns, f"inputs[{i}]") for i, own in enumerate(fields)]
        lines = (f"{json.dumps(own, allow_nan=False)}\n".encode() for own in fields)
        return [*read_inputs(self.run, columns, ValueList.of("inputs", lines), "jsonl")]

    def _predictor(self, options: JsonObject) -> Any:
        chosen = {name: options[name] for name in ("beam", "n_best", "decoding") if name in options}
        own = {name: options[name] for name in TASK_OPTIONS if name in options}
        predictor = self.run.predictor(
            precision=self.precision,
            attention=_flag(options, "attention"),
            on_step=self.on_step,
            progress=self._progress,
            **chosen,
            **own,
        )
        return self._aligning(predictor) if _flag(options, "alignment") else predictor

    def _aligning(self, predictor: Any) -> Any:
        """Return the predictor with word alignments.

        Raises:
            RequestError: no head aligns, or none is known and the data that select one are not here.
        """
        try:
            return aligning(self.run, predictor, progress=self._progress)
        except DataError:  # it has a path of this machine
            raise RequestError(
                "alignment: no head of this run is known to align, and the validation data that would select "
                "one cannot be read here; predicting with alignment where they are selects one, once"
            ) from None

    def _constraints(self, records: Sequence[Record], options: JsonObject) -> list[OutputConstraints]:
        """Return the constraints of each output: those of the request, and those of its input."""
        inputs = [record.row.get(self.run.task.columns.inputs[0], "") for record in records]
        shared: Any = {name: options[name] for name in CONSTRAINTS if name in options}
        wanted = constraints_of(self.run.task, inputs, shared) or [NO_CONSTRAINTS] * len(records)
        if not self.run.task.info.writes:
            return wanted
        return [
            each if record.error else each.joined(OutputConstraints.of(record.fields))
            for each, record in zip(wanted, records, strict=True)
        ]


def _check_names(options: Mapping[str, Any], supported: Any) -> None:
    for name in options:
        if name not in supported:
            if name in SampleSettings.model_fields and "decoding" in supported:
                raise RequestError(
                    f"{name}: unknown option; it is a setting of decoding, as in "
                    '{"decoding": {"kind": "sample", "temperature": 0.8}}'
                )
            raise RequestError(f"{name}: unknown option{nearest(name, sorted(supported))}")
    for name in OBJECTS:
        if name in options and not isinstance(options[name], dict):
            raise RequestError(f"{name}: expected an object, got {type_name(options[name])}")


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(f"{name}: expected true or false, got {value!r}")
    return value


def _fields(value: Any, columns: Columns, label: str) -> JsonObject:
    """Return an input as the object that a line of JSON has.

    Raises:
        RequestError: it is neither a text, a list nor an object.
    """
    names = (*columns.inputs, *columns.optional_inputs)
    if isinstance(value, dict):
        return value
    if (
        isinstance(value, list)
        and not columns.input_lists
        and len(columns.inputs) <= len(value) <= len(names)
    ):
        return dict(zip(names, value, strict=False))
    if len(columns.inputs) == 1 and isinstance(value, str | list):
        return {columns.inputs[0]: value}
    expected = f"an object with {', '.join(columns.inputs)}"
    raise RequestError(f"{label}: expected {expected}, got {type_name(value)}")


def _with_images(fields: JsonObject, columns: Columns, label: str) -> Record:
    """Return a record whose images are the bytes of a file, given in base64.

    Raises:
        RequestError: a column is missing, or not base64.
    """
    row: dict[str, Any] = {}
    for name in columns.inputs:
        if not isinstance(value := fields.get(name), str):
            raise RequestError(f"{label}: expected {name}, got {type_name(value)}")
        try:
            row[name] = base64.b64decode(value, validate=True) if name in columns.images else value
        except (binascii.Error, ValueError):
            raise RequestError(f"{label}: {name}: expected the bytes of an image in base64") from None
    own = {name: value for name, value in fields.items() if name not in columns.images}
    return Record(Location(label), own, row)
