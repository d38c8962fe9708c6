"""heedful trains, runs and looks inside Transformers on the machine you have."""

__version__ = "0.1.0"
