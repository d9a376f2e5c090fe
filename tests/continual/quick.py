"""Learners with settings under which they take few steps."""

from typing import Any

from fscl.continual.learner import ContinualLearner
from fscl.continual.registry import find_method, make_learner, merged
from fscl.nets.network import Network

SMALL_GENERATOR = {"width": 16, "steps": 2, "critic_steps": 1, "images_per_class": 1}  # as many as shots


def quick(method: str, **more: Any) -> dict[str, Any]:
    """Settings with which a method takes few steps; those that it has."""
    values = find_method(method).settings_in_force().model_dump()
    given: dict[str, Any] = {"steps": 15, "learning_rate": 5e-3}
    if "generator" in values.get("memory", {}):
        given["memory"] = {"generator": SMALL_GENERATOR}
    return {key: value for key, value in merged(given, more).items() if key in values}


def fresh(network: Network, method: str, **more: Any) -> ContinualLearner:
    return make_learner(method, network, seed=0, settings=quick(method, **more))
