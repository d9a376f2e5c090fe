"""The settings of two-step consolidation: all that makes one method of its family another."""

from typing import Annotated, Literal, Self

from pydantic import Field

from fscl.continual.learner import ContinualLearner, RunConditions
from fscl.continual.memory import AllShots, AnyMemory, NoMemory
from fscl.continual.objectives import AnyObjective, CrossEntropy
from fscl.continual.regularisers import AnyRegulariser, Unregularised
from fscl.data.augment import N_VIEWS
from fscl.nets.network import Network

Decay = Annotated[float, Field(ge=0, lt=1)]
EARLY_STOP_LOSS = 0.05  # of the cross-entropy; below it the embedding of a `quick` run stands still
# steps over all stored examples would cost the more the more is known (docs/decisions/0007)
CLASSIFIER_STEPS = 80  # of a lesson
CLASSIFIER_BATCH = 128  # examples in a step of the classifier, where the lesson itself is not larger


class ConsolidationSettings(ContinualLearner.Settings):
    """The settings of a consolidation learner; the paper's symbol stands behind each.

    Attributes:
        slow_rate: β, how far the slow weights follow the fast ones after a task.
        embedding_steps: k, for how many steps the embedding moves; "all" means every step.
        moving_tasks: in how many tasks the embedding moves; afterwards it stands still and the head alone learns.
        steps: steps a task; the paper's 500 epochs.
        learning_rate, betas: of Adam, fresh for each task.
        head_rate: the learning rate of the head; "same" is that of the embedding.
        stop_loss: the embedding stands still for the rest of a task once its loss is below this; 0 for never.
        batch_size: images in a step at most, evenly of all classes; for leave_one_out of whole classes, the task's own
            first. "all" is the paper's full batch.
        views: in how many fixed views (augment.py) an image is looked at, its features averaged; 1 is the image itself.
        jitter: how strongly the shots are turned, scaled, sheared and shifted anew in each step of the embedding.
        mirror: for photographs: half of the shots are mirrored in each step of the embedding, and every view is looked at
            both ways.
        statistics: what BatchNorm answers with: those of the "replay" set, after each task; or those of the "base", which it
            then learns with, too.
        start: "base" begins at the meta-trained weights, "random" at fresh ones.
        autocast: the embedding moves by features computed in bfloat16 where torch thinks it safe; answers are not.
        objective: what the embedding learns by: "cross_entropy" or "leave_one_out".
        regulariser: what holds the embedding to the slow weights: "none", "constant", "tagging", "ewc", "si" or "mas".
        memory: what is replayed: all "shots", "bounded" ones, "generated" images, or "none".
    """

    slow_rate: float = Field(default=0.01, ge=0, le=1)
    embedding_steps: Annotated[int, Field(ge=0)] | Literal["all"] = 100
    moving_tasks: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    steps: int = Field(default=500, ge=1)
    learning_rate: float = Field(default=5e-4, gt=0)
    head_rate: Annotated[float, Field(gt=0)] | Literal["same"] = "same"
    betas: tuple[Decay, Decay] = (0.5, 0.999)
    stop_loss: float = Field(default=0.0, ge=0)
    batch_size: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    views: int = Field(default=1, ge=1, le=N_VIEWS)
    jitter: float = Field(default=0.0, ge=0, le=3)
    mirror: bool = False
    statistics: Literal["replay", "base"] = "replay"
    start: Literal["base", "random"] = "base"
    autocast: bool = False
    objective: AnyObjective = CrossEntropy()
    regulariser: AnyRegulariser = Unregularised()
    memory: AnyMemory = AllShots()

    @property
    def rate_of_head(self) -> float:
        """The learning rate of the head, as a number."""
        return self.learning_rate if self.head_rate == "same" else self.head_rate

    @property
    def moving_steps(self) -> int:
        """In how many of the steps the embedding moves."""
        return self.steps if self.embedding_steps == "all" else min(self.embedding_steps, self.steps)

    def moving_steps_of(self, task: int) -> int:
        """The same of one task, numbered from 0."""
        return 0 if self.moving_tasks != "all" and task >= self.moving_tasks else self.moving_steps

    def for_run(self, conditions: RunConditions) -> Self:
        """New instances of known classes are learned without replay, as in the TSC paper."""
        changes: dict[str, object] = {"autocast": True} if conditions.autocast else {}
        if conditions.early_stop and self.objective.trains_head:
            changes["stop_loss"] = EARLY_STOP_LOSS
        if conditions.classes_return and not self.memory.always:
            changes["memory"] = NoMemory()
        return self.model_copy(update=changes)

    def for_classifier(self, *, n_new: int, memory_bytes: int | None) -> Self:
        """One view of a picture (11 would cost 11 times the bare network at every prediction), small batches, and where
        shots are left out a few steps less, so that a lesson takes less than 5 s of a core."""
        memory = self.memory if memory_bytes is None else self.memory.within(memory_bytes)
        batch_size = max(CLASSIFIER_BATCH, n_new)  # room for all of the lesson
        changes: dict[str, object] = {"views": 1, "batch_size": batch_size, "memory": memory}
        if not self.objective.trains_head and self.embedding_steps != "all":
            changes["embedding_steps"] = min(self.embedding_steps, CLASSIFIER_STEPS)
        return self.model_copy(update=changes)

    def fitting(self, network: Network) -> Self:
        """What is left of them on a network without weights to move, or whose inputs are no pictures.

        Where making inputs runs frozen stages, pictures are taken as they are: every variation would run them anew.
        """
        changes: dict[str, object] = {}
        if not network.params:
            changes |= {"embedding_steps": 0, "regulariser": Unregularised()}
        if network.picture_shape is None or not network.inputs_are_cheap:
            changes |= {"views": 1, "jitter": 0.0, "mirror": False}
        if network.picture_shape is None:
            changes["start"] = "base"
            if not self.memory.keeps_shots:
                changes["memory"] = AllShots(always=self.memory.always)
        return self.model_copy(update=changes) if changes else self
