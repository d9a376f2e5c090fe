"""Experiments: a configuration in, a run directory out."""
