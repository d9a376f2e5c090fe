"""Decoders of a memory: what the nearest stored keys and their labels say about a query.

The arithmetic of T. Ramalho, M. Garnelo, "Adaptive Posterior Learning: few-shot learning with a surprise-based memory
module", 2019, which its meta-training (fscl/meta/apl.py) and its continual method (fscl/continual/methods/surprise.py)
share. A decoder sees a query (n, n_features), its k nearest keys (n, k, n_features) and their labels (n, k), and gives log
probabilities (n, n_classes). There are three:

- `kernel`: nothing is learned; a neighbour votes for its label with softmax(-squared distance);
- `neighbours`: attention among the neighbours, with a bias for pairs of equal labels, adds a learned number to minus each
  neighbour's distance, and a class has the log of the summed exponentials of its neighbours. It does not know labels but
  by their being equal, so that there may be any number of them. Before it is trained it is the kernel;
- `labels`: the published one, with an embedding for each of a fixed number of labels, plus one for empty slots.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

from fscl.nets.params import Params

HEAD_SIZE = 32
LABEL_SIZE = 32
LEAST_LOG_PROBABILITY = math.log(1e-6)  # of a class that no neighbour votes for
GROUP = "decoder"  # of the tensors that a base hands over


def squared_distances(query: Tensor, keys: Tensor) -> Tensor:
    """From each query to its own neighbours, (n, k)."""
    return (query[:, None] - keys).square().sum(2)


def kernel_scores(query: Tensor, keys: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Log probabilities (n, n_classes) by the vote of neighbours, each weighed by its distance."""
    return class_scores(-squared_distances(query, keys), labels, n_classes)


def class_scores(slots: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Log probabilities of classes from a number for each neighbour; a class without one has the least there is."""
    shares = slots.softmax(1)
    votes = shares.new_zeros(slots.shape[0], n_classes).scatter_add(1, labels, shares)
    return votes.clamp_min(math.exp(LEAST_LOG_PROBABILITY)).log()


def slot_loss(slots: Tensor, labels: Tensor, own: Tensor) -> Tensor:
    """-log p of each query's own class, (n,), exact however small p is; infinite where no neighbour is of that class."""
    agrees = labels == own[:, None]
    lowest = torch.finfo(slots.dtype).min
    inside = torch.where(agrees, slots, lowest).logsumexp(1)
    return torch.where(agrees.any(1), slots.logsumexp(1) - inside, torch.inf)


def init_decoder(
    n_features: int, *, hidden: int, blocks: int, n_labels: int | None, generator: torch.Generator
) -> Params:
    """Weights to start from, by name; with `n_labels` those of the published decoder."""
    n_inputs = 2 * n_features + 1 + (0 if n_labels is None else LABEL_SIZE)

    def xavier(n_out: int, n_in: int) -> Tensor:
        return torch.nn.init.xavier_normal_(torch.empty(n_out, n_in), generator=generator)

    weights = {"slots/weight": xavier(hidden, n_inputs), "slots/bias": torch.zeros(hidden)}
    for block in range(blocks):
        weights[f"{block}/attend/weight"] = xavier(3 * hidden, hidden)
        weights[f"{block}/mix/weight"] = xavier(hidden, hidden)
        weights[f"{block}/mix/bias"] = torch.zeros(hidden)
        weights[f"{block}/norm/weight"] = torch.ones(hidden)
        weights[f"{block}/norm/bias"] = torch.zeros(hidden)
        if n_labels is None:
            weights[f"{block}/same"] = torch.zeros(hidden // HEAD_SIZE)
    if n_labels is None:
        return weights | {"sharpness": torch.zeros(()), "out/weight": torch.zeros(1, hidden)}
    embedding = torch.randn(n_labels + 1, LABEL_SIZE, generator=generator)
    return weights | {"embedding": embedding, "out/weight": xavier(n_labels, hidden)}


def n_labels_of(weights: Mapping[str, Tensor]) -> int | None:
    """How many labels a decoder can tell; None for one that takes any number."""
    return len(weights["out/weight"]) if "embedding" in weights else None


def neighbour_slots(
    weights: Mapping[str, Tensor], query: Tensor, keys: Tensor, labels: Tensor, *, distance_gradient: bool = True
) -> Tensor:
    """A number for each neighbour, (n, k): minus its distance, plus what attention among the neighbours makes of it."""
    away = squared_distances(query, keys)
    away = away if distance_gradient else away.detach()
    hidden = _slots(weights, query, keys, (-away).softmax(1))
    same = (labels[:, None] == labels[:, :, None]).to(query.dtype)
    for block in range(_n_blocks(weights)):
        hidden = _block(weights, block, hidden, weights[f"{block}/same"].view(-1, 1, 1) * same[:, None], together=False)
    return linear(hidden, weights["out/weight"])[:, :, 0] - weights["sharpness"].exp() * away


def label_scores(
    weights: Mapping[str, Tensor], query: Tensor, keys: Tensor, labels: Tensor, *, distance_gradient: bool = True
) -> Tensor:
    """Scores (n, n_labels) by the published decoder; the label of an empty slot is `n_labels`, and its key is 0."""
    away = squared_distances(query, keys)
    shares = (-(away if distance_gradient else away.detach())).softmax(1)
    hidden = _slots(weights, query, keys, shares, weights["embedding"][labels])
    for block in range(_n_blocks(weights)):
        hidden = _block(weights, block, hidden, None, together=True)
    return linear((shares[:, :, None] * hidden).sum(1), weights["out/weight"])


def with_empty_slots(keys: Tensor, labels: Tensor, n_labels: int, k: int) -> tuple[Tensor, Tensor]:
    """A memory with `k` empty slots: as many as can be among the nearest."""
    return (
        torch.cat([keys, keys.new_zeros(k, keys.shape[1])]),
        torch.cat([labels, labels.new_full((k,), n_labels)]),
    )


def _slots(
    weights: Mapping[str, Tensor], query: Tensor, keys: Tensor, shares: Tensor, embedded: Tensor | None = None
) -> Tensor:
    parts = [keys, query[:, None].expand_as(keys), shares[:, :, None]]
    parts = parts if embedded is None else [keys, embedded, *parts[1:]]
    return linear(torch.cat(parts, 2), weights["slots/weight"], weights["slots/bias"])


def _block(weights: Mapping[str, Tensor], block: int, hidden: Tensor, bias: Tensor | None, *, together: bool) -> Tensor:
    """h ← h + attention(h), then h ← h + norm(linear(relu h)). `together` normalises all slots as one vector."""
    n, k, width = hidden.shape
    projected = linear(hidden, weights[f"{block}/attend/weight"])
    projected = layer_norm(projected, projected.shape[1:] if together else projected.shape[2:])
    asked, offered, values = projected.view(n, k, 3, width // HEAD_SIZE, HEAD_SIZE).permute(2, 0, 3, 1, 4)
    affinity = asked @ offered.transpose(2, 3) * HEAD_SIZE**-0.5
    affinity = affinity if bias is None else affinity + bias
    hidden = hidden + (affinity.softmax(3) @ values).transpose(1, 2).reshape(n, k, width)
    mixed = linear(hidden.relu(), weights[f"{block}/mix/weight"], weights[f"{block}/mix/bias"])
    return hidden + layer_norm(mixed, (width,), weights[f"{block}/norm/weight"], weights[f"{block}/norm/bias"])


def _n_blocks(weights: Mapping[str, Tensor]) -> int:
    return sum(name.endswith("/attend/weight") for name in weights)
