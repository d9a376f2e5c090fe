"""Estimates from stored examples: intervals, single examples, repeats, doubtful labels, and what a model keeps of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from fscl import ContinualClassifier
from fscl.classifier.calibrate import wilson
from fscl.classifier.unknown import unknown_score
from fscl.continual.registry import method_for, methods
from fscl.continual.tail.learner import TailConsolidation
from fscl.errors import MisuseError
from fscl.nets.network import Network
from fscl.nets.precomputed import precomputed_features
from fscl.nets.pretrained import pretrained_base
from fscl.testing import POOL, noise_pool
from tests.classifier.models import BASE, classifier, examples

TAIL = {"steps": 20, "learning_rate": 5e-3}  # moving pays with these
WIDE = noise_pool(10, 20)
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("prototypes", {}),
    ("ridge", {}),
    ("neighbour", {}),
    ("tsc", {"embedding_steps": 3}),
    ("head", {"steps": 10}),
    ("tsc_tail", TAIL),
]


def many(n: int, start: int = 0, n_classes: int = 8) -> tuple[np.ndarray, list[str]]:
    X = np.concatenate([WIDE.of_class(i)[start : start + n, 0].numpy() for i in range(n_classes)])
    return X, [f"class-{i}" for i in range(n_classes) for _ in range(n)]


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (0, 7), (3, 7), (7, 7), (50, 100), (199, 200), (1234, 5000)])
def test_the_interval_is_wilson_s(right: int, n: int):
    expected = binomtest(right, n).proportion_ci(confidence_level=0.95, method="wilson")
    assert wilson(right / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_estimate_has_the_interval_of_what_was_left_out():
    model = classifier().fit(*examples(0, 1, 2, n=4))
    found = model.estimate_
    assert found.n_left_out == 12
    assert found.accuracy is not None
    expected = binomtest(round(12 * found.accuracy), 12).proportion_ci(method="wilson")
    assert found.interval == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(("method", "settings"), KINDS)
def test_with_one_example_a_class_there_is_no_estimate_and_nobody_is_sure(method: str, settings: dict[str, Any]):
    X, y = examples(0, 1, 2, 3, 4, n=1)
    model = classifier(method, settings=settings).fit(X, y)
    found = model.estimate_
    assert (found.accuracy, found.interval, found.n_left_out) == (None, None, 0)
    assert model.history_[-1].accuracy is None
    own = model.predict_proba(X).max(1)
    assert own.mean() == pytest.approx(0.6, abs=0.01)  # half-way from one in five to certainty
    new = model.predict_proba(examples(0, 1, 2, 3, 4, n=6, start=1)[0]).max(1)
    assert new.mean() < 0.65


@pytest.mark.parametrize(("method", "settings"), KINDS)
def test_the_same_pictures_taught_twice_do_not_raise_the_estimate(method: str, settings: dict[str, Any]):
    X, y = many(6)
    model = classifier(method, settings=settings).partial_fit(X, y)
    first = model.estimate_
    model.partial_fit(X, y)
    again = model.estimate_
    assert (first.n_repeats, again.n_repeats) == (0, 48)
    assert again.n_left_out <= first.n_left_out
    assert first.accuracy is not None
    assert again.accuracy is not None
    if method == "tsc_tail":  # its weights have moved on, and are better now: the estimate must not be above the truth
        X, y = many(12, start=6)
        assert again.accuracy < np.mean(model.predict(X) == np.array(y)) + 0.05
    else:
        assert again.accuracy == pytest.approx(first.accuracy, abs=1e-9)


def test_one_picture_taught_twice_is_no_estimate():
    X, y = examples(0, 1, 2, n=1)
    model = classifier().partial_fit(X, y).partial_fit(X, y)
    assert (model.estimate_.accuracy, model.estimate_.n_repeats) == (None, 3)


@pytest.mark.parametrize("method", ["tsc", "prototypes", "ridge", "neighbour"])
def test_a_swapped_label_is_doubted_where_classes_are_far_apart(method: str):
    random = np.random.default_rng(0)
    rows = random.normal(size=(40, 8)) + 8 * np.eye(8)[:4].repeat(10, 0)
    labels = np.repeat(["ant", "bee", "cat", "dog"], 10)
    labels[13] = "dog"
    model = ContinualClassifier(method=method).fit(rows, labels)
    (doubt,) = model.estimate_.doubtful
    assert (doubt.number, doubt.label, doubt.likelier) == (14, "dog", "bee")
    assert doubt.probability > 0.5
    labels[13] = "bee"
    assert ContinualClassifier(method=method).fit(rows, labels).estimate_.doubtful == ()


def test_a_swapped_label_among_pictures_is_doubted_by_the_tail_too():
    X, y = many(12, n_classes=4)
    y[15] = "class-3"
    found = classifier("tsc_tail", settings=TAIL).fit(X, y).estimate_
    assert [(each.number, each.label, each.likelier) for each in found.doubtful] == [(16, "class-3", "class-1")]


@pytest.mark.parametrize(("method", "settings"), [KINDS[0], KINDS[3], KINDS[5]])
def test_what_tells_unknown_pictures_is_kept_to_the_bit(method: str, settings: dict[str, Any], tmp_path: Path):
    model = classifier(method, settings=settings).fit(*many(6)).save(tmp_path / "model")
    again = ContinualClassifier.load(tmp_path / "model")
    one, other = model._model.snapshot.knowledge, again._model.snapshot.knowledge
    assert one.calibration.threshold is not None
    assert one.calibration == other.calibration
    assert one.unknown.keys() == other.unknown.keys()
    assert all(torch.equal(tensor, other.unknown[name]) for name, tensor in one.unknown.items())
    X = WIDE.images[:30, 0].numpy()
    scores = [[answer.unknown_score for answer in each.explain_all(X)] for each in (model, again)]
    assert scores[0] == scores[1]
    rejected = [answer is None for answer in again.predict(X, reject=True)]
    assert rejected == [score > one.calibration.threshold for score in scores[0]]


def test_an_explanation_has_the_score_of_unknown_by_the_features_that_it_is_fitted_to():
    model = classifier("tsc_tail", settings=TAIL).fit(*many(6))
    snapshot = model._model.snapshot
    assert snapshot.learner.moves_embedding
    assert not snapshot.knowledge.calibration.unknown_in_base  # tails that left the examples out have set it
    images = WIDE.images[150:155]
    features = snapshot.learner.features(images)
    expected = unknown_score(snapshot.knowledge.unknown, features, snapshot.learner.scores(features))
    found = [answer.unknown_score for answer in model.explain_all(images[:, 0].numpy())]
    assert found == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-5)


def test_where_the_embedding_has_learned_from_the_examples_the_score_of_unknown_is_of_the_base():
    model = classifier("tsc", settings={"embedding_steps": 3}).fit(*many(6))
    snapshot = model._model.snapshot
    assert snapshot.knowledge.calibration.unknown_in_base
    images = WIDE.images[150:155]
    scores = snapshot.learner.predict(images)
    expected = unknown_score(snapshot.knowledge.unknown, BASE.embed(images), scores)
    found = [answer.unknown_score for answer in model.explain_all(images[:, 0].numpy())]
    assert found == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-5)


def frozen_base() -> Network:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 8, 4, stride=2), nn.ReLU(), nn.Conv2d(8, 12, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return pretrained_base(nn.Sequential(*layers, nn.Flatten()), image_size=16, channels=1)


def test_tsc_on_frozen_pictures_is_tsc_on_their_tail_and_elsewhere_it_is_itself():
    assert method_for("tsc", frozen_base()).name == "tsc_tail"
    assert method_for("tsc", BASE).name == "tsc"  # its weights may move
    assert method_for("tsc", precomputed_features(4)).name == "tsc"  # no pictures
    assert method_for("prototypes", frozen_base()).name == "prototypes"
    assert all(method.on_frozen is None or method.on_frozen in methods() for method in methods().values())
    model = ContinualClassifier(frozen_base(), "tsc").fit(POOL.images[:24, 0].numpy(), ["a"] * 12 + ["b"] * 12)
    assert isinstance(model._model.snapshot.learner, TailConsolidation)


def test_settings_that_are_wrong_name_the_method_that_they_are_for():
    for setting, value in (("embedding_steps", 3), ("slow_rates", [2.0])):
        model = ContinualClassifier(frozen_base(), "tsc", settings={setting: value})
        with pytest.raises(MisuseError, match=rf"settings has {setting}.*`fscl show tsc_tail` lists them"):
            model.fit(POOL.images[:4, 0].numpy(), list("aabb"))
