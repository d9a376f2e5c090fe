"""An Episode is one small classification problem for meta-training: a support set to learn from, a query set to score."""

from dataclasses import dataclass

import torch

from fscl.data.pool import ClassPool, Examples


@dataclass(frozen=True)
class Episode:
    """Support and query of the same `n_way` classes, labelled 0 to n_way - 1, class after class."""

    support: Examples
    query: Examples
    n_way: int


def sample_episode(pool: ClassPool, *, n_way: int, n_shot: int, n_query: int, generator: torch.Generator) -> Episode:
    """Draw an episode: `n_way` classes, and `n_shot` + `n_query` different images of each."""
    per_class = n_shot + n_query
    pool.require(
        n_classes=n_way, n_images=per_class, purpose=f"an episode of {n_way} ways, {n_shot} shots and {n_query} queries"
    )
    eligible = [index for index, count in enumerate(pool.counts) if count >= per_class]
    classes = torch.randperm(len(eligible), generator=generator)[:n_way].tolist()
    chosen = torch.stack(
        [
            pool.starts[eligible[i]] + torch.randperm(pool.counts[eligible[i]], generator=generator)[:per_class]
            for i in classes
        ]
    )
    labels = torch.arange(n_way)
    return Episode(
        support=Examples(pool.images[chosen[:, :n_shot].flatten()], labels.repeat_interleave(n_shot)),
        query=Examples(pool.images[chosen[:, n_shot:].flatten()], labels.repeat_interleave(n_query)),
        n_way=n_way,
    )
