"""What all backbones have in common: stages, one after another, that a network can be split between."""

from abc import abstractmethod

from torch import Tensor, nn

from fscl.nets.norm import Statistics


class Backbone(nn.Module):
    """Layers without weights of their own: every call brings them (`torch.func.functional_call`).

    Attributes:
        n_features: how many numbers an image becomes.
        stages: for each stage, what the names of its layers begin with.
    """

    n_features: int
    stages: tuple[tuple[str, ...], ...]

    def forward(
        self,
        x: Tensor,
        statistics: Statistics | None = None,
        record: Statistics | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Tensor:
        """Features, of images or of what the stages before `first` made of them; with `last`, what the stages before
        that one make of them."""
        for number in range(first, len(self.stages) if last is None else last):
            x = self.stage(number, x, statistics, record)
        return self.pool(x) if last is None else x

    @abstractmethod
    def stage(self, number: int, x: Tensor, statistics: Statistics | None, record: Statistics | None) -> Tensor:
        """One stage."""

    @abstractmethod
    def pool(self, x: Tensor) -> Tensor:
        """Features (n, n_features) from the last stage's maps."""
