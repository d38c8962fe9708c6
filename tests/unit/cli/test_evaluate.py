"""The choices of ``evaluate`` match the library: link directions, decoder steps, data options."""

from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from heedful.cli.evaluate import AlignmentOptions, Sources
from heedful.explain.alignment.word_alignment import STEPS, Direction
from heedful.objectives.guided import DecoderStep
from heedful.runs.evaluate import as_options
from heedful.tasks.registry import TASKS
from heedful.tasks.task_info import OwnData


def test_links_and_steps_match_the_library():
    offered = get_type_hints(AlignmentOptions)
    assert offered["links"] == Direction
    assert offered["step"] == DecoderStep | None
    assert get_args(DecoderStep) == STEPS


def test_every_form_of_own_data_is_an_option_and_has_a_kind():
    forms = get_args(OwnData)
    assert set(forms) <= {each.name for each in fields(Sources)}
    assert set(forms) == {form for task in TASKS.values() for form in task.info.data_forms}


@pytest.mark.parametrize("form", get_args(OwnData))
def test_a_data_option_is_named_as_on_the_command_line(form):
    assert as_options([form]).split()[0] == f"--{form}"
