"""Sizes of the images that a model reads."""

from heedful.config import Config
from heedful.models.sections import Channels, Pixels


class ImageConfig(Config):
    """Sizes of the images, by default those of ViT-B/16 and BiT.

    Args:
        image_size: height and width of the images in pixels; affects the number of tokens.
        channels: number of channels: 3 for RGB, 1 for greyscale.
    """

    image_size: Pixels = 224
    channels: Channels = 3
