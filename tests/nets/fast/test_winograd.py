"""Convolutions by lifted maps are the convolutions that torch computes, and so are their gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fscl.nets.curvature import Scored, join
from fscl.nets.fast.conv4_curvature import Conv4Curvature, Conv4Tape
from fscl.nets.fast.winograd import Plain, Winograd
from fscl.nets.params import empty_head, grow_head
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_params
from fscl.rng import generator

CPU = torch.device("cpu")


def some(*shape: int, dtype: torch.dtype, name: str) -> Tensor:
    return torch.randn(shape, generator=generator(0, name), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
@pytest.mark.parametrize("size", [1, 3, 4, 7, 8, 16])
@pytest.mark.parametrize("lifting", [True, False])
def test_a_sum_of_two_convolutions_and_its_gradients(lifting: bool, size: int, dtype: torch.dtype, tolerance: float):
    way = Winograd(size, dtype, CPU) if lifting else Plain()
    x = [some(3, size, size, 5, dtype=dtype, name=f"x{number}").requires_grad_() for number in range(2)]
    filters = [some(6, 5, 3, 3, dtype=dtype, name=f"filters{number}").requires_grad_() for number in range(2)]
    d_output = some(3, size, size, 6, dtype=dtype, name="gradient")
    convolved = sum(F.conv2d(a.permute(0, 3, 1, 2), b, padding=1) for a, b in zip(x, filters, strict=True))
    expected = convolved.permute(0, 2, 3, 1)
    d_x, d_filters = torch.autograd.grad(expected, [x[0], filters[0]], d_output)

    def same(found: Tensor, wanted: Tensor) -> None:
        assert found.shape == wanted.shape
        assert float((found - wanted).norm() / wanted.norm()) < tolerance

    with torch.no_grad():
        lifted, lifted_filters = [way.lift(one) for one in x], [way.lift_filters(one) for one in filters]
        gradient = way.lift_gradient(d_output)
        same(way.convolve(*zip(lifted, lifted_filters, strict=True)), expected)
        same(way.d_input((gradient, lifted_filters[0])), d_x)
        same(way.d_filters((lifted[0], gradient)), d_filters)
        same(way.d_input(*[(gradient, lifted_filters[0])] * 2), 2 * d_x)
        same(way.d_filters(*[(lifted[0], gradient)] * 2), 2 * d_filters)


@pytest.mark.parametrize(("width", "expected"), [(32, Plain), (64, Winograd)])
def test_wide_networks_take_it_and_narrow_ones_do_not(width: int, expected: type):
    spec = NetworkSpec(width=width, image_size=32)
    random = generator(0, "weights")
    params = init_params(spec, random)
    weights = join(params, grow_head(empty_head(TrainedNetwork(spec, params).n_features), 2, [random] * 2))
    batch = Scored(torch.rand(2, 1, 32, 32, generator=random), torch.tensor([0, 1]), 2)
    tape = Conv4Curvature(spec).gradient(weights, batch, keep=True)[2]
    assert isinstance(tape, Conv4Tape)
    first, *others = [type(block.conv.way) for block in tape.blocks]
    assert first is Plain, "one channel is too little to lift"
    assert set(others[:2]) == {expected}
