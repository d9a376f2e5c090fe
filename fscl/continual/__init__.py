"""Continual learners: they learn task after task and answer for every class they ever saw."""
