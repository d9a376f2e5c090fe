"""Importance of weights against closed forms, and how it holds a learner."""

import math
from collections.abc import Mapping
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.continual.consolidation import Consolidation
from fscl.continual.registry import make_learner
from fscl.continual.regularisers import ComingTask, gradient_ratio
from fscl.continual.regularisers.ewc import fisher_information
from fscl.continual.regularisers.importance import Importance, accumulated, weighed_anchor
from fscl.continual.regularisers.mas import output_sensitivity
from fscl.continual.regularisers.si import path_importance
from fscl.data.pool import ClassPool
from fscl.data.stream import Stream, StreamSpec, sample_stream
from fscl.errors import Divergence
from fscl.nets.network import Network
from fscl.nets.params import Params, grow_head, linear, trainable_copy
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import generator


class Scale:
    """Features that are the input times one weight for each: all of a network that importance asks for."""

    def features(self, x: Tensor, params: Mapping[str, Tensor], **_: Any) -> Tensor:
        return x * params["scale"]


def toy(scale: list[float]) -> tuple[Network, Params]:
    return cast(Network, Scale()), {"scale": torch.tensor(scale)}


def small_network() -> Network:
    return init_network(NetworkSpec(width=8, image_size=16), generator(0, "base"))


@pytest.fixture(scope="module")
def stream(small_pool: ClassPool) -> Stream:
    return sample_stream(small_pool, StreamSpec(n_tasks=3, n_way=3, n_shot=3, n_query=5), generator(0, "stream"))


def learner_with(regulariser: str, **settings: Any) -> Consolidation:
    given = {"steps": 12, "learning_rate": 5e-3, "regulariser": {"kind": regulariser, **settings}}
    learner = make_learner("replay", small_network(), seed=0, settings=given)
    assert isinstance(learner, Consolidation)
    return learner


def importance_of(learner: Consolidation) -> Params:
    assert isinstance(learner.regulariser, Importance)
    return learner.regulariser.importance


def test_the_fisher_information_of_a_logistic_model_is_its_closed_form():
    network, params = toy([0.5, -1.0])
    head = {"weight": torch.tensor([[0.7, 0.2], [0.0, 0.0]]), "bias": torch.zeros(2)}
    x = torch.tensor([[1.0, 2.0], [-0.5, 0.3], [2.0, 1.0]])
    p = torch.sigmoid((x * params["scale"]) @ head["weight"][0])
    slope = x * head["weight"][0]  # of the score in each weight
    every = fisher_information(network, params, head, x, torch.tensor([0, 0, 1]), None, "all")
    torch.testing.assert_close(every["scale"], ((p * (1 - p))[:, None] * slope.square()).mean(0))
    true = fisher_information(network, params, head, x, torch.tensor([0, 0, 1]), None, "true")
    error = torch.stack([1 - p[0], 1 - p[1], p[2]])
    torch.testing.assert_close(true["scale"], (error[:, None] * slope).square().mean(0))


def test_the_sensitivity_of_a_linear_model_is_its_closed_form():
    network, params = toy([0.5, -1.0])
    head = {"weight": torch.tensor([[1.0, 0.0], [0.0, 3.0]]), "bias": torch.zeros(2)}
    x = torch.tensor([[1.0, 2.0], [-0.5, 0.3]])
    found = output_sensitivity(network, params, head, x, None)
    row = torch.tensor([1.0, 3.0])
    expected = (2 * (row * x).square() * params["scale"]).abs().mean(0)  # d/ds (r x s)²
    torch.testing.assert_close(found["scale"], expected)


def test_the_path_integral_of_gradient_descent_on_a_quadratic_is_the_fall_of_the_loss():
    curvature = torch.tensor([1.0, 4.0])
    weight = torch.tensor([1.0, -2.0], dtype=torch.float64)
    start, path = weight.clone(), torch.zeros(2, dtype=torch.float64)
    for _ in range(20_000):
        grad = curvature * weight
        step = -1e-4 * grad
        path -= grad * step
        weight = weight + step
    fall = 0.5 * (curvature * (start.square() - weight.square()))
    torch.testing.assert_close(path, fall, rtol=1e-3, atol=0)
    found = path_importance({"w": path}, {"w": weight - start}, damping=0.1)["w"]
    torch.testing.assert_close(found, path / ((weight - start).square() + 0.1))
    stood = path_importance({"w": torch.full((1,), 0.3)}, {"w": torch.zeros(1)}, damping=0.1)["w"]
    torch.testing.assert_close(stood, torch.tensor([3.0]))


def test_importance_adds_up_or_averages_and_is_never_negative():
    old, new = {"w": torch.tensor([1.0, 0.5])}, {"w": torch.tensor([4.0, -2.0])}
    assert accumulated(old, new, 2, "sum", 1.0)["w"].tolist() == [5.0, 0.0]
    assert accumulated(old, new, 2, "sum", 0.5)["w"].tolist() == [4.5, 0.0]
    assert accumulated(old, {"w": torch.tensor([4.0, 2.0])}, 2, "mean", 1.0)["w"].tolist() == [2.0, 1.0]


