"""The online head: the dual form against plain steps, rows by hand, the limit of a small rate, and Adam."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fscl.continual.methods.online import RATE, Online
from fscl.continual.registry import make_learner
from fscl.nets.online import online_pass, online_scores
from fscl.nets.precomputed import precomputed_features
from fscl.rng import generator
from fscl.testing import POOL, TASKS, small_base, taught


def on_rows(width: int, **settings: Any) -> Online:
    """On features given by hand."""
    return Online(precomputed_features(width), Online.Settings.model_validate(settings), seed=0)


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(0, "features", *shape), dtype=torch.float64)


def step_by_step(features: Tensor, labels: Tensor, rate: float, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """A linear head after plain gradient descent, one example at a time."""
    weight, bias = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    optimiser = torch.optim.SGD([weight, bias], lr=rate)
    for feature, label in zip(features, labels, strict=True):
        optimiser.zero_grad()
        cross_entropy((weight @ feature + bias)[None], label[None]).backward()
        optimiser.step()
    return weight.detach(), bias.detach()


def clustered(n_classes: int, n_shot: int, n_features: int) -> tuple[Tensor, Tensor]:
    """Positive features of classes that overlap, class after class."""
    random = generator(0, "clusters")
    labels = torch.arange(n_classes).repeat_interleave(n_shot)
    centres = torch.rand(n_classes, n_features, generator=random)
    return (centres[labels] + 0.3 * torch.randn(len(labels), n_features, generator=random)).clamp(min=0), labels


def test_the_dual_form_is_the_pass_step_by_step():
    features, weight, bias, query = doubles(12, 4), doubles(5, 4), doubles(5), doubles(7, 4)
    labels = torch.arange(12) % 5
    found, moved = step_by_step(features, labels, 0.3, weight, bias)
    errors = online_pass(features, labels, 0.3, features @ weight.T + bias)
    scores = online_scores(query, features, errors, 0.3, query @ weight.T + bias)
    torch.testing.assert_close(scores, query @ found.T + moved, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("passes", [1, 3])
def test_the_learner_has_the_rows_of_a_pass_step_by_step_over_several_tasks(passes: int):
    learner, spare = on_rows(3, rate=0.2, unit=False, rows="random", spare=6, passes=passes), 6
    weight, bias = (learner.head[name].double() for name in ("weight", "bias"))
    for task, labels in enumerate((torch.tensor([1, 0, 1]), torch.tensor([2, 1, 3]))):
        features = torch.randn(3, 3, generator=generator(0, "task", task))
        learner.learn_features(features, labels)
        weight, bias = step_by_step(features.double().repeat(passes, 1), labels.repeat(passes), 0.2, weight, bias)
    assert learner.head["weight"].shape == (spare, 3)
    torch.testing.assert_close(learner.head["weight"].double(), weight, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(learner.head["bias"].double(), bias, rtol=1e-5, atol=1e-6)


def test_one_example_moves_its_own_row_towards_it_and_the_others_a_little_away():
    learner, feature = on_rows(2, rate=0.5, unit=False, spare=4), torch.tensor([[3.0, 1.0]])
    learner.learn_features(feature, torch.tensor([0]))
    weight, bias = (learner.head[name].float() for name in ("weight", "bias"))
    torch.testing.assert_close(weight[0], 0.5 * 0.75 * feature[0])
    torch.testing.assert_close(weight[1:], -0.5 * 0.25 * feature.expand(3, 2))
    torch.testing.assert_close(bias, 0.5 * torch.tensor([0.75, -0.25, -0.25, -0.25]))
    assert learner.scores(feature).shape == (1, 1)  # rows of classes that never came are not answered


@pytest.mark.parametrize("unit", [False, True])
def test_with_a_small_rate_the_answer_is_the_largest_product_with_the_sum_of_a_class(unit: bool):
    features, labels = clustered(8, 3, 10)
    learner = on_rows(10, rate=1e-5, unit=unit)
    for start in range(0, len(labels), 6):  # two classes a task
        learner.learn_features(features[start : start + 6], labels[start : start + 6])
    query = clustered(60, 2, 10)[0]
    known, asked = (normalize(features), normalize(query)) if unit else (features, query)
    sums = torch.zeros(8, 10).index_add(0, labels, known)
    assert torch.equal(learner.scores(query).argmax(1), (asked @ sums.T).argmax(1))


def test_with_ever_more_spare_rows_other_rows_are_pushed_ever_less():
    features, labels = clustered(5, 3, 6)
    sums = torch.zeros(5, 6).index_add(0, labels, normalize(features))
    away = []
    for spare in (5, 50, 5000):
        learner = on_rows(6, rate=0.1, unit=True, spare=spare)
        learner.learn_features(features, labels)
        away.append(float((learner.head["weight"][:5] / 0.1 - sums).abs().max()))
    assert away[0] > away[1] > away[2]
    assert away[2] < 1e-2 * float(sums.abs().max())


def test_the_order_of_classes_matters():
    features, labels = clustered(2, 3, 4)
    learners = on_rows(4, rate=1.0), on_rows(4, rate=1.0)
    learners[0].learn_features(features, labels)
    learners[1].learn_features(features.flip(0), labels.flip(0))
    one, other = (learner.head["weight"] for learner in learners)
    assert not torch.allclose(one, other, rtol=1e-3)


@pytest.mark.parametrize("settings", [{"spare": 4}, {"optimiser": "adam", "spare": 4}, {"rows": "random"}], ids=str)
def test_a_learner_restored_in_mid_stream_ends_with_the_same_bits(settings: dict[str, Any]):
    network = small_base()
    learner = taught(lambda base: make_learner("online", base, settings=settings), network, TASKS[:2])
    again = make_learner("online", network, settings=settings)
    again.restore(learner.state())
    for each in (learner, again):
        each.learn_task(TASKS[2].support)
    assert all(torch.equal(tensor, again.state().tensors[name]) for name, tensor in learner.state().tensors.items())
    assert torch.equal(learner.predict(POOL.images), again.predict(POOL.images))


def test_adam_goes_on_from_task_to_task_as_if_they_were_one():
    features, labels = clustered(3, 4, 5)
    at_once, in_parts = (on_rows(5, optimiser="adam", rate=0.01, spare=6) for _ in range(2))
    at_once.learn_features(features, labels)
    for start in range(0, len(labels), 4):
        in_parts.learn_features(features[start : start + 4], labels[start : start + 4])
    assert torch.equal(at_once.head["weight"], in_parts.head["weight"])
    assert float(at_once.moments["step"]["weight"]) == len(labels)


def test_adam_takes_the_steps_of_torch_on_the_rows():
    features, labels = clustered(2, 1, 3)
    learner = on_rows(3, optimiser="adam", rate=0.05, unit=False, spare=2)
    learner.learn_features(features, labels)
    layer = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.05)
    for feature, label in zip(features, labels, strict=True):
        optimiser.zero_grad()
        cross_entropy(layer(feature)[None], label[None]).backward()
        optimiser.step()
    torch.testing.assert_close(learner.head["weight"].float(), layer.weight.detach())


def test_rows_beyond_the_spare_ones_come_with_their_classes_and_leave_the_others_alone():
    learner = on_rows(2, rows="random", spare=1, rate=1e-9)
    first = learner.head["weight"].clone()
    learner.learn_features(torch.ones(3, 2), torch.tensor([0, 1, 2]))
    torch.testing.assert_close(learner.head["weight"][:1], first)
    torch.testing.assert_close(learner.head["weight"], on_rows(2, rows="random", spare=3).head["weight"])


def test_rate_and_length_are_those_of_the_base_unless_set():
    plain = small_base()
    trained = replace(plain, extras={"rate": torch.tensor(0.25), "unit": torch.tensor(0.0)})
    learner = make_learner("online", trained)
    assert isinstance(learner, Online)
    assert (learner.rate, learner.unit) == (0.25, False)
    other = make_learner("online", trained, settings={"rate": 0.5, "unit": True})
    assert isinstance(other, Online)
    assert (other.rate, other.unit) == (0.5, True)
    without = make_learner("online", plain)
    assert isinstance(without, Online)
    assert (without.rate, without.unit) == (RATE, True)


def test_of_unit_length_scores_do_not_know_how_long_a_feature_was():
    features, labels = clustered(3, 2, 4)
    learner = on_rows(4, unit=True)
    learner.learn_features(features, labels)
    torch.testing.assert_close(learner.scores(7 * features), learner.scores(features))


def test_of_unit_length_the_newest_class_wins_on_its_own_image_however_short_its_feature():
    features = torch.tensor([[10.0, 1.0], [1.0, 0.5]])
    answers = []
    for unit in (True, False):
        learner = on_rows(2, unit=unit)
        for label, feature in enumerate(features):
            learner.learn_features(feature[None], torch.tensor([label]))
        answers.append(int(learner.scores(features[1:]).argmax()))
    assert answers == [1, 0]  # raw, the long feature of the first class hides it
