"""GeMCL as a base learner: its gradients, the prior that it trains and the one that it hands over."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import stats

from fscl.continual.registry import make_learner
from fscl.data.episode import sample_episode
from fscl.data.pool import Splits
from fscl.meta.gemcl import LOG_ALPHA, LOG_BETA, GeMCL, student_scores
from fscl.meta.protonet import prototype_scores
from fscl.meta.train import episode_accuracy
from fscl.nets.params import Params
from fscl.rng import generator
from fscl.testing import noise_pool
from tests.meta.small import TINY, train

EPISODE = sample_episode(noise_pool(), n_way=3, n_shot=2, n_query=3, generator=generator(0, "episode"))


def a_meta(learner: GeMCL) -> Params:
    meta = learner.init(TINY, n_way=3, n_classes=20, generator=generator(0, "init"))
    return {name: tensor.double().requires_grad_() for name, tensor in meta.items()}


@pytest.mark.parametrize("both_ways", [False, True])
def test_the_gradient_is_that_of_finite_differences(both_ways: bool):
    learner = GeMCL(alpha=3.0, beta=2.0, both_ways=both_ways)
    meta, random = a_meta(learner), generator(0, "direction")
    direction = {name: torch.randn(tensor.shape, generator=random).double() for name, tensor in meta.items()}
    _, gradients = learner.gradients(TINY, meta, EPISODE)
    along = sum((gradient * direction[name]).sum() for name, gradient in zip(meta, gradients, strict=True))
    losses = [
        learner.loss(TINY, {name: (tensor + size * direction[name]).detach() for name, tensor in meta.items()}, EPISODE)
        for size in (1e-6, -1e-6)
    ]
    torch.testing.assert_close(along, (losses[0] - losses[1]) / 2e-6, rtol=1e-4, atol=1e-7)
    assert all(gradient.abs().max() > 0 for gradient in gradients[-2:])  # the prior learns, too


def test_a_certain_prior_scores_as_class_means_do():
    support, query = (torch.randn(6, 4, generator=generator(0, part), dtype=torch.float64) for part in ("s", "q"))
    labels, certain = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor(1e8, dtype=torch.float64)
    scores = student_scores(support, labels, query, 3, certain, certain)  # of variance 1
    expected = prototype_scores(support, labels, query, 3) / 2
    torch.testing.assert_close(scores.softmax(1), expected.softmax(1), rtol=1e-5, atol=1e-7)


def test_training_moves_the_prior_and_validation_uses_it(splits: Splits, tmp_path: Path):
    learner = GeMCL(alpha=4.0, beta=8.0)
    trained = train(splits, tmp_path / "base.safetensors", learner)
    assert trained.meta[LOG_ALPHA].exp() != pytest.approx(4.0, abs=1e-4)
    moved = learner.with_learned(trained.meta)
    assert moved.alpha == pytest.approx(trained.meta[LOG_ALPHA].exp().item())
    assert moved.beta == pytest.approx(trained.meta[LOG_BETA].exp().item())
    assert not any(name.startswith("prior") for name in trained.network.params)
    extreme = trained.meta | {LOG_BETA: torch.tensor(40.0)}
    shape = {"n_way": 3, "n_shot": 2, "n_query": 3, "n_episodes": 3, "seed": 0}
    accuracies = [
        episode_accuracy(learner, trained.network, meta, splits.validation, **shape) for meta in (trained.meta, extreme)
    ]
    assert accuracies[0] != accuracies[1]  # so wide a prior tells no class from another


def test_the_base_hands_over_the_likeliest_prior_of_its_classes_and_the_method_takes_it(splits: Splits, tmp_path: Path):
    learner = GeMCL()
    trained = train(splits, tmp_path / "base.safetensors", learner)
    pool = splits.train
    extras = learner.extras(trained.network, trained.meta, pool)
    features = [trained.network.embed(pool.of_class(label)).double() for label in range(len(pool))]
    variances = [of_class.var(0).mean().item() for of_class in features]
    alpha, _, beta = stats.invgamma.fit(variances, floc=0)
    assert float(extras["prior/alpha"]) == pytest.approx(alpha, rel=1e-2)
    assert float(extras["prior/beta"]) == pytest.approx(beta, rel=1e-2)
    method = make_learner("gemcl", replace(trained.network, extras=extras))
    method.learn_task(EPISODE.support)
    assert method.diagnostics() == {
        "prior_alpha": float(extras["prior/alpha"]),
        "prior_beta": float(extras["prior/beta"]),
    }
