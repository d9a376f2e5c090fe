"""TOPIC: what holds, what moves, and what is kept."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from fscl.continual.methods import topology
from fscl.continual.methods.topology import FLOOR, Topology, anchor_loss, push_loss, session_scores
from fscl.continual.registry import make_learner
from fscl.data.pool import Examples
from fscl.errors import Divergence
from fscl.testing import POOL, TASKS, small_base


def topic(norm: Any = "group", **settings: Any) -> Topology:
    learner = make_learner("topic", small_base(norm), settings={"steps": 12, "learning_rate": 0.05, **settings})
    assert isinstance(learner, Topology)
    return learner


def test_the_anchor_term_is_zero_at_the_start_and_quadratic_in_a_shift():
    before = torch.rand(3, 4, dtype=torch.float64)
    shift = torch.tensor([0.1, 0.0, -0.2, 0.0], dtype=torch.float64)
    assert anchor_loss(before, before, None).item() == 0
    assert anchor_loss(before + shift, before, None).item() == pytest.approx(0.05 / 4)
    assert anchor_loss(before + 2 * shift, before, None).item() == pytest.approx(4 * 0.05 / 4)
    variances = torch.full_like(before, 0.5 - FLOOR / 4)
    variances[:, 2] = 0.1 - FLOOR / 4
    assert anchor_loss(before + shift, before, variances).item() == pytest.approx(0.01 / 0.5 + 0.04 / 0.1)
    assert anchor_loss(before, before, torch.zeros_like(before)).item() == 0


def test_as_shipped_nothing_is_held_before_the_first_step_of_a_session(monkeypatch: pytest.MonkeyPatch):
    losses = []

    def noted(*arguments: Any) -> torch.Tensor:
        found = anchor_loss(*arguments)
        losses.append(found.item())
        return found

    monkeypatch.setattr(topology, "anchor_loss", noted)
    learner = topic(preset="shipped", steps=3)
    learner.learn_task(TASKS[0].support)
    assert losses == []  # no node yet
    learner.learn_task(TASKS[1].support)
    assert losses[0] == 0
    assert losses[2] > 0


def test_nodes_are_pushed_up_to_the_margin():
    centroids = torch.tensor([[0.0, 0.0], [0.3, 0.4], [2.0, 0.0]])
    pairs = torch.tensor([[0, 1], [0, 2]])
    assert push_loss(centroids, pairs, 0.5).item() == pytest.approx((0.5 - 0.25) / 2)  # the second pair is far apart


def test_scores_of_other_sessions_teach_the_features_nothing():
    features, rows = torch.rand(4, 3, requires_grad=True), torch.rand(5, 3)
    own, learned = torch.tensor([1, 3]), torch.rand(2, 3, requires_grad=True)
    scores = session_scores(rows, own, learned, features)
    all_rows = rows.index_copy(0, own, learned)
    torch.testing.assert_close(scores, features @ all_rows.T)
    (grad,) = torch.autograd.grad(scores.sum(), features)
    torch.testing.assert_close(grad, learned.sum(0).expand(4, 3))


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_without_the_three_terms_it_is_plain_training_of_the_last_block_and_its_rows(norm: str):
    none = {"anchor_weight": 0, "pull_weight": 0, "push_weight": 0}
    learner, network = topic(norm, **none), small_base(norm)  # type: ignore[arg-type]
    learner.learn_task(TASKS[0].support)
    moved = {name: t.clone().requires_grad_() for name, t in learner.weights.items()}
    rows, support = learner._with_rows(6).requires_grad_(), TASKS[1].support
    optimiser = torch.optim.SGD([*moved.values(), rows], lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    x, fixed = network.to_input(support.images), rows.detach().clone()
    for step in range(12):
        features = normalize(network.features(x, {**network.params, **moved}, statistics=network.statistics))
        scores = torch.cat([features.detach() @ rows[:3].T, features @ rows[3:].T], 1)
        optimiser.zero_grad()
        cross_entropy(scores, support.labels).backward()
        optimiser.param_groups[0]["lr"] = 0.05 if step < 2 else 0.005  # the last ten steps
        optimiser.step()
        with torch.no_grad():
            rows[:3] = fixed[:3]  # rows of other sessions stand still
    learner.learn_task(support)
    torch.testing.assert_close(learner.rows, rows.detach(), rtol=1e-3, atol=1e-4)
    for name, tensor in moved.items():
        torch.testing.assert_close(learner.weights[name], tensor.detach(), rtol=1e-3, atol=1e-4)
    assert torch.equal(learner.rows[:3], fixed[:3])


@pytest.mark.parametrize("preset", ["described", "shipped"])
def test_only_the_last_block_moves_unless_all_shall(preset: str):
    last, all_of_it = topic("batch", preset=preset), topic("batch", preset=preset, moving="all")
    for learner in (last, all_of_it):
        for task in TASKS[:2]:
            learner.learn_task(task.support)
    base = last.network.params

    def moved(learner: Topology) -> set[str]:
        now = learner.starting_point().params
        return {name for name in base if not torch.equal(now[name], base[name])}

    assert moved(last) == {"convs.3.weight", "norms.3.weight", "norms.3.bias"}
    assert moved(all_of_it) == set(base)
    assert "weights/convs.0.weight" not in last.state().tensors
    assert last.stored_bytes()["weights"] < all_of_it.stored_bytes()["weights"] + base["convs.0.weight"].nbytes


def test_an_anchor_weight_holds_the_images_of_nodes():
    def drift(weight: float) -> float:
        learner = topic(anchor_weight=weight, preset="shipped", steps=40)
        learner.learn_task(TASKS[0].support)
        shown = learner.state().examples
        assert shown is not None
        before = normalize(learner.features(shown.images))
        learner.learn_task(TASKS[1].support)
        return float((normalize(learner.features(shown.images)) - before).norm())

    assert drift(350.0) < drift(0.0) / 2


def test_each_class_gets_a_node_with_the_shot_nearest_to_its_mean():
    learner = topic()
    for number, task in enumerate(TASKS, start=1):
        before = learner.graph
        learner.learn_task(task.support)
        graph, examples = learner.graph, learner.state().examples
        assert examples is not None
        assert len(graph) == len(examples) == 3 * number
        assert torch.equal(graph.centroids[: len(before)], before.centroids)  # old nodes stay in place
        features = normalize(learner.features(task.support.images))
        for node in range(3 * number - 3, 3 * number):
            own = task.support.labels == graph.labels[node]
            torch.testing.assert_close(graph.centroids[node], features[own].mean(0))
            torch.testing.assert_close(graph.variances[node], features[own].var(0, correction=0))
            nearest = (features[own] - features[own].mean(0)).norm(dim=1).argmin()
            assert torch.equal(examples.images[node], task.support.images[own][nearest])
        assert bool((graph.ages[-3:] > 0).any())
    assert learner.stored_bytes()["memory"] == 9 * (POOL.images[0].nbytes + 8)


def test_as_shipped_nothing_grows_after_the_first_task():
    learner = topic(preset="shipped")
    for task in TASKS:
        learner.learn_task(task.support)
    assert learner.graph.labels.tolist() == TASKS[0].support.labels.unique().tolist()
    assert learner.n_classes == 9


def test_a_base_session_builds_a_gas_on_features_that_stand_still():
    learner = topic(nodes=10)
    images = torch.cat([POOL.of_class(label)[:8] for label in range(4)])
    labels = torch.arange(4).repeat_interleave(8)
    shuffled = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    base = Examples(images[shuffled], labels[shuffled])
    learner.learn_task(base)
    remembered = learner.remembered()
    assert remembered is not None
    assert 4 <= len(learner.graph) <= 10
    assert remembered.kept.tolist() == sorted(set(remembered.kept.tolist()))
    assert torch.equal(base.labels[remembered.kept], learner.graph.labels)
    assert all(torch.equal(t, learner.network.params[name]) for name, t in learner.weights.items())
    assert (learner.predict(base.images).argmax(1) == base.labels).float().mean() > 0.75
    n_nodes = len(learner.graph)
    learner.learn_task(Examples(POOL.of_class(4)[:3], torch.full((3,), 4)))
    assert len(learner.graph) == n_nodes + 1


def test_a_known_class_moves_its_row_and_gets_no_second_node():
    learner = topic()
    learner.learn_task(TASKS[0].support)
    rows = learner.rows.clone()
    learner.learn_task(Examples(TASKS[0].support.images[:2], TASKS[0].support.labels[:2]))
    label = int(TASKS[0].support.labels[0])
    others = [other for other in range(3) if other != label]
    assert len(learner.graph) == 3
    assert not torch.equal(learner.rows[label], rows[label])
    assert torch.equal(learner.rows[others], rows[others])


@pytest.mark.parametrize("preset", ["described", "shipped"])
def test_a_restored_learner_goes_on_with_the_same_bits(preset: str):
    learner, again = topic("batch", preset=preset), topic("batch", preset=preset)
    for task in TASKS[:2]:
        learner.learn_task(task.support)
    again.restore(learner.state())
    for each in (learner, again):
        each.learn_task(TASKS[2].support)
    one, other = learner.state(), again.state()
    assert all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())
    assert one.examples is not None
    assert other.examples is not None
    assert torch.equal(one.examples.images, other.examples.images)


def test_a_class_that_is_gone_leaves_no_node_and_no_image():
    learner = topic()
    for task in TASKS:
        learner.learn_task(task.support)
    before = learner.graph
    assert learner.without_class(4)
    assert sorted(learner.graph.labels.tolist()) == list(range(8))
    stay = before.labels != 4
    assert torch.equal(learner.graph.centroids, before.centroids[stay])
    assert torch.equal(learner.graph.ages, before.ages[stay][:, stay])
    assert len(learner.state().examples or ()) == 8


def test_divergence_is_an_error_that_leaves_the_learner_as_it_was():
    learner = topic(learning_rate=1e38)
    with pytest.raises(Divergence, match=r"topic diverged in task 1: .* Lower it"):
        learner.learn_task(TASKS[0].support)
    assert learner.n_classes == 0
    assert learner.state().examples is None
