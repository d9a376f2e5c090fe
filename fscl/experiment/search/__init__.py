"""Hyper-parameters chosen on validation classes, and on nothing else."""
