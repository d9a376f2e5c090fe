"""How far the evaluation of a learner has come: all that was measured so far, and what the learner knows.

Both together are the bytes of a file, from which an evaluation that was killed goes on with the same bits.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fscl.continual.learner import ContinualLearner, LearnerState
from fscl.data.pool import Examples
from fscl.errors import StorageError
from fscl.nets.network import grouped, named
from fscl.storage import tensor_bytes, tensors_from_bytes

KIND = "course"
NAME = Path("a course")  # what errors call the bytes


@dataclass
class Course:
    """What was measured after each of the tasks that are done.

    Attributes:
        top1, top5, restricted: row t has the accuracy on each task so far.
        diagnostics: what the learner says of how the task went.
        learn_seconds, predict_seconds: to learn it, and to answer all queries after it.
        before: the accuracy on it just before it was learned; None where it brings new classes.
        multiply_adds: to learn it; None where nobody counted.
        probes: for each probe by name, the accuracy of each of its problems after so many tasks.
        probe_seconds: what probing took in all.
    """

    top1: list[list[float]] = field(default_factory=list)
    top5: list[list[float]] = field(default_factory=list)
    restricted: list[list[float]] = field(default_factory=list)
    diagnostics: list[dict[str, float]] = field(default_factory=list)
    learn_seconds: list[float] = field(default_factory=list)
    predict_seconds: list[float] = field(default_factory=list)
    before: list[float | None] = field(default_factory=list)
    multiply_adds: list[int | None] = field(default_factory=list)
    probes: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    probe_seconds: float = 0.0

    @property
    def n_done(self) -> int:
        """How many tasks are done."""
        return len(self.top1)


def course_bytes(course: Course, learner: ContinualLearner, what: str) -> bytes:
    """What to go on from, as the bytes of a file; `what` says what was evaluated."""
    state = learner.state()
    examples: dict[str, Tensor] = {}
    if state.examples is not None:
        examples = {"images": state.examples.images, "labels": state.examples.labels}
    tensors = named(learner=state.tensors, examples=examples)
    return tensor_bytes(KIND, tensors, {"what": what, "course": asdict(course), "learner": state.details})


def resume(content: bytes, learner: ContinualLearner, what: str) -> Course | None:
    """Bring a fresh learner to where it was; None, and nothing changed, if these bytes are damaged or of something else."""
    try:
        tensors, details = tensors_from_bytes(NAME, KIND, content)
        if details.get("what") != what:
            return None
        course = _course(details["course"])
        own, examples = grouped(tensors, "learner", "examples")
        kept = Examples(examples["images"], examples["labels"]) if examples else None
        learner.restore(LearnerState(own, details["learner"], kept))
    except (StorageError, LookupError, TypeError, ValueError):
        return None
    return course


def _course(content: dict[str, Any]) -> Course:
    """With the numbers of tasks that JSON has made words of."""
    probes = {name: {int(n): shares for n, shares in found.items()} for name, found in content["probes"].items()}
    return Course(**{**content, "probes": probes})