def test_one_quadratic_pulls_like_a_penalty_for_each_task():
    random = generator(0, "tasks")
    importances, weights = (torch.rand(3, 5, generator=random, dtype=torch.float64) for _ in range(2))
    at = torch.rand(5, generator=random, dtype=torch.float64)
    each = sum(2 * f * (at - w) for f, w in zip(importances, weights, strict=True))
    total, weighted = {"w": importances.sum(0)}, {"w": (importances * weights).sum(0)}
    anchor = weighed_anchor(total, weighted, {"w": torch.zeros(5, dtype=torch.float64)})["w"]
    torch.testing.assert_close(2 * total["w"] * (at - anchor), each)
    nothing = weighed_anchor({"w": torch.zeros(1)}, {"w": torch.zeros(1)}, {"w": torch.full((1,), 7.0)})
    assert nothing["w"].item() == 7.0


@pytest.mark.parametrize("regulariser", ["ewc", "si", "mas"])
def test_the_first_task_is_free_and_a_strong_penalty_holds_the_second(
    regulariser: str, stream: Stream, small_pool: ClassPool
):
    moved = []
    for strength in (0.0, 1e4):
        learner = learner_with(regulariser, strength=strength)
        learner.learn_task(stream.task(small_pool, 0).support)
        first = learner.fast
        assert "pull_ratio" not in learner.diagnostics()
        assert all(bool((tensor >= 0).all()) for tensor in importance_of(learner).values())
        assert any(bool((tensor > 0).any()) for tensor in importance_of(learner).values())
        learner.learn_task(stream.task(small_pool, 1).support)
        assert "pull_ratio" in learner.diagnostics()
        held = [
            (learner.fast[name] - first[name]) * learner_importance for name, learner_importance in _scaled(learner)
        ]
        moved.append(sum(float(difference.square().sum()) for difference in held))
    assert moved[1] < 0.5 * moved[0]


def _scaled(learner: Consolidation) -> list[tuple[str, Tensor]]:
    """What is important counts: a weight of no importance may move."""
    largest = max(float(tensor.max()) for tensor in importance_of(learner).values())
    return [(name, (tensor / largest).sqrt()) for name, tensor in importance_of(learner).items()]


def test_the_path_is_of_the_loss_alone_and_not_of_the_penalty(stream: Stream, small_pool: ClassPool):
    """One step of the second task, redone by hand: the gradient of the loss times the way that the penalised step went."""
    learner = learner_with("si", strength=50.0)
    learner.learn_task(stream.task(small_pool, 0).support)
    before = {name: tensor.clone() for name, tensor in importance_of(learner).items()}
    learner.settings = learner.settings.model_copy(update={"embedding_steps": 2, "steps": 2})
    network, start = learner.network, learner.slow
    replay = learner._replay(stream.task(small_pool, 1).support)
    rows = [generator(0, "head-row", label) for label in range(6)]
    fast, head = trainable_copy(start), trainable_copy(grow_head(learner.slow_head, 6, rows))
    optimiser = torch.optim.Adam([*fast.values(), *head.values()], lr=5e-3, betas=(0.5, 0.999))
    path = {name: torch.zeros_like(tensor) for name, tensor in fast.items()}
    for _ in range(2):
        optimiser.zero_grad()
        cross_entropy(linear(head, network.features(replay.x, fast)), replay.y).backward()
        here = {name: tensor.detach().clone() for name, tensor in fast.items()}
        by_loss: Params = {}
        for name, tensor in fast.items():
            assert tensor.grad is not None
            by_loss[name] = tensor.grad.clone()
            tensor.grad += 2 * 50.0 * before[name] * (here[name] - start[name])
        optimiser.step()
        for name, tensor in fast.items():
            path[name] -= by_loss[name] * (tensor.detach() - here[name])
    learner.learn_task(stream.task(small_pool, 1).support)
    for name, total in importance_of(learner).items():
        gained = path[name] / ((fast[name].detach() - start[name]).square() + 0.1)
        torch.testing.assert_close(total, (before[name] + gained).clamp_min(0), rtol=1e-4, atol=1e-7)


