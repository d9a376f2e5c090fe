"""The settings of two-step consolidation: all that makes one method of its family another."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from fscl.continual.generator import GeneratorSpec
from fscl.continual.regularisers import Accumulate, ActivityScale, FisherLabels, RegulariserName
from fscl.data.augment import N_VIEWS

Count = Annotated[int, Field(ge=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]


class Dials(BaseModel):
    """The settings of a consolidation learner; the paper's symbol stands behind each.

    Attributes:
        slow_rate: β, how far the slow weights follow the fast ones after a task.
        embedding_steps: k, for how many steps the embedding moves; "all" means every step.
        steps: steps a task; the paper's 500 epochs.
        learning_rate, betas: of Adam, fresh for each task.
        head_rate: the learning rate of the head; "same" is that of the embedding.
        stop_loss: the embedding stands still for the rest of a task once its loss is below this; 0 for never.
        batch_size: images in a step at most, evenly of all classes; for leave_one_out of whole classes, the task's own
            first. "all" is the paper's full batch.
        objective, temperature: what the embedding learns by (objectives.py), and what divides squared distances.
        views: in how many fixed views (augment.py) an image is looked at, its features averaged; 1 is the image itself.
        jitter: how strongly the shots are turned, scaled, sheared and shifted anew in each step of the embedding.
        mirror: for photographs: half of the shots are mirrored in each step of the embedding, and every view is looked at
            both ways.
        statistics: what BatchNorm answers with: those of the "replay" set, after each task; or those of the "base", which it
            then learns with, too.
        head_start: new rows are "random", or every row starts from its class's "means" (after leave_one_out it always is).
        regulariser, strength: what holds the embedding to the slow weights, and λ.
        gate_slope, activity_scale: m, and whether tags are scaled by layer (see regularisers.py).
        accumulate, decay: how the importance of ewc, si and mas adds up over tasks ("each" holds every task's own weights
            instead of the last ones), and what a new task leaves of the sum.
        fisher_labels: which labels' gradients ewc squares.
        damping: ξ of si.
        memory: what is replayed: the "shots" themselves, or images that a "generated" class leaves behind.
        memory_per_class, memory_images, memory_bytes: bounds on it; "all" or a number, 0 for no replay.
        generator: how images are generated, where they are.
        autocast: the embedding moves by features computed in bfloat16 where torch thinks it safe; answers are not.
        start: "base" begins at the meta-trained weights, "random" at fresh ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    slow_rate: float = Field(default=0.01, ge=0, le=1)
    embedding_steps: Count | Literal["all"] = 100
    steps: int = Field(default=500, ge=1)
    learning_rate: float = Field(default=5e-4, gt=0)
    head_rate: Annotated[float, Field(gt=0)] | Literal["same"] = "same"
    betas: tuple[Decay, Decay] = (0.5, 0.999)
    stop_loss: float = Field(default=0.0, ge=0)
    batch_size: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    objective: Literal["cross_entropy", "leave_one_out"] = "cross_entropy"
    temperature: float = Field(default=1.0, gt=0)
    views: int = Field(default=1, ge=1, le=N_VIEWS)
    jitter: float = Field(default=0.0, ge=0, le=3)
    mirror: bool = False
    statistics: Literal["replay", "base"] = "replay"
    head_start: Literal["random", "means"] = "random"
    regulariser: RegulariserName = "none"
    strength: float = Field(default=0.0, ge=0)
    gate_slope: float = Field(default=1.0, ge=0)
    activity_scale: ActivityScale = "layer"
    accumulate: Accumulate = "sum"
    decay: float = Field(default=1.0, ge=0, le=1)
    fisher_labels: FisherLabels = "true"
    damping: float = Field(default=0.1, gt=0)
    memory: Literal["shots", "generated"] = "shots"
    memory_per_class: Count | Literal["all"] = "all"
    memory_images: Count | Literal["all"] = "all"
    memory_bytes: Count | Literal["all"] = "all"
    generator: GeneratorSpec = GeneratorSpec()
    start: Literal["base", "random"] = "base"
    autocast: bool = False

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without keys that came later and are not used: what is known of earlier runs stays as it is."""
        content: dict[str, Any] = write(self)
        unused = {"mirror": False, "statistics": "replay", "autocast": False, "head_rate": "same"}
        return {key: value for key, value in content.items() if key not in unused or value != unused[key]}

    @property
    def rate_of_head(self) -> float:
        """The learning rate of the head, as a number."""
        return self.learning_rate if self.head_rate == "same" else self.head_rate

    @property
    def moving_steps(self) -> int:
        """In how many of the steps the embedding moves."""
        return self.steps if self.embedding_steps == "all" else min(self.embedding_steps, self.steps)
