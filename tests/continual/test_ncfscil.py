"""NC-FSCIL: the geometry of its vertices, its loss, old classes, and what it refuses."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fscl.continual.methods import ncfscil
from fscl.continual.methods.ncfscil import FixedFrame, alignment_loss, fresh_projector, project, simplex
from fscl.continual.registry import find_method
from fscl.data.stream import StreamSpec
from fscl.errors import Divergence, MisuseError
from fscl.nets.precomputed import precomputed_features
from fscl.rng import generator

QUICK = {"vertices": 6, "steps": 40, "learning_rate": 3e-3}


def on_rows(**settings: Any) -> FixedFrame:
    return FixedFrame(precomputed_features(4), FixedFrame.Settings(**(QUICK | settings)), seed=0)


def shots(*labels: int) -> tuple[Tensor, Tensor]:
    """Two of each class, close together."""
    centres = torch.randn(6, 4, generator=generator(0, "centres"), dtype=torch.float64)
    own = torch.tensor(labels).repeat_interleave(2)
    return centres[own] + 0.05 * torch.randn(len(own), 4, generator=generator(1, *labels), dtype=torch.float64), own


@pytest.mark.parametrize("n", [2, 5, 100, 600])
def test_vertices_have_unit_length_and_the_same_angle(n: int):
    frame = simplex(n, generator(0, "simplex"))
    expected = torch.full((n, n), -1 / (n - 1)).fill_diagonal_(1.0)
    torch.testing.assert_close(frame @ frame.T, expected, rtol=0, atol=1e-5)
    assert frame.shape == (n, max(512, n))


def test_the_loss_is_nothing_at_the_vertices_and_twenty_opposite_to_them():
    frame = simplex(5, generator(0, "simplex"))
    assert alignment_loss(3 * frame, frame).item() == pytest.approx(0, abs=1e-10)  # of whatever length
    assert alignment_loss(-frame, frame).item() == pytest.approx(20, rel=1e-5)  # 10 · ½ · 2²
    assert alignment_loss(frame.roll(1, 0), frame).item() == pytest.approx(5 * 1.25**2, rel=1e-4)  # cosine −1/4


def test_the_projector_is_two_normalised_layers_a_third_and_a_skip():
    params = fresh_projector(3, 5, generator(0, "projector"))
    assert {name: tuple(tensor.shape) for name, tensor in params.items() if name.endswith("weight")} == {
        "first/weight": (6, 3), "second/weight": (6, 6), "third/weight": (5, 6), "skip/weight": (5, 3),
    }  # fmt: skip
    layers = torch.nn.Sequential(
        torch.nn.Linear(3, 6), torch.nn.LayerNorm(6), torch.nn.LeakyReLU(0.1),
        torch.nn.Linear(6, 6), torch.nn.LayerNorm(6), torch.nn.LeakyReLU(0.1), torch.nn.Linear(6, 5, bias=False),
    )  # fmt: skip
    names = ["first/weight", "first/bias", "first/scale", "first/shift"]
    names += [name.replace("first", "second") for name in names]
    for parameter, name in zip(layers.parameters(), [*names, "third/weight"], strict=True):
        parameter.data = params[name]
    rows = torch.randn(7, 3, generator=generator(0, "rows"))
    torch.testing.assert_close(project(params, rows), layers(rows) + rows @ params["skip/weight"].T)


def test_shots_come_to_their_vertices():
    learner = on_rows(steps=150)
    features, labels = shots(0, 1, 2)
    learner.learn_features(features, labels)
    own = learner.scores(features).gather(1, labels[:, None])
    assert own.min() > 0.9
    assert learner.scores(features).argmax(1).tolist() == labels.tolist()
    assert learner.diagnostics()["loss"] < 0.05


def test_old_classes_are_trained_through_their_means(monkeypatch: pytest.MonkeyPatch):
    learner, seen = on_rows(steps=1), []
    first, labels = shots(0, 1)
    learner.learn_features(first, labels)

    def watch(projected: Tensor, targets: Tensor) -> Tensor:
        seen.append(targets)
        return alignment_loss(projected, targets)

    monkeypatch.setattr(ncfscil, "alignment_loss", watch)
    monkeypatch.setattr(ncfscil, "project", lambda params, rows: (seen.append(rows), project(params, rows))[1])
    second, later = shots(2)
    learner.learn_features(second, later)
    rows, targets = seen
    assert torch.equal(targets, learner.frame[[2, 2, 0, 1]])
    means = torch.stack([first[labels == label].mean(0) for label in (0, 1)])
    torch.testing.assert_close(rows, 2 * normalize(torch.cat([second, means])).float())  # of length √4


def test_means_keep_old_classes_where_shots_alone_would_lose_them():
    learner = on_rows(steps=150)
    first, labels = shots(0, 1, 2)
    learner.learn_features(first, labels)
    for label in (3, 4, 5):
        learner.learn_features(*shots(label))
    assert (learner.scores(first).argmax(1) == labels).double().mean() > 0.8


def test_more_classes_than_vertices_are_refused_before_anything_is_learned():
    learner = on_rows(vertices=2)
    learner.learn_features(*shots(0, 1))
    before = learner.state().tensors
    with pytest.raises(MisuseError, match=r"has 2 vertices for classes, .* there are 3 classes\. Set vertices"):
        learner.learn_features(*shots(2))
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state().tensors.items())
    assert "in advance" in find_method("nc_fscil").summary


def test_a_training_that_diverges_leaves_the_learner_as_it_was():
    learner = on_rows(learning_rate=1e30)
    with pytest.raises(Divergence, match=r"nc_fscil diverged: .* Lower learning_rate"):
        learner.learn_features(*shots(0, 1))
    assert learner.n_classes == 0


@pytest.mark.parametrize("batch_size", [256, 3])
def test_a_restored_learner_goes_on_with_the_same_bits(batch_size: int):
    one, other = on_rows(batch_size=batch_size), on_rows(batch_size=batch_size)
    one.learn_features(*shots(0, 1, 2))
    other.restore(one.state())
    for learner in (one, other):
        learner.learn_features(*shots(3))
    assert torch.equal(one.scores(shots(0, 3)[0]), other.scores(shots(0, 3)[0]))


def test_random_rows_of_a_step_differ_from_task_to_task():
    one, other = on_rows(batch_size=3), on_rows(batch_size=3)
    for learner in (one, other):
        learner.learn_features(*shots(0, 1, 2))
    other.n_tasks = other.n_tasks + 1
    for learner in (one, other):
        learner.learn_features(*shots(3, 4))
    assert not torch.equal(one.scores(shots(0)[0]), other.scores(shots(0)[0]))


def test_a_stream_of_more_classes_than_vertices_is_refused_before_it_begins():
    learner = on_rows(vertices=2)
    learner.check_stream(StreamSpec(n_tasks=1, n_way=2))
    with pytest.raises(
        MisuseError, match=r"has 2 vertices for classes, but the stream brings 4 classes\. Set vertices"
    ):
        learner.check_stream(StreamSpec(n_tasks=2, n_way=2))
