"""What the embedding is shown, step by step, while a task is learned."""

from functools import cached_property

from torch import Tensor

from fscl.continual.memory import ReplaySet
from fscl.continual.settings import Dials
from fscl.data.augment import Variation, jittered, varied
from fscl.device import autocast
from fscl.nets.network import Featurer, Network


class Shown:
    """The images of each step: the same ones made ready once, or a batch or variation drawn anew."""

    def __init__(self, network: Network, settings: Dials, replay: ReplaySet) -> None:
        self.network, self.settings, self.replay = network, settings, replay
        self.varies = settings.jitter > 0 or settings.mirror

    def next(self) -> tuple[Featurer, Tensor]:
        """The features of the next step's images, as a function of the weights, and their labels."""
        replay = self.replay
        if replay.is_one_batch and not self.varies:
            return self._all, replay.y
        chosen = replay.batch()
        images, y = (replay.images, replay.y) if chosen is None else (replay.images[chosen], replay.y[chosen])
        if self.varies:
            images = varied(images, Variation(flip=self.settings.mirror), replay.order)
            images = jittered(images, self.settings.jitter, replay.order)
        return self._featurer(self.network.to_input(images)), y

    @cached_property
    def _all(self) -> Featurer:
        return self._featurer(self.replay.x)

    def _featurer(self, x: Tensor) -> Featurer:
        with autocast(self.settings.autocast):
            return self.network.featurer(x)
