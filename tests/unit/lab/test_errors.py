"""What the lectures say wrongly: that nothing is left out."""

from heedful.lab.errors import NAMES
from heedful.lab.registry import experiments

# Items with an error or a gap.
ERRING = {2, 4, 14, 20, 22, 24, 28, 30, 32, 37, 42, 43, 44, 47, 51, 54, 74, 96}


def test_every_error_has_an_experiment_or_a_sentence():
    wrong = {item for each in experiments().values() if each.expected[0] == "is wrong" for item in each.items}
    told = {slip.item for slip in NAMES}
    assert not ERRING - (wrong | told)


def test_sentences_differ_and_name_their_lecture():
    assert len({(slip.item, slip.printed) for slip in NAMES}) == len(NAMES)
    for slip in NAMES:
        assert slip.lecture in {"S0", "S1", "S2", "S3", "S4"}
        assert slip.printed != slip.correct
