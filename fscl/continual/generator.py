"""Images of a class made up by a network, to replay instead of the shots: a small GAN, learned from the shots of one class.

The generator and the critic are those of A. Radford, L. Metz, S. Chintala, "Unsupervised Representation Learning with Deep
Convolutional Generative Adversarial Networks", 2016, with InstanceNorm in both; they learn as in I. Gulrajani, F. Ahmed,
M. Arjovsky, V. Dumoulin, A. Courville, "Improved Training of Wasserstein GANs", 2017.

L. Wang, Q. Li, Y. Zhong, J. Zhu, "Few-shot Continual Learning: a Brain-inspired Approach", 2021 (App. C), store 20 images of
each class, not the generator: it would weigh as much as 1853 images.

Departs from the paper, or settles what it leaves open:
- it prints no settings for the GAN: the losses, Adam and the critic steps are those of the gradient-penalty paper;
- every class has its own generator, from fresh weights; batches are drawn from the few shots with replacement;
- 128 latent numbers and no biases, with which the generator of 64×64 photographs has the paper's 3.80M weights.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fscl.errors import DataError, Divergence
from fscl.nets.work import work_is_unknown
from fscl.rng import generator as named_generator

Shape = tuple[int, int, int, int]
Decay = Annotated[float, Field(ge=0, lt=1)]

FIRST_MAP = 4  # pixels; the side of the generator's first map, and of every filter
WEIGHT_SCALE = 0.02  # standard deviation of fresh weights, as Radford et al. draw them
LEAK = 0.2  # slope of the critic's leaky ReLU below zero


class GeneratorSpec(BaseModel):
    """The shape of the GAN of one class and how long it learns; the defaults are the full size.

    Attributes:
        latent: numbers that an image is made from, each drawn from N(0, 1).
        width: channels of the 4×4 map, in generator and critic alike; halved at every doubling of the image.
        steps: steps of the generator.
        critic_steps: steps of the critic before each of the generator's.
        penalty: λ, the weight of the gradient penalty.
        learning_rate, betas: of Adam, for both.
        batch_size: shots, and as many made-up images, in a step.
        images_per_class: how many images to make up in the end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    latent: int = Field(default=128, ge=1, le=1024)
    width: int = Field(default=512, ge=8, le=1024)
    steps: int = Field(default=2000, ge=1)
    critic_steps: int = Field(default=5, ge=1, le=100)
    penalty: float = Field(default=10.0, ge=0)
    learning_rate: float = Field(default=1e-4, gt=0)
    betas: tuple[Decay, Decay] = (0.5, 0.9)
    batch_size: int = Field(default=16, ge=1, le=1024)
    images_per_class: int = Field(default=20, ge=1)


def parameter_counts(spec: GeneratorSpec, channels: int, image_size: int) -> tuple[int, int]:
    """How many weights the generator and the critic have for images of this shape."""
    generator, critic = _shapes(spec, channels, image_size)
    return sum(map(math.prod, generator)), sum(map(math.prod, critic))


def generate(images: Tensor, spec: GeneratorSpec, *, seed: int) -> Tensor:
    """New images (images_per_class, channels, size, size) of the class that the shots (n, channels, size, size) are of.

    Both are uint8. The same shots, spec and seed give the same images.
    """
    _check_shots(images)
    work_is_unknown()
    shots = images.float().div_(127.5).sub_(1)
    weights = _train(shots, spec, seed)
    with torch.no_grad():
        latents = torch.randn(spec.images_per_class, spec.latent, generator=_random(seed, "samples"))
        made = _make(weights, latents.to(shots.device))
    _refuse_divergence(made, spec, spec.steps)  # the last step may have been the one too far
    return made.add_(1).mul_(127.5).round_().to(torch.uint8)


def gradient_penalty(
    critic: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, generator: torch.Generator
) -> Tensor:
    """(‖∇D(x)‖ - 1)², mean over points x drawn between each real image and its fake one.

    The critic scores each image alone. The penalty can be differentiated with respect to the critic's weights.
    """
    where = torch.rand(len(real), 1, 1, 1, generator=generator, dtype=real.dtype).to(real.device)
    between = torch.lerp(fake.detach(), real, where).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norms: Tensor = torch.linalg.vector_norm(slope.flatten(1), dim=1)
    return (norms - 1).square().mean()