def test_a_penalty_for_each_task_pulls_to_the_weights_that_each_task_left(stream: Stream, small_pool: ClassPool):
    learner = learner_with("ewc", strength=1.0, accumulate="each", decay=0.5)
    left, importance = [], []
    for number in range(2):
        total = {name: tensor.clone() for name, tensor in importance_of(learner).items()}
        learner.learn_task(stream.task(small_pool, number).support)
        left.append(learner.fast)
        importance.append({name: tensor - 0.5 * total[name] for name, tensor in importance_of(learner).items()})
    learner.regulariser.before_task(ComingTask(2, learner.slow, lambda slow: None))
    at = {name: torch.ones_like(tensor) for name, tensor in learner.fast.items()}
    pulled = learner.regulariser.gradient(at)
    assert pulled is not None
    for name in at:
        shares = (0.5, 1.0)  # the first task's has decayed once
        each = [2 * share * f[name] * (1 - w[name]) for share, f, w in zip(shares, importance, left, strict=True)]
        torch.testing.assert_close(pulled[name], each[0] + each[1], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("accumulate", ["sum", "mean", "each"])
def test_a_state_goes_on_as_if_never_interrupted(accumulate: str, stream: Stream, small_pool: ClassPool):
    one, other = (learner_with("ewc", strength=10.0, accumulate=accumulate) for _ in range(2))
    for number in range(2):
        one.learn_task(stream.task(small_pool, number).support)
    other.restore(one.state())
    for learner in (one, other):
        learner.learn_task(stream.task(small_pool, 2).support)
    assert all(torch.equal(one.fast[name], other.fast[name]) for name in one.fast)


@pytest.mark.parametrize("regulariser", ["ewc", "si", "mas"])
def test_a_strength_that_blows_up_raises_with_the_remedy_and_changes_nothing(
    regulariser: str, stream: Stream, small_pool: ClassPool
):
    learner = learner_with(regulariser, strength=1.0)
    learner.learn_task(stream.task(small_pool, 0).support)
    before = learner.state().tensors
    assert isinstance(learner.regulariser, Importance)
    learner.regulariser.importance = {name: tensor + 1e38 for name, tensor in importance_of(learner).items()}
    stronger = learner.regulariser.settings.model_copy(update={"strength": 1e38})  # their product is infinite
    learner.regulariser.settings = stronger
    with pytest.raises(Divergence, match=r"diverged in task 2: .*strength 1e\+38\. Lower one of them"):
        learner.learn_task(stream.task(small_pool, 1).support)
    assert learner.n_classes == 3
    assert all(torch.equal(learner.fast[name], before[f"fast/{name}"]) for name in learner.fast)


@pytest.mark.parametrize("strength", [1e25, 1e31, 1e38])
@pytest.mark.parametrize("regulariser", ["tagging", "constant"])
def test_a_pull_whose_square_is_beyond_all_numbers_raises_with_the_remedy(
    regulariser: str, strength: float, stream: Stream, small_pool: ClassPool
):
    learner = learner_with(regulariser, strength=strength)
    with pytest.raises(Divergence, match=r"the gradient of the penalty overflows.*strength 1e\+.*Lower one of them"):
        learner.learn_task(stream.task(small_pool, 0).support)
    assert learner.n_classes == 0


def test_the_pull_ratio_can_be_written_down_even_where_the_loss_does_not_pull():
    pulled, nothing = {"weight": torch.tensor([3.0, 4.0])}, {"weight": torch.zeros(2)}
    assert gradient_ratio(pulled, {"weight": torch.tensor([0.0, 2.0])}) == pytest.approx(2.5)
    assert math.isfinite(gradient_ratio(pulled, nothing))


@pytest.mark.parametrize("regulariser", ["ewc", "si", "mas", "tagging", "constant"])
def test_a_large_strength_stays_finite(regulariser: str, stream: Stream, small_pool: ClassPool):
    learner = learner_with(regulariser, strength=1e6)
    for number in range(3):
        learner.learn_task(stream.task(small_pool, number).support)
    assert torch.isfinite(learner.predict(small_pool.images[:5])).all()


@pytest.mark.parametrize("regulariser", ["ewc", "si", "mas"])
def test_the_base_can_be_held_in_the_first_task_and_importance_takes_over_after_it(
    regulariser: str, stream: Stream, small_pool: ClassPool
):
    free, held = (learner_with(regulariser, strength=1e-6, first_strength=first) for first in (0.0, 100.0))
    for learner in (free, held):
        learner.learn_task(stream.task(small_pool, 0).support)
    assert "pull_ratio" not in free.diagnostics()
    assert held.diagnostics()["pull_ratio"] > 0
    assert held.diagnostics()["moved"] < free.diagnostics()["moved"] / 5
    held.learn_task(stream.task(small_pool, 1).support)  # now by importance, which is too weak to hold anything
    assert held.diagnostics()["pull_ratio"] < 1e-3
    assert held.diagnostics()["moved"] > free.diagnostics()["moved"] / 2


def test_the_first_task_is_held_as_the_constant_penalty_holds(stream: Stream, small_pool: ClassPool):
    learners = learner_with("ewc", strength=1.0, first_strength=0.3), learner_with("constant", strength=0.3)
    for learner in learners:
        learner.learn_task(stream.task(small_pool, 0).support)
    ewc, constant = (learner.fast for learner in learners)
    assert all(torch.equal(ewc[name], constant[name]) for name in constant)
