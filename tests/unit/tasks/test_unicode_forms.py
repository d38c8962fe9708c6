"""The Unicode form in which tasks read text."""

import pytest

from heedful.tasks.registry import TASKS
from heedful.text.configuration import PreprocessingConfig

KEEP_BYTES = {"language-modelling", "masked-language-modelling"}
SECTIONS = {
    name: task.Recipe.model_fields["tokenizer"].annotation
    for name, task in TASKS.items()
    if "tokenizer" in task.Recipe.model_fields
}


@pytest.mark.parametrize("name", SECTIONS)
def test_tasks_compose_text_unless_they_must_return_it(name):
    defaults = [field.default for field in SECTIONS[name].model_fields.values()]
    forms = {each.normalization for each in defaults if isinstance(each, PreprocessingConfig)}
    assert forms == {"none" if name in KEEP_BYTES else "nfc"}
