"""IDA from task to task: what it holds, what it leaves free, and its limits."""

from typing import Any

import pytest
import torch

from fscl.continual.methods.alignment import Alignment
from fscl.continual.objectives import leave_one_out, spread
from fscl.continual.registry import make_learner
from fscl.data.pool import Examples
from fscl.errors import Divergence, MisuseError
from fscl.nets.anchors import discriminant_divergence
from fscl.nets.network import Network
from fscl.nets.precomputed import precomputed_features
from fscl.testing import POOL, TASKS, small_base


def ida(norm: Any = "group", **settings: Any) -> Alignment:
    learner = make_learner("ida", small_base(norm), settings={"steps": 5, "learning_rate": 5e-3, **settings})
    assert isinstance(learner, Alignment)
    return learner


def in_double(network: Network) -> Network:
    """Adam makes whole steps of gradients that are rounding alone; in double precision there are none."""
    statistics = network.statistics and {name: tensor.double() for name, tensor in network.statistics.items()}
    return network.with_weights({name: tensor.double() for name, tensor in network.params.items()}, statistics)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("weight", [0.0, 3.0])
def test_a_second_task_is_learned_as_by_hand(norm: str, weight: float):
    network = in_double(small_base(norm))  # type: ignore[arg-type]
    learner = Alignment(network, Alignment.Settings(steps=5, learning_rate=5e-3, weight=weight), seed=0)
    learner.learn_task(TASKS[0].support)
    before, anchors, support = dict(learner.weights), learner.anchors.clone(), TASKS[1].support
    weights = {name: tensor.clone().requires_grad_() for name, tensor in before.items()}
    optimiser = torch.optim.Adam(weights.values(), lr=5e-3)
    x = network.to_input(support.images)
    old = network.features(x, before, statistics=network.statistics)
    temperature = 0.3 * spread(old, support.labels)
    for _ in range(5):
        features = network.features(x, weights, statistics=network.statistics)
        loss = leave_one_out(features, support.labels, temperature)
        assert loss is not None
        if weight:
            loss = loss + weight * discriminant_divergence(features, old, anchors, temperature)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    learner.learn_task(support)
    for name, tensor in weights.items():
        torch.testing.assert_close(learner.weights[name], tensor.detach(), rtol=1e-6, atol=1e-8)
    features = network.embed(support.images, learner.weights)
    means = torch.stack([features[support.labels == label].mean(0) for label in range(3, 6)])
    torch.testing.assert_close(learner.anchors[3:], means)
    assert learner.diagnostics()["moved"] > 0


def test_no_weight_is_no_alignment_bit_for_bit():
    one, other, held = ida(weight=0), ida(alignment="none"), ida(weight=10)
    for task in TASKS:
        for learner in (one, other, held):
            learner.learn_task(task.support)
    assert all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)
    assert not torch.equal(one.predict(POOL.images), held.predict(POOL.images))


def test_anchors_of_old_classes_stay_to_the_last_bit():
    learner = ida()
    learner.learn_task(TASKS[0].support)
    first = learner.anchors.clone()
    learner.learn_task(TASKS[1].support)
    learner.learn_task(TASKS[2].support)
    assert torch.equal(learner.anchors[:3], first)
    assert learner.counts.tolist() == [3] * 9


@pytest.mark.parametrize("alignment", ["discriminant", "features"])
def test_a_large_weight_holds_what_it_holds(alignment: str):
    def change(weight: float) -> dict[str, float]:
        learner = ida(alignment=alignment, weight=weight, steps=30, temperature=1.0)
        learner.learn_task(TASKS[0].support)
        old, anchors = learner.features(TASKS[1].support.images), learner.anchors.clone()
        learner.learn_task(TASKS[1].support)
        new = learner.features(TASKS[1].support.images)
        temperature = spread(old, TASKS[1].support.labels)
        return {
            "discriminant": discriminant_divergence(new, old, anchors, temperature).item(),
            "features": (new - old).square().sum(1).mean().item() / temperature,
        }

    free, held = change(0.0), change(1e4)
    assert held[alignment] < free[alignment] / 20
    if alignment == "discriminant":  # what no anchor notices may move
        assert held["features"] > 20 * held["discriminant"]


def test_a_class_that_returns_moves_its_anchor_to_the_mean_of_all_its_shots():
    learner = Alignment(precomputed_features(2), Alignment.Settings(), seed=0)
    rows = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]]).double()
    learner.learn_task(Examples(rows, torch.tensor([0, 0, 1])))
    learner.learn_task(Examples(torch.tensor([[4.0, 1.0]]).double(), torch.tensor([0])))
    torch.testing.assert_close(learner.anchors, torch.tensor([[5 / 3, 2 / 3], [5.0, 5.0]], dtype=torch.float64))
    assert learner.counts.tolist() == [3, 1]
    assert learner.predict(torch.tensor([[4.5, 4.5]]).double()).argmax(1).item() == 1


def test_single_shots_move_nothing():
    learner = ida()
    learner.learn_task(Examples(POOL.images[::12][:3], torch.arange(3)))
    assert all(torch.equal(tensor, learner.network.params[name]) for name, tensor in learner.weights.items())


def test_a_task_that_is_fitted_moves_nothing_more():
    learner = ida(temperature=1e-4, alignment="none", learning_rate=1e-4, steps=40)
    learner.learn_task(TASKS[0].support)
    assert learner.diagnostics()["loss"] == 0
    before = dict(learner.weights)
    learner.learn_task(Examples(TASKS[0].support.images, TASKS[0].support.labels))
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.weights.items())


def test_anchors_of_the_base_hold_the_first_task_and_are_no_answers():
    with_base, without = ida(base_anchors=True), ida()
    for learner in (with_base, without):
        learner.learn_task(TASKS[0].support)
    assert with_base.n_classes == without.n_classes == 3
    assert any(not torch.equal(with_base.weights[name], without.weights[name]) for name in without.weights)
    assert with_base.stored_bytes()["weights"] > without.stored_bytes()["weights"]
    with pytest.raises(MisuseError, match="ida with base_anchors needs 'class_means'"):
        make_learner("ida", precomputed_features(2), settings={"base_anchors": True})


def test_a_restored_learner_goes_on_with_the_same_bits():
    learner = ida("batch", base_anchors=True)
    learner.learn_task(TASKS[0].support)
    again = ida("batch", base_anchors=True)
    again.restore(learner.state())
    for each in (learner, again):
        each.learn_task(TASKS[1].support)
    assert all(torch.equal(tensor, again.state().tensors[name]) for name, tensor in learner.state().tensors.items())


def test_divergence_is_an_error_that_leaves_the_learner_as_it_was():
    learner = ida(learning_rate=1e30)
    with pytest.raises(Divergence, match=r"ida diverged in task 1: .* Lower it"):
        learner.learn_task(TASKS[0].support)
    assert learner.n_classes == 0
