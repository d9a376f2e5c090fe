"""The GAN of one class: its size, its gradient penalty, and that it learns what the shots look like."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fscl.continual.generator import GeneratorSpec, _make, _score, generate, gradient_penalty, parameter_counts
from fscl.errors import DataError, Divergence
from fscl.rng import generator

SMALL = GeneratorSpec(latent=8, width=16, steps=3, critic_steps=2, batch_size=4, images_per_class=6)


def squares(n: int = 5, *, size: int = 16, channels: int = 1) -> Tensor:
    """White squares on black, each a little brighter than the one before."""
    images = torch.zeros(n, channels, size, size, dtype=torch.uint8)
    for shot in range(n):
        images[shot, :, size // 4 : -size // 4, size // 4 : -size // 4] = 255 - n + shot
    return images


def distance(images: Tensor, shots: Tensor) -> float:
    """Mean distance of a pixel from the mean shot, in grey levels."""
    return (images.float() - shots.float().mean(0)).abs().mean().item()


@pytest.mark.parametrize(
    ("channels", "image_size", "counts"), [(3, 64, (3_804_160, 2_763_776)), (1, 32, (3_672_064, 2_631_680))]
)
def test_the_full_size_has_as_many_weights_as_published(
    channels: int, image_size: int, counts: tuple[int, int]
) -> None:
    assert parameter_counts(GeneratorSpec(), channels, image_size) == counts


@pytest.mark.parametrize(("channels", "size"), [(1, 16), (3, 32)])
def test_made_up_images_have_the_form_of_the_shots_which_stay_as_they_are(channels: int, size: int) -> None:
    shots = squares(2, size=size, channels=channels)
    before = shots.clone()
    made = generate(shots, SMALL, seed=0)
    assert made.shape == (6, channels, size, size)
    assert made.dtype == torch.uint8
    assert torch.equal(shots, before)


def test_same_seed_same_bits_whatever_the_global_generator_does() -> None:
    first = generate(squares(), SMALL, seed=1)
    torch.manual_seed(5)
    assert torch.equal(generate(squares(), SMALL, seed=1), first)
    assert not torch.equal(generate(squares(), SMALL, seed=2), first)
    state = torch.get_rng_state()
    generate(squares(), SMALL, seed=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_layer_but_the_last_and_the_critic_s_first_is_normalised() -> None:
    """What InstanceNorm follows can be scaled as one likes."""
    random = generator(0, "test")
    makers = [torch.randn(shape, generator=random) for shape in ((8, 16, 4, 4), (16, 8, 4, 4), (8, 1, 4, 4))]
    latents = torch.randn(3, 8, generator=random)
    scaled = [*(10 * weight for weight in makers[:-1]), makers[-1]]
    torch.testing.assert_close(_make(scaled, latents), _make(makers, latents), rtol=1e-3, atol=1e-3)
    critics = [torch.randn(shape, generator=random) for shape in ((8, 1, 4, 4), (16, 8, 4, 4), (1, 16, 4, 4))]
    images = torch.randn(3, 1, 16, 16, generator=random)
    scaled = [critics[0], 10 * critics[1], critics[2]]
    torch.testing.assert_close(_score(scaled, images), _score(critics, images), rtol=1e-3, atol=1e-3)


def test_the_critic_takes_as_many_steps_as_asked() -> None:
    made = [generate(squares(), SMALL.model_copy(update={"critic_steps": steps}), seed=0) for steps in (1, 2)]
    assert not torch.equal(*made)


def test_one_shot_is_enough() -> None:
    assert generate(squares(1), SMALL, seed=0).shape == (6, 1, 16, 16)


def test_training_moves_the_images_towards_the_shots() -> None:
    shots = squares()
    spec = GeneratorSpec(
        latent=8, width=32, steps=60, critic_steps=2, learning_rate=2e-3, batch_size=8, images_per_class=8
    )
    learned = generate(shots, spec, seed=0)
    barely = generate(shots, spec.model_copy(update={"steps": 1, "learning_rate": 1e-12}), seed=0)
    assert distance(learned, shots) < 0.3 * distance(barely, shots)
    assert learned[:, :, 6:10, 6:10].float().mean() > 200 > 50 > learned[:, :, :2].float().mean()


def test_the_penalty_is_zero_where_the_gradient_has_norm_one() -> None:
    random = generator(0, "test")
    real, fake = torch.randn(2, 4, 1, 8, 8, generator=random)
    weight = torch.randn(64, generator=random)
    weight /= weight.norm()
    assert gradient_penalty(lambda x: x.flatten(1) @ weight, real, fake, random).item() == pytest.approx(0, abs=1e-10)


def test_the_penalty_of_a_linear_critic_and_its_gradient_are_those_on_paper() -> None:
    random = generator(0, "test")
    real, fake = torch.randn(2, 4, 1, 2, 2, generator=random, dtype=torch.float64)
    weight = torch.tensor([0.0, 3.0, 0.0, 4.0], dtype=torch.float64, requires_grad=True)  # of norm 5
    penalty = gradient_penalty(lambda x: x.flatten(1) @ weight, real, fake, random)
    assert penalty.item() == pytest.approx(16)  # (5 - 1)²
    (grad,) = torch.autograd.grad(penalty, weight)
    torch.testing.assert_close(grad, 8 * weight.detach() / 5)  # 2 (‖w‖ - 1) w / ‖w‖


def test_the_penalty_is_taken_between_real_and_fake() -> None:
    """A critic of ‖x‖²/2 has the gradient x itself, so the penalty tells where it was taken."""
    real, fake = torch.full((200, 1, 1, 1), 3.0), torch.full((200, 1, 1, 1), 1.0)
    penalty = gradient_penalty(lambda x: x.square().flatten(1).sum(1) / 2, real, fake, generator(0, "test"))
    assert penalty.item() == pytest.approx(4 / 3, abs=0.2)  # the mean of (x - 1)² for x uniform in [1, 3]


def test_the_gradient_of_the_penalty_through_instance_norm_is_right() -> None:
    random = generator(0, "test")
    real, fake = torch.rand(2, 3, 1, 8, 8, generator=random, dtype=torch.float64)
    filters = torch.randn(4, 1, 4, 4, generator=random, dtype=torch.float64, requires_grad=True)
    last = torch.randn(4 * 16, generator=random, dtype=torch.float64)

    def penalty(weight: Tensor) -> Tensor:
        def critic(x: Tensor) -> Tensor:
            maps = torch.nn.functional.conv2d(x, weight, stride=2, padding=1)
            return torch.nn.functional.instance_norm(maps).tanh().flatten(1) @ last

        return gradient_penalty(critic, real, fake, generator(0, "between"))

    assert torch.autograd.gradcheck(penalty, (filters,))


@pytest.mark.parametrize("size", [8, 28, 84])
def test_an_image_size_that_is_no_power_of_two_from_16_up_is_refused(size: int) -> None:
    with pytest.raises(DataError, match=rf"these have {size}\. Load the data with another image_size"):
        generate(torch.zeros(1, 1, size, size, dtype=torch.uint8), SMALL, seed=0)


def test_a_width_that_cannot_be_halved_so_often_is_refused() -> None:
    with pytest.raises(DataError, match=r"width 8 has no channel left at 128 pixels a side.*at least 16"):
        parameter_counts(GeneratorSpec(width=8), 1, 128)


@pytest.mark.parametrize(
    "images",
    [torch.zeros(1, 1, 16, 16), torch.zeros(0, 1, 16, 16, dtype=torch.uint8), squares(1)[0], squares(1)[:, :, :8]],
    ids=["floats", "no shot", "no batch", "not square"],
)
def test_what_is_not_shots_is_refused(images: Tensor) -> None:
    with pytest.raises(DataError, match="at least one uint8 image"):
        generate(images, SMALL, seed=0)


@pytest.mark.parametrize("steps", [1, 20])
def test_divergence_is_one_sentence(steps: int) -> None:
    spec = SMALL.model_copy(update={"learning_rate": 1e30, "steps": steps})
    with pytest.raises(
        Divergence, match=rf"diverged within 1 of {steps} steps, with learning_rate 1e\+30 .*Lower one of them"
    ):
        generate(squares(), spec, seed=0)


@pytest.mark.parametrize(
    "wrong", [{"width": 0}, {"steps": 0}, {"betas": (0.5, 1.0)}, {"learning_rate": 0}, {"depth": 4}]
)
def test_a_spec_out_of_bounds_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GeneratorSpec.model_validate(wrong)