def _train(shots: Tensor, spec: GeneratorSpec, seed: int) -> list[Tensor]:
    """The weights of a generator of images like the shots, which are floats in [-1, 1]."""
    random = _random(seed, "weights")
    makers, critics = (
        [_fresh(shape, random, shots.device) for shape in shapes] for shapes in _shapes(spec, *shots.shape[1:3])
    )
    maker_adam, critic_adam = (torch.optim.Adam(w, spec.learning_rate, spec.betas) for w in (makers, critics))
    batches, noise, between = (_random(seed, name) for name in ("batches", "noise", "between"))

    def critic(x: Tensor) -> Tensor:
        return _score(critics, x)

    def latents() -> Tensor:
        return torch.randn(spec.batch_size, spec.latent, generator=noise).to(shots.device)

    for step in range(spec.steps):
        for _ in range(spec.critic_steps):
            real = shots[torch.randint(len(shots), (spec.batch_size,), generator=batches)]
            with torch.no_grad():
                fake = _make(makers, latents())
            of_real, of_fake = critic(torch.cat([real, fake])).chunk(2)
            loss = of_fake.mean() - of_real.mean()
            if spec.penalty > 0:
                loss = loss + spec.penalty * gradient_penalty(critic, real, fake, between)
            _step(critic_adam, critics, loss)
            _refuse_divergence(loss, spec, step + 1)
        _step(maker_adam, makers, -critic(_make(makers, latents())).mean())
    return makers


def _make(weights: Sequence[Tensor], latents: Tensor) -> Tensor:
    """The generator: images in [-1, 1] from latent numbers (n, latent)."""
    first, *others = weights
    x: Tensor = (latents @ first.flatten(1)).unflatten(
        1, first.shape[1:]
    )  # the transposed convolution of a single pixel
    for weight in others:
        x = F.conv_transpose2d(F.relu(F.instance_norm(x)), weight, stride=2, padding=1)
    return x.tanh()


def _score(weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """The critic: a score (n,) of each image, higher for what looks real. No norm on the first layer and the last."""
    first, *others, last = weights
    x = F.leaky_relu(F.conv2d(x, first, stride=2, padding=1), LEAK)
    for weight in others:
        x = F.leaky_relu(F.instance_norm(F.conv2d(x, weight, stride=2, padding=1)), LEAK)
    return x.flatten(1) @ last.flatten()


def _shapes(spec: GeneratorSpec, channels: int, image_size: int) -> tuple[list[Shape], list[Shape]]:
    """The filters of the generator and of the critic, which is its mirror image but for the one number it ends in."""
    doublings = int(image_size).bit_length() - FIRST_MAP.bit_length()
    if doublings < 2 or image_size != FIRST_MAP << doublings:
        raise DataError(
            f"a generator makes images of 16, 32, 64 … pixels a side, a power of two, but these have {image_size}. "
            "Load the data with another image_size."
        )
    if spec.width >> (doublings - 1) == 0:
        raise DataError(
            f"a generator of width {spec.width} has no channel left at {image_size} pixels a side, as each doubling halves "
            f"them. Raise width to at least {1 << (doublings - 1)}."
        )
    maps = [*(spec.width >> level for level in range(doublings)), channels]
    inner = [(wide, narrow, FIRST_MAP, FIRST_MAP) for wide, narrow in pairwise(maps)]
    return (
        [(spec.latent, spec.width, FIRST_MAP, FIRST_MAP), *inner],
        [*reversed(inner), (1, spec.width, FIRST_MAP, FIRST_MAP)],
    )


def _fresh(shape: Shape, random: torch.Generator, device: torch.device) -> Tensor:
    return torch.randn(shape, generator=random).mul_(WEIGHT_SCALE).to(device).requires_grad_()


def _step(optimiser: torch.optim.Optimizer, weights: Sequence[Tensor], loss: Tensor) -> None:
    """One step on the loss; gradients of the other network's weights are never computed."""
    for weight, grad in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = grad
    optimiser.step()


def _random(seed: int, name: str) -> torch.Generator:
    return named_generator(seed, "generative-replay", name)


def _refuse_divergence(found: Tensor, spec: GeneratorSpec, n_steps: int) -> None:
    if not torch.isfinite(found.detach()).all():
        raise Divergence(
            f"the generator of a class diverged within {n_steps} of {spec.steps} steps, with learning_rate "
            f"{spec.learning_rate:g} and penalty {spec.penalty:g}. Lower one of them."
        )


def _check_shots(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or len(images) == 0 or images.shape[2] != images.shape[3]:
        raise DataError(
            f"a generator learns from at least one uint8 image in the shape (n, channels, size, size), but got "
            f"{images.dtype} of shape {tuple(images.shape)}. Pass the shots of one class as they were loaded."
        )


QUICK_GENERATOR = GeneratorSpec(
    latent=16, width=64, steps=250, critic_steps=1, penalty=1.0, learning_rate=1e-3, batch_size=5
)
"""Five seconds a class on one core instead of nearly two hours; chosen on validation characters, by how near its images are
to the shots. They are near-copies and blends of them."""
