"""Test images asked alone, and together under that name: what influences what."""

import pytest
import torch

from fscl.continual.learner import ContinualLearner
from fscl.continual.registry import make_learner
from fscl.data.pool import Examples
from fscl.evaluation.asking import TOGETHER, Asker, Prediction, ask
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import generator
from fscl.testing import noise_pool

POOL = noise_pool(n_classes=8, n_images=30)
TOGETHER_WAYS: list[Prediction] = ["transductive-mixed", "transductive-sorted"]


def learned(method: str, norm: str) -> ContinualLearner:
    spec = NetworkSpec.model_validate({"norm": norm, "width": 8, "image_size": 16})
    network = init_network(spec, generator(0, "base"))
    if network.needs_statistics:
        network = network.with_weights(network.params, network.freeze_statistics(network.to_input(POOL.images)))
    learner = make_learner(method, network, seed=0, settings={"steps": 3} if method == "replay" else {})
    shots = [POOL.of_class(label)[:3] for label in range(8)]
    learner.learn_task(Examples(torch.cat(shots), torch.arange(8).repeat_interleave(3)))
    return learner


def queries() -> dict[str, Examples]:
    """Two tasks: of the first five classes, and of the others."""
    of = {label: POOL.of_class(label)[3:] for label in range(8)}
    return {
        name: Examples(torch.cat([of[label] for label in labels]), torch.tensor(labels).repeat_interleave(27))
        for name, labels in {"first": [0, 1, 2, 3, 4], "second": [5, 6, 7]}.items()
    }


@pytest.mark.parametrize("method", ["replay", "prototypes"])
@pytest.mark.parametrize("how", TOGETHER_WAYS)
def test_without_batchnorm_together_is_alone(method: str, how: Prediction) -> None:
    learner, asked = learned(method, "group"), queries()
    alone, together = (ask(learner, asked, way, seed=0) for way in ("inductive", how))
    for name in asked:
        assert torch.allclose(alone[name], together[name], atol=1e-5)


@pytest.mark.parametrize("method", ["replay", "prototypes"])
@pytest.mark.parametrize("how", TOGETHER_WAYS)
def test_with_batchnorm_images_that_are_asked_together_influence_each_other(method: str, how: Prediction) -> None:
    learner, asked = learned(method, "batch"), queries()
    alone, together = (ask(learner, asked, way, seed=0) for way in ("inductive", how))
    assert all(not torch.allclose(alone[name], together[name], atol=1e-3) for name in asked)


def test_batches_of_one_class_are_normalised_by_it_alone() -> None:
    learner, asked = learned("replay", "batch"), queries()
    scores = ask(learner, asked, "transductive-sorted", seed=0)["second"]
    of_six = asked["second"].labels == 6
    assert torch.equal(scores[of_six], learner.predict_together(asked["second"].images[of_six]).cpu())


def test_mixed_batches_are_drawn_over_all_tasks_and_answers_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, asked, sizes = learned("replay", "batch"), queries(), []
    images = torch.cat([query.images for query in asked.values()])

    def numbers(seen: torch.Tensor) -> torch.Tensor:
        """The place of each image among all, as its score."""
        sizes.append(len(seen))
        return torch.stack([(images == image).flatten(1).all(1).nonzero()[0] for image in seen]).float()

    monkeypatch.setattr(learner, "predict_together", numbers)
    found = ask(learner, asked, "transductive-mixed", seed=0)
    assert torch.cat(list(found.values()))[:, 0].tolist() == list(range(216))
    assert sum(sizes) == 216
    assert max(sizes) <= TOGETHER
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("method", ["prototypes", "replay"])
def test_asking_again_gives_the_answers_of_what_was_learned_since(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, asked, seen = learned(method, "group"), queries(), []
    features = type(learner).features
    monkeypatch.setattr(
        type(learner), "features", lambda self, images: seen.append(len(images)) or features(self, images)
    )
    asker = Asker(learner, "inductive")
    first = asker.scores(asked, seed=0)
    learner.learn_task(Examples(POOL.of_class(0)[3:9].flip(2), torch.full((6,), 8)))
    again, expected = asker.scores(asked, seed=1), ask(learner, asked, "inductive", seed=1)
    for name in asked:
        assert again[name].shape[1] == 9
        assert first[name].shape[1] == 8
        assert torch.equal(again[name], expected[name])
    by_ask = [135, 81]
    assert seen == ([135, 81] if method == "prototypes" else [135, 81, 135, 81]) + by_ask


def test_seconds_count_features_that_were_computed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, asked = learned("prototypes", "group"), queries()
    clock = iter(range(100))
    monkeypatch.setattr("fscl.evaluation.asking.time.perf_counter", lambda: float(next(clock)))
    asker = Asker(learner, "inductive")
    asker.scores(asked, seed=0)
    fresh = asker.seconds
    asker.scores(asked, seed=0)
    assert fresh == 5  # from the first look at the clock to the last, which are two for each query between
    assert asker.seconds == 1 + 2  # of this time, and of each query then
