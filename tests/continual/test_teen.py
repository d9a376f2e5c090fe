"""TEEN: calibration by hand, its limits, and a base session."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fscl.continual.methods.teen import CalibratedMeans, calibrated
from fscl.continual.registry import make_learner
from fscl.errors import MisuseError
from fscl.nets.precomputed import precomputed_features
from fscl.rng import generator
from fscl.testing import POOL, TASKS, small_base

BASE = torch.tensor([[2.0, 0.0], [0.0, 5.0]])


def on_rows(class_means: Tensor | None = BASE, **settings: Any) -> CalibratedMeans:
    extras = {} if class_means is None else {"class_means": class_means.half()}
    network = replace(precomputed_features(2), extras=extras)
    return CalibratedMeans(network, CalibratedMeans.Settings(**settings), seed=0)


def rows(*values: tuple[float, float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_mean_is_moved_as_worked_out_by_hand():
    share, temperature = 0.25, 2.0
    mean = rows((3.0, 4.0))  # cosines 0.6 and 0.8 to the two base classes
    first = 1 / (1 + torch.tensor(temperature * 0.2, dtype=torch.float64).exp())
    expected = torch.stack([0.75 * 0.6 + 0.25 * first, 0.75 * 0.8 + 0.25 * (1 - first)])
    torch.testing.assert_close(calibrated(mean, BASE.double(), share, temperature)[0], expected)


def test_scores_are_cosines_to_the_calibrated_mean_of_the_shots():
    learner = on_rows(share=0.5, temperature=0.0)  # every base class alike
    learner.learn_features(rows((2.0, 8.0), (4.0, 0.0)), torch.tensor([0, 0]))
    moved = rows((0.5 * 0.6 + 0.25, 0.5 * 0.8 + 0.25))
    asked = rows((1.0, 0.0), (-2.0, 5.0))
    torch.testing.assert_close(learner.scores(asked)[:, 0], torch.cosine_similarity(asked, moved))


def test_a_share_of_none_is_the_cosine_to_class_means():
    learner = on_rows(share=0.0)
    learner.learn_features(rows((2.0, 8.0), (4.0, 0.0), (-1.0, 1.0)), torch.tensor([0, 0, 1]))
    asked = rows((1.0, 0.3))
    cosines = torch.stack([torch.cosine_similarity(asked, mean) for mean in rows((3.0, 4.0), (-1.0, 1.0))], 1)
    torch.testing.assert_close(learner.scores(asked), cosines)


def test_a_share_of_all_at_a_high_temperature_is_the_nearest_base_class():
    learner = on_rows(share=1.0, temperature=1e4)
    learner.learn_features(rows((3.0, 4.0)), torch.tensor([0]))
    torch.testing.assert_close(learner.directions, rows((0.0, 1.0)))


def base_session(n: int = 30) -> tuple[Tensor, Tensor]:
    return torch.rand(3 * n, 2, generator=generator(0, "session"), dtype=torch.float64), torch.arange(3).repeat(n)


@pytest.mark.parametrize(("n", "settings", "is_one"), [
    (30, {}, True), (29, {}, False), (30, {"base_session": "no"}, False), (2, {"base_session": "yes"}, True),
])  # fmt: skip
def test_the_classes_of_a_base_session_are_not_calibrated(n: int, settings: dict[str, Any], is_one: bool):
    learner, (features, labels) = on_rows(**settings), base_session(n)
    learner.learn_features(features, labels)
    means = torch.stack([features[label == labels].mean(0) for label in range(3)])
    plain = torch.nn.functional.normalize(means)
    moved = torch.nn.functional.normalize(calibrated(means, BASE.double(), 0.5, 16.0))
    torch.testing.assert_close(learner.directions, plain if is_one else moved)
    learner.learn_features(rows((3.0, 4.0)).repeat(40, 1), torch.full((40,), 3))  # later ones are, however large
    new = torch.nn.functional.normalize(calibrated(rows((3.0, 4.0)), BASE.double(), 0.5, 16.0))
    torch.testing.assert_close(learner.directions[3:], new)


def test_without_class_means_in_the_base_those_of_the_base_session_are_taken():
    learner, (features, labels) = on_rows(None), base_session()
    learner.learn_features(features, labels)
    learner.learn_features(rows((3.0, 1.0)), torch.tensor([3]))
    means = torch.stack([features[label == labels].mean(0) for label in range(3)])
    new = torch.nn.functional.normalize(calibrated(rows((3.0, 1.0)), means, 0.5, 16.0))
    torch.testing.assert_close(learner.directions[3:], new)
    assert not learner.without_class(0)


def test_a_base_without_class_means_is_refused_before_anything_is_learned():
    with pytest.raises(MisuseError, match=r"teen, .* needs 'class_means' from the base"):
        on_rows(None, base_session="no")
    learner = on_rows(None)
    with pytest.raises(MisuseError, match=r"base_session = 'yes'.* needs 'class_means' from the base"):
        learner.learn_features(rows((3.0, 4.0)), torch.tensor([0]))
    assert learner.n_classes == 0


def test_a_restored_learner_knows_its_base_session():
    one, other = on_rows(None), on_rows(None)
    one.learn_features(*base_session())
    other.restore(one.state())
    for learner in (one, other):
        learner.learn_features(rows((3.0, 1.0)), torch.tensor([3]))
    assert torch.equal(one.directions, other.directions)


def test_a_class_of_the_base_session_can_be_taken_out():
    learner = on_rows()
    learner.learn_features(*base_session())
    learner.learn_features(rows((3.0, 1.0)), torch.tensor([3]))
    before = learner.directions
    assert learner.without_class(1)
    torch.testing.assert_close(learner.directions, before[[0, 2, 3]])
    assert learner.n_base.item() == 2


def test_it_learns_tasks_of_pictures():
    learner = make_learner("teen", small_base())
    for task in TASKS:
        learner.learn_task(task.support)
    assert learner.predict(POOL.images).abs().max() <= 1 + 1e-6
