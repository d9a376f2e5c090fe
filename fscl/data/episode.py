"""An Episode is one small classification problem for meta-training: a support set to learn from, a query set to score."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fscl.data.augment import Variation, jittered, varied
from fscl.data.pool import ClassPool, Examples


@dataclass(frozen=True, repr=False)
class Episode:
    """Support and query of the same `n_way` classes, labelled 0 to n_way - 1, class after class.

    `classes` says which classes of the pool the labels stand for.
    """

    support: Examples
    query: Examples
    n_way: int
    classes: Tensor

    def __repr__(self) -> str:
        return f"<Episode of {self.n_way} ways: support {self.support!r}, query {self.query!r}>"

    def to(self, device: torch.device) -> "Episode":
        """On a device; what is there already is not copied."""
        support, query = self.support.to(device), self.query.to(device)
        return replace(self, support=support, query=query, classes=self.classes.to(device))


@dataclass(frozen=True)
class EpisodePositions:
    """An episode as positions in its pool's images: support (n_way, n_shot) and query (n_way, n_query)."""

    support: Tensor
    query: Tensor
    classes: Tensor


def sample_positions(
    pool: ClassPool, *, n_way: int, n_shot: int, n_query: int, generator: torch.Generator
) -> EpisodePositions:
    """Draw `n_way` classes, and `n_shot` + `n_query` different images of each."""
    per_class = n_shot + n_query
    pool.require(
        n_classes=n_way, n_images=per_class, purpose=f"an episode of {n_way} ways, {n_shot} shots and {n_query} queries"
    )
    eligible = [index for index, count in enumerate(pool.counts) if count >= per_class]
    classes = [eligible[i] for i in torch.randperm(len(eligible), generator=generator)[:n_way].tolist()]
    chosen = torch.stack(
        [pool.starts[c] + torch.randperm(pool.counts[c], generator=generator)[:per_class] for c in classes]
    )
    return EpisodePositions(chosen[:, :n_shot], chosen[:, n_shot:], torch.tensor(classes))


def sample_episode(pool: ClassPool, *, n_way: int, n_shot: int, n_query: int, generator: torch.Generator) -> Episode:
    """Draw an episode: `n_way` classes, and `n_shot` + `n_query` different images of each."""
    positions = sample_positions(pool, n_way=n_way, n_shot=n_shot, n_query=n_query, generator=generator)
    labels = torch.arange(n_way)
    return Episode(
        support=Examples(pool.images[positions.support.flatten()], labels.repeat_interleave(n_shot)),
        query=Examples(pool.images[positions.query.flatten()], labels.repeat_interleave(n_query)),
        n_way=n_way,
        classes=positions.classes,
    )


def jittered_episode(episode: Episode, strength: float, generator: torch.Generator) -> Episode:
    """The same episode with every image bent a little, each in its own way."""
    return replace(
        episode,
        support=replace(episode.support, images=jittered(episode.support.images, strength, generator)),
        query=replace(episode.query, images=jittered(episode.query.images, strength, generator)),
    )


def varied_episode(episode: Episode, variation: Variation, generator: torch.Generator) -> Episode:
    """The same episode with every photograph mirrored, cut out and coloured in its own way."""
    return replace(
        episode,
        support=replace(episode.support, images=varied(episode.support.images, variation, generator)),
        query=replace(episode.query, images=varied(episode.query.images, variation, generator)),
    )
