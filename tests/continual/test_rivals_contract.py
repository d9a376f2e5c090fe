"""What all rivals on frozen features promise."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fscl.continual.frozen import FrozenFeatures
from fscl.continual.learner import LearnerState
from fscl.data.pool import Examples
from fscl.errors import DataError, StorageError
from fscl.nets.network import Network
from fscl.storage import load_tensors, save_tensors
from tests.continual.rivals import (
    N_FEATURES,
    POOL,
    TASKS,
    at_once,
    base,
    discriminant,
    each_rival,
    in_three_tasks,
    projection,
    taught,
    toy_features,
)


@each_rival
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_rival_that_went_through_a_file_goes_on_with_the_same_bits(
    make: Callable[[Network], FrozenFeatures], norm: str, tmp_path: Path
):
    learner = taught(make, base(norm), 2)
    state = learner.state()
    save_tensors(tmp_path / "learner.safetensors", "learner", state.tensors, state.details)
    again = make(base(norm))
    again.restore(LearnerState(*load_tensors(tmp_path / "learner.safetensors", "learner")))
    assert torch.equal(again.predict(POOL.images), learner.predict(POOL.images))
    for each in (learner, again):
        each.learn_task(TASKS[2].support)
    assert torch.equal(again.predict(POOL.images), learner.predict(POOL.images))


@each_rival
def test_a_state_before_the_first_task_can_be_restored(make: Callable[[Network], FrozenFeatures]):
    learner, again = make(base()), taught(make, base(), 1)
    again.restore(learner.state())
    assert again.n_classes == 0
    for each in (learner, again):
        each.learn_task(TASKS[0].support)
    assert torch.equal(again.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))


@each_rival
def test_states_are_copies_both_ways(make: Callable[[Network], FrozenFeatures]):
    learner = taught(make, base())
    before = learner.predict(POOL.images[:20])
    state = learner.state()
    again = make(base())
    again.restore(state)
    for tensor in state.tensors.values():
        tensor.zero_()
    assert torch.equal(learner.predict(POOL.images[:20]), before)
    assert torch.equal(again.predict(POOL.images[:20]), before)


@each_rival
def test_a_prediction_does_not_depend_on_the_rest_of_the_batch(make: Callable[[Network], FrozenFeatures]):
    learner = taught(make, base())
    features = learner.network.embed(POOL.images)
    each = torch.cat([learner.scores(f[None]) for f in features])
    torch.testing.assert_close(each, learner.scores(features), rtol=1e-6, atol=1e-6)

    together = learner.predict(POOL.images)
    alone = torch.cat([learner.predict(image[None]) for image in POOL.images])
    rounding = 1e-5 * float(together.abs().max())  # of the features: convolutions of other batches have other last bits
    torch.testing.assert_close(alone, together, rtol=0, atol=rounding)
    torch.testing.assert_close(learner.predict(POOL.images.flip(0)), together.flip(0), rtol=0, atol=rounding)
    assert torch.equal(alone.argmax(1), together.argmax(1))
    assert learner.predict(POOL.images[:0]).shape == (0, 9)


@each_rival
@pytest.mark.parametrize("n_shot", [1, 4])
def test_shots_that_do_not_differ_give_finite_scores(make: Callable[[Network], FrozenFeatures], n_shot: int):
    for image in (POOL.images[:1], torch.zeros_like(POOL.images[:1])):
        learner = make(base())
        for label in range(2):
            learner.learn_task(Examples(image.repeat(n_shot, 1, 1, 1), torch.full((n_shot,), label)))
            assert bool(learner.predict(POOL.images[:20]).isfinite().all())


@each_rival
def test_features_that_are_zero_give_finite_scores(make: Callable[[Network], FrozenFeatures]):
    learner = at_once(make(base()), torch.zeros(4, N_FEATURES), torch.tensor([0, 0, 1, 1]))
    assert bool(learner.scores(toy_features()[0]).isfinite().all())


@each_rival
def test_a_dimension_without_spread_does_no_harm(make: Callable[[Network], FrozenFeatures]):
    features, labels = toy_features()
    features[:, 3] = 0
    scores = in_three_tasks(make(base()), features, labels).scores(features)
    assert bool(scores.isfinite().all())
    assert float((scores.argmax(1) == labels).double().mean()) > 0.8


@each_rival
def test_a_class_of_one_shot_is_recognised_once_it_is_learned(make: Callable[[Network], FrozenFeatures]):
    learner = make(base())
    for label in range(len(POOL)):
        image = POOL.of_class(label)[:1]
        learner.learn_task(Examples(image, torch.tensor([label])))
        assert learner.predict(image).argmax(1).item() == label


@each_rival
def test_new_shots_of_a_known_class_are_learned(make: Callable[[Network], FrozenFeatures]):
    learner = taught(make, base(), 1)
    before = learner.predict(POOL.images[:20])
    learner.learn_task(Examples(POOL.images[:4], torch.tensor([3, 1, 3, 0])))
    assert learner.n_classes == 4
    assert not torch.equal(learner.predict(POOL.images[:20])[:, :3], before)


@each_rival
def test_a_rival_learns_its_classes(make: Callable[[Network], FrozenFeatures]):
    learner = taught(make, base())
    right = [learner.predict(task.query.images).argmax(1) == task.query.labels for task in TASKS]
    assert float(torch.cat(right).double().mean()) > 3 / 9


@each_rival
def test_the_support_is_neither_changed_nor_kept(make: Callable[[Network], FrozenFeatures]):
    mine = Examples(TASKS[0].support.images.clone(), TASKS[0].support.labels.clone())
    learner = make(base())
    learner.learn_task(mine)
    assert torch.equal(mine.images, TASKS[0].support.images)
    assert torch.equal(mine.labels, TASKS[0].support.labels)
    mine.images.zero_()
    mine.labels.zero_()
    assert torch.equal(learner.predict(POOL.images[:20]), taught(make, base(), 1).predict(POOL.images[:20]))


@each_rival
def test_a_task_that_fails_leaves_the_rival_as_it_was(
    make: Callable[[Network], FrozenFeatures], monkeypatch: pytest.MonkeyPatch
):
    learner = taught(make, base(), 1)
    before, scores = learner.state(), learner.predict(POOL.images[:20])

    def fail(*_: object) -> None:
        raise RuntimeError("no solution")

    with pytest.raises(DataError):
        learner.learn_task(Examples(POOL.images[:1, :, :8], torch.tensor([3])))
    for name in ("solve", "cholesky"):
        monkeypatch.setattr(torch.linalg, name, fail)
    if make in (discriminant, projection):
        with pytest.raises(RuntimeError, match="no solution"):
            learner.learn_task(TASKS[1].support)
    after = learner.state()
    assert after.details == before.details
    assert all(torch.equal(after.tensors[name], tensor) for name, tensor in before.tensors.items())
    assert torch.equal(learner.predict(POOL.images[:20]), scores)


@each_rival
def test_a_foreign_state_is_refused_and_changes_nothing(make: Callable[[Network], FrozenFeatures]):
    learner = taught(make, base(), 1)
    with pytest.raises(StorageError, match="missing or too many"):
        learner.restore(LearnerState({"nonsense": torch.zeros(1)}, {}))
    assert learner.n_classes == 3


@each_rival
def test_scores_have_the_precision_of_the_network(make: Callable[[Network], FrozenFeatures]):
    assert taught(make, base()).predict(POOL.images[:2]).dtype == torch.float32
    assert taught(make, base(double=True)).predict(POOL.images[:2]).dtype == torch.float64
