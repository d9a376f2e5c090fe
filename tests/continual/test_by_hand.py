"""Every method of the consolidation family, two tasks of two steps each, redone by hand and compared through the learner.

A test of a formula is not a test that the learner uses it. The reference below is written from the papers, in double
precision, and knows nothing of the parts that a learner is put together from.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from fscl.continual.consolidation import Consolidation
from fscl.continual.registry import make_learner
from fscl.data.augment import jittered, view
from fscl.data.pool import Examples
from fscl.nets.network import Network
from fscl.rng import generator
from fscl.testing import POOL, TASKS, small_base

Weights = dict[str, Tensor]
RATE = 5e-3
STRONG = 3.0  # a penalty that decides where the second step goes
# Adam makes steps of the size of the rate even of gradients that are all rounding
CLOSE = {"rtol": 1e-6, "atol": 2e-5}
STEPS = {"steps": 2, "embedding_steps": 2, "learning_rate": RATE, "stop_loss": 0.0}

# what the papers say of each method: β, what is held and how, and what is replayed
EXPECTED: dict[str, dict[str, Any]] = {
    "joint": {"beta": 0.0},
    "replay": {"beta": 1.0},
    "sequential": {"beta": 1.0, "replays": False},
    "fsw": {"beta": 0.01},
    "constant": {"beta": 0.01, "hold": "constant", "strength": STRONG},
    "tsc_gated": {"beta": 0.01, "hold": "tags", "strength": STRONG, "layer": True},
    "tsc_paper": {"beta": 0.01, "hold": "tags", "strength": STRONG},
    "stc": {"beta": 1.0, "hold": "tags", "strength": STRONG},
    "ewc": {"beta": 1.0, "hold": "fisher", "strength": 1e7},
    "si": {"beta": 1.0, "hold": "path", "strength": 1e4},
    "mas": {"beta": 1.0, "hold": "sensitivity", "strength": 10.0},
    "tsc": {"beta": 0.3, "hold": "tags", "strength": STRONG, "layer": True, "leave_one_out": True},
}


def double_base() -> Network:
    network = small_base()
    return replace(network, params={name: tensor.double() for name, tensor in network.params.items()})  # type: ignore[type-var]


def leaves(weights: Weights) -> Weights:
    return {name: tensor.detach().clone().requires_grad_() for name, tensor in weights.items()}


class ByHand:
    """One method, in plain torch."""

    def __init__(self, network: Network, expected: dict[str, Any]) -> None:
        self.network, self.expected = network, {"hold": None, "replays": True, "leave_one_out": False, **expected}
        self.slow = dict(network.params)
        self.weight, self.bias = torch.zeros(0, 8).double(), torch.zeros(0).double()  # of the slow head
        self.seen: list[Examples] = []
        self.held = {name: torch.zeros_like(tensor) for name, tensor in self.slow.items()}

    def learn(self, task: Examples) -> None:
        number = len(self.seen)
        self.grow(int(task.labels.max()) + 1)
        self.seen.append(task)
        chosen = self.seen if self.expected["replays"] else [task]
        images, labels = (torch.cat([getattr(one, part) for one in chosen]) for part in ("images", "labels"))
        gates = self.gates(task, number)
        fast, weight, bias = leaves(self.slow), *leaves({"w": self.weight, "b": self.bias}).values()
        optimiser = torch.optim.Adam([*fast.values(), weight, bias], lr=RATE, betas=(0.5, 0.999))
        order, path = generator(0, "batches", number), {name: torch.zeros_like(t) for name, t in fast.items()}
        for _ in range(2):
            seen = jittered(images, 2.0, order) if self.expected["leave_one_out"] else images
            optimiser.zero_grad()
            self.loss(fast, weight, bias, seen, labels).backward()
            of_loss = {name: tensor.grad.clone() for name, tensor in fast.items() if tensor.grad is not None}
            before = {name: tensor.detach().clone() for name, tensor in fast.items()}
            for name, tensor in fast.items():
                assert tensor.grad is not None
                tensor.grad += 2 * self.expected.get("strength", 0) * gates[name] * (before[name] - self.slow[name])
            optimiser.step()
            for name, tensor in fast.items():
                path[name] -= of_loss[name] * (tensor.detach() - before[name])
        self.fast = {name: tensor.detach() for name, tensor in fast.items()}
        self.fast_head = weight.detach(), bias.detach()
        self.measure(task, number, path)
        beta = self.expected["beta"]
        self.slow = {name: tensor + beta * (self.fast[name] - tensor) for name, tensor in self.slow.items()}
        self.weight = self.weight + beta * (self.fast_head[0] - self.weight)
        self.bias = self.bias + beta * (self.fast_head[1] - self.bias)

    def grow(self, n_classes: int) -> None:
        """New rows as torch.nn.Linear draws them: uniform within ±1/√n_features."""
        for label in range(len(self.bias), n_classes):
            row = (2 * torch.rand(9, generator=generator(0, "head-row", label)) - 1) / 8**0.5
            self.weight = torch.cat([self.weight, row[None, :8].double()])
            self.bias = torch.cat([self.bias, row[8:].double()])

    def features(self, params: Weights, images: Tensor) -> Tensor:
        return self.network.features(self.network.to_input(images), params)

    def loss(self, params: Weights, weight: Tensor, bias: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        features = self.features(params, images)
        if not self.expected["leave_one_out"]:
            return cross_entropy(features @ weight.T + bias, labels)
        losses = []
        for asked in range(len(labels)):  # each shot by its distance to the class means, its own taken without it
            rest = torch.arange(len(labels)) != asked
            means = torch.stack([features[rest & (labels == label)].mean(0) for label in labels.unique()])
            own = int((labels.unique() == labels[asked]).nonzero())
            losses.append(-log_softmax(-(features[asked] - means).square().sum(1) / 20, 0)[own])
        return torch.stack(losses).mean()

    def gates(self, task: Examples, number: int) -> Weights:
        hold = self.expected["hold"]
        if hold == "constant":
            return {name: torch.full_like(tensor, 0.5) for name, tensor in self.slow.items()}
        if hold != "tags":
            return self.held
        slow = leaves(self.slow)
        self.loss(slow, self.weight, self.bias, task.images, task.labels).backward()
        self.held = {
            name: self.held[name] + tensor.grad.abs() for name, tensor in slow.items() if tensor.grad is not None
        }
        gates = {}
        for name, total in self.held.items():
            mean = total.sum() / total.numel() / (number + 1)  # Eq. 2 divides the mean over the layer by t
            scale = mean if self.expected.get("layer") else 1.0
            gates[name] = 1 / (1 + torch.exp(-(total - mean) / scale))
        return gates

    def measure(self, task: Examples, number: int, path: Weights) -> None:
        """Importance of the task just learned, at the weights that it was learned with, over all of its own images."""
        hold, (weight, bias) = self.expected["hold"], self.fast_head
        if hold == "path":
            for name, gained in path.items():
                moved = self.fast[name] - self.slow[name]
                self.held[name] = (self.held[name] + gained / (moved.square() + 0.1)).clamp_min(0)
        if hold not in ("fisher", "sensitivity"):
            return
        total = {name: torch.zeros_like(tensor) for name, tensor in self.fast.items()}
        for image, label in zip(task.images, task.labels, strict=True):
            params = leaves(self.fast)
            scores = (self.features(params, image[None]) @ weight.T + bias)[0]
            (log_softmax(scores, 0)[label] if hold == "fisher" else scores.square().sum()).backward()
            for name, tensor in params.items():
                assert tensor.grad is not None
                total[name] += (tensor.grad.square() if hold == "fisher" else tensor.grad.abs()) / len(task)
        if hold == "fisher":  # a mean over tasks
            self.held = {name: (number * self.held[name] + total[name]) / (number + 1) for name in total}
        else:
            self.held = {name: self.held[name] + total[name] for name in total}


@pytest.mark.parametrize("method", EXPECTED)
def test_two_tasks_are_learned_as_by_hand(method: str):
    network, expected = double_base(), EXPECTED[method]
    more = {"regulariser": {"strength": STRONG}} if expected.get("strength") == STRONG else {}
    learner = make_learner(method, network, seed=0, settings={**STEPS, **more})
    assert isinstance(learner, Consolidation)
    reference = ByHand(network, expected)
    close = {"rtol": 1e-6, "atol": 1e-4} if expected.get("leave_one_out") else CLOSE  # its first gradients are smaller
    for task in TASKS[:3]:
        learner.learn_task(task.support)
        reference.learn(task.support)
        for name, tensor in reference.fast.items():
            torch.testing.assert_close(learner.fast[name], tensor, **close)
            torch.testing.assert_close(learner.slow[name], reference.slow[name], **close)
        if not expected.get("leave_one_out"):
            torch.testing.assert_close(learner.fast_head["weight"], reference.fast_head[0], **CLOSE)
            torch.testing.assert_close(learner.slow_head["bias"], reference.bias, **CLOSE)
    held = learner.held_weights()
    if expected.get("hold") in ("fisher", "path", "sensitivity"):
        assert held is not None
        for name, tensor in reference.held.items():
            torch.testing.assert_close(held.values[name], tensor, rtol=2e-2, atol=1e-3 * float(tensor.max()))


def test_the_head_of_tsc_is_made_of_the_means_of_all_shots_over_all_views():
    network = double_base()
    learner = make_learner("tsc", network, seed=0, settings=STEPS)
    assert isinstance(learner, Consolidation)
    for task in TASKS[:2]:
        learner.learn_task(task.support)
    shots, labels = (torch.cat([getattr(task.support, part) for task in TASKS[:2]]) for part in ("images", "labels"))
    views = torch.stack([network.embed(view(shots, number), learner.fast) for number in range(11)]).mean(0)
    means = torch.stack([views[labels == label].mean(0) for label in range(6)])
    asked = torch.stack([network.embed(view(POOL.images[:9], number), learner.fast) for number in range(11)]).mean(0)
    scores = learner.predict(POOL.images[:9])
    distances = (asked[:, None] - means[None]).square().sum(2)
    torch.testing.assert_close(scores[:, :1] - scores, (distances - distances[:, :1]) / 20, rtol=1e-6, atol=1e-9)


def test_fast_learning_goes_on_with_the_head_alone_once_the_embedding_stands():
    learner = make_learner("fsw", double_base(), seed=0, settings={**STEPS, "steps": 5})
    assert isinstance(learner, Consolidation)
    still = make_learner("fsw", double_base(), seed=0, settings=STEPS)
    assert isinstance(still, Consolidation)
    for each in (learner, still):
        each.learn_task(TASKS[0].support)
    assert all(torch.equal(learner.fast[name], still.fast[name]) for name in still.fast)
    assert not torch.equal(learner.fast_head["weight"], still.fast_head["weight"])
