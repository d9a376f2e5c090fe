"""Heads as methods on frozen features: what the learner answers is what the head says of all its shots."""

from dataclasses import replace

import pytest
import torch

from fscl.continual.heads import AnyHead, LinearDiscriminant, Logistic, Plda, Ridge
from fscl.continual.methods.heads import FrozenHead
from fscl.continual.registry import find_method, make_learner
from fscl.data.pool import Examples
from fscl.errors import DataError, Divergence
from tests.continual.rivals import N_FEATURES, POOL, TASKS, at_once, base, in_three_tasks, toy_features

METHODS = {"ridge": Ridge(), "logistic": Logistic(), "lda": LinearDiscriminant(), "plda": Plda()}
each_method = pytest.mark.parametrize("method", METHODS)


def learner(method: str) -> FrozenHead:
    made = make_learner(method, base())
    assert isinstance(made, FrozenHead)
    return made


@each_method
def test_a_method_is_its_head_with_default_settings(method: str):
    settings = find_method(method).settings_in_force()
    assert isinstance(settings, FrozenHead.Settings)
    assert settings.head == METHODS[method]


@each_method
def test_in_a_stream_it_answers_as_a_head_fitted_to_all_shots_at_once(method: str):
    features, labels = toy_features()
    query, head = toy_features(seed=1)[0], METHODS[method]
    in_stream = in_three_tasks(learner(method), features, labels).scores(query)
    torch.testing.assert_close(in_stream, head.scores(head.fit(features, labels, 6), query), rtol=1e-4, atol=1e-4)


@each_method
def test_images_are_learned_by_their_features(method: str):
    taught, head = learner(method), METHODS[method]
    for task in TASKS:
        taught.learn_task(task.support)
    shots = torch.cat([taught.network.embed(task.support.images) for task in TASKS])
    fitted = head.fit(shots, torch.cat([task.support.labels for task in TASKS]), 9)
    torch.testing.assert_close(taught.predict(POOL.images), head.scores(fitted, taught.network.embed(POOL.images)))


@each_method
def test_what_it_holds_out_is_the_heads_answer_in_folds(method: str):
    features, labels = toy_features()
    rare = (labels != 5) | (torch.arange(len(labels)) == int((labels == 5).nonzero()[0]))
    features, labels = features[rare], labels[rare]
    held = at_once(learner(method), features, labels).held_out_scores(features, features, labels)
    assert held is not None
    assert torch.equal(held.labels, labels[labels != 5])  # one shot alone cannot be left out
    assert torch.equal(held.scores, METHODS[method].in_folds(features, labels, 6)[labels != 5])
    assert bool(held.scores.isfinite().all())


@each_method
def test_without_a_stored_shot_of_a_class_nothing_is_held_out(method: str):
    features, labels = toy_features()
    taught, some = at_once(learner(method), features, labels), labels < 5
    assert taught.held_out_scores(features[some], features[some], labels[some]) is None


@each_method
def test_the_bytes_of_features_count_as_memory(method: str):
    features, labels = toy_features()
    stored = at_once(learner(method), features, labels).stored_bytes()
    assert stored["memory"] == len(labels) * (4 * N_FEATURES + 8)


@each_method
def test_a_fit_that_fails_leaves_everything_as_it_was(method: str):
    taught = learner(method)
    taught.learn_task(TASKS[0].support)
    before, scores = taught.state(), taught.predict(POOL.images[:20])
    with pytest.raises(DataError):
        taught.learn_task(Examples(POOL.images[:1, :, :8], torch.tensor([3])))
    with pytest.raises(Divergence, match="fitted to finite features"):
        taught.learn_features(torch.full((1, N_FEATURES), torch.nan), torch.tensor([3]))
    assert taught.n_classes == 3
    assert all(torch.equal(tensor, before.tensors[name]) for name, tensor in taught.state().tensors.items())
    assert torch.equal(taught.predict(POOL.images[:20]), scores)


@pytest.mark.parametrize("head", [LinearDiscriminant(), Plda()], ids=lambda head: head.kind)
def test_statistics_that_the_base_carries_are_used(head: AnyHead):
    features, _ = toy_features()
    spread = torch.linspace(0.1, 5, N_FEATURES).diag()
    extras = {"within": spread, "between": torch.eye(N_FEATURES), "mean": torch.zeros(N_FEATURES)}
    network = replace(base(), extras=extras)
    taught = at_once(FrozenHead(network, FrozenHead.Settings(head=head), seed=0), features[:6], torch.arange(6))
    expected = head.fit(features[:6], torch.arange(6), 6, extras)
    assert torch.equal(taught.scores(features), head.scores(expected, features))
    assert not torch.equal(taught.scores(features), head.scores(head.fit(features[:6], torch.arange(6), 6), features))
