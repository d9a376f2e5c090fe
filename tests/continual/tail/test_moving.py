"""Fast learning of a tail: one step by hand, what reaches it, and what holds it."""

import torch
from torch import Tensor

from fscl.continual.regularisers import Constant, Tagging, Unregularised
from fscl.continual.tail.codes import Body
from fscl.continual.tail.moving import Shots, moved
from fscl.continual.tail.settings import TailSettings
from fscl.nets.params import Params
from fscl.rng import generator
from fscl.testing import small_base
from tests.continual.tail.cases import lesson, weights_equal

SETTINGS = TailSettings(learning_rate=5e-3)
BODY = Body.of(small_base(), SETTINGS)
SHOTS = lesson(0, 4)
CODES = BODY.codes(SHOTS.images, SETTINGS, seed=0)
FREE = Unregularised()
ALL = torch.ones(len(SHOTS), dtype=torch.bool)


def shots(allowed: Tensor = ALL, crops: Tensor = CODES["crops"]) -> Shots:
    return Shots(crops, SHOTS.labels, allowed)


def after(steps: int, of: Shots, regulariser: Unregularised | Constant | Tagging = FREE) -> Params:
    return moved(
        BODY,
        BODY.base,
        of,
        regulariser.start(BODY.base),
        SETTINGS,
        steps=steps,
        random=generator(0, "moving"),
        n_tasks=0,
    )


def distance(params: Params) -> float:
    return float(sum(((tensor - BODY.base[name]) ** 2).sum() for name, tensor in params.items()))


def test_one_step_of_a_tail_is_adam_on_the_leave_one_out_loss_of_its_batch():
    crops, labels = shots().batch(SETTINGS, generator(0, "moving"))
    assert BODY.tail is not None
    # the mean squared distance to the class means, and a quarter of it
    still = BODY.tail.features(crops.float())
    spreads = [(still[i] - still[labels == labels[i]].mean(0)).square().sum() for i in range(len(labels))]
    temperature = 0.25 * float(torch.stack(spreads).mean())

    weights = {name: tensor.clone().requires_grad_() for name, tensor in BODY.base.items()}
    features = BODY.tail.features(crops.float(), weights)
    classes, losses = labels.unique().tolist(), []
    for i, own in enumerate(labels.tolist()):
        scores = []
        for label in classes:
            members = [j for j in range(len(labels)) if labels[j] == label and j != i]
            scores.append(-(features[i] - features[members].mean(0)).square().sum() / temperature)
        losses.append(-torch.log_softmax(torch.stack(scores), 0)[classes.index(own)])
    gradients = torch.autograd.grad(torch.stack(losses).mean(), list(weights.values()))

    found, n_compared = after(1, shots()), 0
    for (name, before), gradient in zip(BODY.base.items(), gradients, strict=True):
        # Adam's first step: both of its means are corrected to the gradient and its square
        expected = before - SETTINGS.learning_rate * gradient / (gradient.abs() + 1e-8)
        large = gradient.abs() > 1e-5  # below that rounding decides the sign
        n_compared += int(large.sum())
        torch.testing.assert_close(found[name][large], expected[large], rtol=1e-4, atol=1e-5)
    assert n_compared > 0.9 * sum(tensor.numel() for tensor in BODY.base.values())


def test_no_step_leaves_the_weights_as_they_were():
    assert weights_equal(after(0, shots()), BODY.base)


def test_shots_that_are_left_out_never_reach_the_steps_whatever_their_crops_hold():
    allowed = torch.arange(len(SHOTS)) % 3 != 0
    planted = CODES["crops"].clone()
    planted[~allowed] = torch.nan
    assert weights_equal(after(6, shots(allowed, planted)), after(6, shots(allowed)))


def test_a_tail_that_may_see_nothing_stays():
    assert weights_equal(after(5, shots(~ALL)), BODY.base)


def test_single_shots_teach_nothing():
    first = torch.tensor([0, 6, 12, 18])
    single = torch.zeros_like(ALL)
    single[first] = True
    assert weights_equal(after(5, shots(single)), BODY.base)


def test_a_step_compares_a_few_classes_drawn_anew_and_no_shot_comes_twice():
    chosen = SETTINGS.model_copy(update={"classes_per_step": 4, "shots_per_step": 3})
    many = lesson(0, 10)
    marked = torch.arange(len(many))[:, None, None].expand(-1, 2, 1).float()  # a crop says which shot it is of
    of = Shots(marked, many.labels, torch.ones(len(many), dtype=torch.bool))
    random, seen = generator(0, "batches"), set()
    for _ in range(20):
        crops, labels = of.batch(chosen, random)
        assert len(labels.unique()) == 4
        assert torch.bincount(labels).max() == 3
        positions = crops[:, 0].long()
        assert len(positions.unique()) == len(positions) == 12
        assert torch.equal(many.labels[positions], labels)
        seen |= set(labels.tolist())
    assert seen == set(range(10))


def test_tags_hold_the_weights_nearer_to_the_slow_ones_the_stronger_they_are():
    free = distance(after(10, shots()))
    held = [distance(after(10, shots(), Tagging(strength=strength))) for strength in (1.0, 100.0)]
    assert free > held[0] > held[1] > 0
    assert weights_equal(after(10, shots(), Tagging(strength=0.0)), after(10, shots()))


def test_a_constant_penalty_holds_too():
    assert distance(after(10, shots(), Constant(strength=100.0))) < distance(after(10, shots()))
