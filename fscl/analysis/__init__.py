"""Observers of a run (fscl/evaluation/observer.py): one file each. Nothing imports them unless a configuration asks."""
