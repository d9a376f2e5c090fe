"""Derivatives by hand are those that torch finds, and gradients through the inner loop are those of the loss."""

import pytest
import torch
from torch import Tensor

from fscl.data.episode import Episode, sample_episode
from fscl.data.pool import ClassPool
from fscl.meta.base import BaseLearner
from fscl.meta.maml import Maml
from fscl.meta.mamlpp import MamlPlusPlus
from fscl.nets.curvature import Autograd, Scored, join
from fscl.nets.fast.conv4_curvature import Conv4Curvature
from fscl.nets.network import Network
from fscl.nets.params import Params, empty_head, grow_head
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_params
from fscl.rng import generator

DOUBLE = torch.float64


def weights_of(spec: NetworkSpec, *, odd_norms: bool) -> tuple[Network, Params]:
    random = generator(0, "weights")
    params = init_params(spec, random)
    network = TrainedNetwork(spec, params)
    head = grow_head(empty_head(network.n_features), 4, [random] * 4)
    weights = {name: tensor.to(DOUBLE) for name, tensor in join(params, head).items()}
    if odd_norms:  # scales of either sign, as training may make them
        for name, tensor in weights.items():
            if "norms" in name:
                weights[name] = torch.randn(tensor.shape, generator=random, dtype=DOUBLE)
    return network, weights


def a_batch(size: int, kind: str) -> Scored:
    random = generator(0, "batch")
    x = torch.rand(12, 1, size, size, generator=random, dtype=DOUBLE).to(memory_format=torch.channels_last)
    labels = torch.arange(12) % 4
    return Scored(x, labels, 12) if kind == "alone" else Scored(x, labels[5:], 5)


def close(found: Params, expected: Params) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9 * float(tensor.abs().max()), msg=name)


