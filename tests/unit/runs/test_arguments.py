"""Arguments of predictions: what is refused, and which value stands for which."""

import numpy as np
import pytest

from heedful.errors import RequestError
from heedful.runs.arguments import inputs_of
from heedful.tasks.task_info import Columns

IMAGES = Columns(("image", "label"), ("image",), images=("image",))
TEXTS = Columns(("text", "label"), ("text",))


@pytest.mark.parametrize("shape", [(), (5, 7), (5, 7, 3)])
def test_an_array_that_is_one_image_is_no_list_of_images(shape):
    with pytest.raises(RequestError, match=r"expected a list of images, got an array of .*: \[image\]"):
        inputs_of(IMAGES, np.zeros(shape, np.uint8))


@pytest.mark.parametrize("shape", [(2, 5, 7), (2, 5, 7, 3)])
def test_an_array_of_images_is_a_list_of_them(shape):
    assert [image.shape for image in inputs_of(IMAGES, np.zeros(shape, np.uint8))] == [shape[1:]] * 2


def test_an_array_of_texts_is_a_list_of_them():
    assert inputs_of(TEXTS, np.array(["a", "b"])) == ["a", "b"]
    with pytest.raises(RequestError, match=r"expected a list of texts, got an array of shape \(\)"):
        inputs_of(TEXTS, np.array("a b"))
