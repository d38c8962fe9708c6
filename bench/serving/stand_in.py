"""Other engines behind heedful's front, to see what front and engine each cost.

    python stand_in.py front KIND serve RUN…     ``heedful serve`` with engines of this kind
    python stand_in.py engine KIND DESCRIPTOR    such an engine; started by the front

- ``no-op`` answers every input at once with the same answer: what is left is the front;
- ``ctranslate2:TYPE`` translates with CTranslate2, a model of the same shape with weights of this type
  (``int8``, ``float32`` …), in one thread. What waits is one batch, as in heedful's engine.

Both load the run, for its description.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

ANSWER = {"version": 2, "input": {}, "output": "", "score": 0.0}


def front(kind: str, arguments: Sequence[str]) -> None:
    """Run the command with engines of another kind."""
    from heedful.cli.main import main
    from heedful.serve import engines

    def popen(command: Sequence[str], **settings: Any) -> Any:
        return subprocess.Popen([sys.executable, __file__, "engine", kind, command[-2]], **settings)

    engines.subprocess = SimpleNamespace(  # type: ignore[attr-defined]
        Popen=popen, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
    )
    sys.argv = ["heedful", *arguments]
    main()


def engine(kind: str, descriptor: int) -> None:
    """Answer requests until the front ends."""
    import socket

    from heedful.serve.answering import Answering
    from heedful.serve.engine import Engine

    class NoOp(Answering):
        def joins(self, verb: str, body: Any) -> bool:
            return True

        def answers(self, verb: str, bodies: Sequence[Any]) -> list[list[dict[str, Any]]]:
            return [[ANSWER] * len(body.inputs) for body in bodies]

    class CTranslate2(NoOp):
        def prepare(self) -> None:
            from pathlib import Path

            sys.path.insert(0, str(Path(__file__).parents[1]))
            import ctranslate2
            import torch

            from contenders.decoding import _convert
            from contenders.pairs import marian
            from harness.flops import Shape

            # Its shape is that of the run.
            own, size = self.run.recipe.model, self.run.processor.sizes[0]
            layer = own.layer
            shape = Shape(own.n_layers, own.d_model, layer.channels.d_ff, layer.mixer.n_heads, size, 0, 0, 0)
            torch.manual_seed(0)
            with tempfile.TemporaryDirectory() as folder:
                _convert(marian(shape, dropout=0.0, positions=512).eval(), folder)
                self.translator = ctranslate2.Translator(
                    folder, compute_type=kind.partition(":")[2], inter_threads=1, intra_threads=1
                )

        def answers(self, verb: str, bodies: Sequence[Any]) -> list[list[dict[str, Any]]]:
            texts = [text for body in bodies for text in body.inputs]
            settings = bodies[0].options["decoding"]
            length = settings["max_length"]["extra"]
            results = self.translator.translate_batch(
                [[*text.split(), "</s>"] for text in texts],
                beam_size=settings.get("beam", 1),
                min_decoding_length=length,
                max_decoding_length=length,
            )
            assert all(len(result.hypotheses[0]) == length for result in results)
            answers = iter({**ANSWER, "output": " ".join(each.hypotheses[0])} for each in results)
            return [[next(answers) for _ in body.inputs] for body in bodies]

    class StandIn(Engine):
        def _load(self, start: Any) -> Answering:
            loaded = super()._load(start)
            own = (NoOp if kind == "no-op" else CTranslate2)(loaded.run, loaded.precision, loaded.on_step)
            if isinstance(own, CTranslate2):
                own.prepare()
            return own

    with socket.socket(fileno=descriptor) as connection:
        StandIn(connection).serve()


if __name__ == "__main__":
    role, kind, *rest = sys.argv[1:]
    if role == "front":
        front(kind, rest)
    else:
        engine(kind, int(rest[0]))
