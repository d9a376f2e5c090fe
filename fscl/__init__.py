"""Few-shot continual learning: new classes for ever, from a few examples each, without forgetting the old ones."""

__version__ = "0.1.0"