@pytest.fixture(params=["plain", "winograd"])
def convolution(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way to convolve, whatever the width; Winograd's in several pieces."""
    monkeypatch.setattr("fscl.nets.fast.conv4_curvature.FEWEST_FILTERS", 2 if request.param == "winograd" else 10**6)
    monkeypatch.setattr("fscl.nets.fast.winograd.Winograd.most_images", 5)


@pytest.mark.usefixtures("convolution")
@pytest.mark.parametrize("odd_norms", [False, True])
@pytest.mark.parametrize("kind", ["alone", "normalised by the first five"])
@pytest.mark.parametrize(
    ("width", "size"), [(4, 16), (16, 38)]
)  # 38: pooling drops a row, and tiles end beyond the border
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_conv4_gradients_by_hand_are_those_of_autograd(norm: str, width: int, size: int, kind: str, odd_norms: bool):
    spec = NetworkSpec.model_validate({"width": width, "image_size": size, "norm": norm})
    network, weights = weights_of(spec, odd_norms=odd_norms)
    batch = a_batch(size, kind)
    loss, grads, _ = Conv4Curvature(spec).gradient(weights, batch, keep=False)
    expected_loss, expected, _ = Autograd(network).gradient(weights, batch, keep=False)
    torch.testing.assert_close(loss, expected_loss)
    close(grads, expected)


@pytest.mark.usefixtures("convolution")
@pytest.mark.parametrize("odd_norms", [False, True])
@pytest.mark.parametrize("moved", ["all", "all but the norms"])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_conv4_hessian_products_by_hand_are_those_of_autograd(norm: str, moved: str, odd_norms: bool):
    spec = NetworkSpec.model_validate({"width": 16, "image_size": 38, "norm": norm})
    network, weights = weights_of(spec, odd_norms=odd_norms)
    batch, random = a_batch(38, "alone"), generator(0, "direction")
    direction = {
        name: torch.randn(tensor.shape, generator=random, dtype=DOUBLE)
        for name, tensor in weights.items()
        if moved == "all" or "norms" not in name
    }
    by_hand, by_torch = Conv4Curvature(spec), Autograd(network)
    found = by_hand.product(by_hand.gradient(weights, batch, keep=True)[2], direction)
    close(found, by_torch.product(by_torch.gradient(weights, batch, keep=True)[2], direction))


def doubles(learner: BaseLearner, spec: NetworkSpec) -> Params:
    meta = learner.init(spec, n_way=3, n_classes=20, generator=generator(0, "init"))
    random = generator(0, "noise")  # so that no two steps, rates or scales are alike
    return {
        name: (tensor + 0.1 * torch.rand(tensor.shape, generator=random)).double().requires_grad_()
        for name, tensor in meta.items()
    }


def an_episode(pool: ClassPool) -> Episode:
    return sample_episode(pool, n_way=3, n_shot=2, n_query=3, generator=generator(0, "episode"))


LEARNERS: dict[str, tuple[BaseLearner, float]] = {
    "maml": (Maml(inner_steps=3, inner_rate=0.3), 0.0),
    "maml, first order": (Maml(inner_steps=3, inner_rate=0.3, first_order=True), 0.0),
    "maml, transductive": (Maml(inner_steps=2, inner_rate=0.3, transductive=True), 0.0),
    "maml++, early": (MamlPlusPlus(inner_steps=3), 0.05),
    "maml++, late": (MamlPlusPlus(inner_steps=3), 0.5),
    "maml++, first order": (MamlPlusPlus(inner_steps=3, first_order_until=0.5), 0.05),
    "maml++, transductive": (MamlPlusPlus(inner_steps=2, transductive=True), 0.05),
    "maml++ without learned rates": (MamlPlusPlus(inner_steps=3, learned_rates=False), 0.05),
    "maml++ without per-step affine": (MamlPlusPlus(inner_steps=3, per_step_affine=False), 0.05),
    "maml++ without per-step statistics": (MamlPlusPlus(inner_steps=3, per_step_statistics=False), 0.05),
    "maml++ with nothing": (
        MamlPlusPlus(
            inner_steps=3, multi_step_loss=False, learned_rates=False, per_step_affine=False, per_step_statistics=False
        ),
        0.05,
    ),
}


@pytest.mark.parametrize("backbone", ["conv4", "resnet18"])
@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("name", LEARNERS)
def test_the_fast_gradient_is_that_of_the_loss(name: str, norm: str, backbone: str, small_pool: ClassPool):
    learner, done = LEARNERS[name]
    spec = NetworkSpec.model_validate({"width": 8, "image_size": 16, "norm": norm, "backbone": backbone})
    meta, episode = doubles(learner, spec), an_episode(small_pool)
    loss, grads = learner.gradients(spec, meta, episode, done)
    expected = learner.loss(spec, meta, episode, done)
    slow: tuple[Tensor, ...] = torch.autograd.grad(expected, list(meta.values()), materialize_grads=True)
    torch.testing.assert_close(loss.double(), expected.detach())
    close(dict(zip(meta, grads, strict=True)), dict(zip(meta, slow, strict=True)))


def test_one_inner_step_has_one_set_of_statistics(small_pool: ClassPool):
    spec = NetworkSpec(width=8, image_size=16, norm="batch")
    own, shared = (MamlPlusPlus(inner_steps=1, per_step_statistics=flag) for flag in (True, False))
    meta, episode = doubles(own, spec), an_episode(small_pool)
    network = own.network(spec, meta)
    found = shared.query_scores(network, meta, episode)
    torch.testing.assert_close(found, own.query_scores(network, meta, episode))


def test_maml_plus_plus_without_its_changes_is_maml(small_pool: ClassPool):
    # per-step statistics stay on: MAML here also normalises queries by the support set at the weights at hand
    spec = NetworkSpec(width=8, image_size=16, norm="batch")
    plain = Maml(inner_steps=3, inner_rate=0.2)
    bare = MamlPlusPlus(
        inner_steps=3, inner_rate=0.2, multi_step_loss=False, learned_rates=False, per_step_affine=False
    )
    meta, episode = doubles(plain, spec), an_episode(small_pool)
    assert doubles(bare, spec).keys() == meta.keys()
    for found, expected in zip(
        bare.gradients(spec, meta, episode)[1], plain.gradients(spec, meta, episode)[1], strict=True
    ):
        torch.testing.assert_close(found, expected)
