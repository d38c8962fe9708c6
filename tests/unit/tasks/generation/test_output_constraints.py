import pytest

from heedful.decoding.config import GreedyConfig
from heedful.tasks.generation.output_constraints import ConstraintBuilder, OutputConstraints
from heedful.tasks.prediction import Prediction
from heedful.text.configuration import CharacterConfig, PreprocessingConfig
from heedful.text.training import train_tokenizer

MARK = "constraints not satisfied: "
ALL = f"{MARK}must 'b c', must_not 'x', target_prefix 'a .'"
SOME = f"{MARK}must 'd', target_prefix 'a .'"
CUT = "output cut at 24 tokens (decoding.max_length.ratio and extra)"


@pytest.mark.parametrize(
    "notes, expected",
    [
        ((), ALL),
        ((f"{MARK}must 'b c'",), ALL),
        ((SOME,), f"{SOME}, must 'b c', must_not 'x'"),
        ((ALL,), ALL),
    ],
)
def test_a_note_of_the_decoder_is_completed_by_what_the_text_does_not_hold(notes, expected):
    """Detokenisation can break what the tokens held: ``a .`` followed by a letter is not ``a.``."""
    tokenizer = train_tokenizer(
        CharacterConfig(kind="character"), ["a b c d . x"], PreprocessingConfig(moses="en")
    )
    builder = ConstraintBuilder(tokenizer, GreedyConfig())
    wanted = OutputConstraints(must=("b c",), must_not=("x",), target_prefix="a .")
    answer = Prediction("a .x b", finished=False, notes=(*notes, CUT))
    assert builder.checked(answer, wanted).notes == (expected, CUT)
