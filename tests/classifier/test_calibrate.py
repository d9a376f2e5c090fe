"""How sure the classifier is: temperatures, thresholds and estimates by leaving stored examples out."""

import numpy as np
import pytest
import torch

from fscl.classifier.calibrate import likeliest_temperature, matching_temperature
from fscl.classifier.unknown import fit_unknown
from fscl.continual.held_out import distances_without
from fscl.testing import POOL
from tests.classifier.models import BASE, classifier, examples
from tests.continual.quick import quick

PROBE = POOL.images[:30]


@pytest.mark.parametrize("method", ["prototypes", "tsc", "head"])
def test_probabilities_are_the_softmax_of_the_scores_over_the_temperature(method: str):
    model = classifier(method, settings=quick(method, steps=4)).fit(*examples(2, 0, 1))
    snapshot = model._model.snapshot
    temperature = snapshot.knowledge.calibration.temperature
    assert temperature != pytest.approx(1, abs=0.05)
    by_hand = torch.softmax(snapshot.learner.predict(PROBE).double() / temperature, 1)
    by_hand = by_hand[:, [1, 2, 0]]  # class-0 came second, class-1 third
    np.testing.assert_allclose(model.predict_proba(PROBE[:, 0].numpy()), by_hand.numpy(), rtol=1e-9)
    answer = model.explain(PROBE[0, 0].numpy())
    assert answer.probability == pytest.approx(float(by_hand[0].max()))


def test_a_head_that_is_trained_promises_what_the_rule_of_succession_allows():
    model = classifier("head", settings={"steps": 30}).fit(*examples(0, 1, 2))
    stored, labels = examples(0, 1, 2)
    assert model.estimated_accuracy_ is not None
    n_right = round(model.estimated_accuracy_ * len(labels))
    promised = model.predict_proba(stored).max(1).mean()
    assert promised == pytest.approx((n_right + 1) / (len(labels) + 2), abs=2e-3)


def test_the_score_of_unknown_and_its_threshold_are_of_the_stored_features_and_the_left_out_scores():
    model = classifier().fit(*examples(0, 1, 2, n=8))
    labels = torch.arange(3).repeat_interleave(8)
    features = BASE.embed(torch.cat([POOL.of_class(i)[:8] for i in range(3)]))
    left_out = -distances_without(features, labels, 3).sqrt()
    unknown = fit_unknown(features, labels, 3, left_out)
    assert unknown is not None
    assert unknown.threshold is not None
    asked = POOL.of_class(0)[10:11]
    answer = model.explain(asked[0, 0].numpy())
    assert answer.threshold == pytest.approx(unknown.threshold, rel=1e-4)
    means = torch.stack([features[labels == i].mean(0) for i in range(3)])
    scores = -torch.cdist(BASE.embed(asked), means)
    assert answer.unknown_score == pytest.approx(float(unknown.score(BASE.embed(asked), scores)), rel=1e-3)
    assert answer.unknown == (answer.unknown_score > answer.threshold)


def test_leaving_one_out_of_three_points_by_hand():
    features = torch.tensor([[0.0], [2.0], [9.0]])
    distances = distances_without(features, torch.tensor([0, 0, 1]), 2)
    assert distances.tolist() == [[4, 81], [4, 49], [64, torch.inf]]


def test_probabilities_are_neither_surer_nor_less_sure_than_the_left_out_examples_allow():
    random = np.random.default_rng(0)
    labels = torch.from_numpy(random.integers(0, 4, 4000))
    truth = torch.from_numpy(random.normal(size=(4000, 4)))
    truth[torch.arange(4000), labels] += 2  # of such data exp(2 · score) is the likelihood
    assert likeliest_temperature(truth * 10, labels) == pytest.approx(5, rel=0.1)
    sure = matching_temperature(truth, 0.7)
    assert torch.softmax(truth / sure, 1).amax(1).mean() == pytest.approx(0.7, abs=1e-3)
    perfect = likeliest_temperature(torch.eye(3) * 9, torch.arange(3))
    assert torch.softmax(torch.eye(3) * 9 / perfect, 1).diagonal().mean() == pytest.approx(0.8, abs=1e-3)  # 4 of 5
