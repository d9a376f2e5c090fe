"""Evaluating a network is exact in any number of threads."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch
from torch import nn

from fscl.nets.network import Network
from fscl.nets.pretrained import pretrained_base
from fscl.nets.trained import NetworkSpec, init_network
from fscl.process import configure_process
from fscl.rng import generator

N_CALLS = 1000
X = torch.rand(4, 1, 16, 16, generator=generator(0, "x"))


def all_calls_agree(networks: list[Network]) -> bool:
    """Four threads, half of them on each network; whether every call gives the bits of a call alone."""
    expected = [network.features(X) for network in networks]

    def call(thread: int) -> bool:
        configure_process()  # as every worker thread does
        which = thread % 2
        with torch.no_grad():
            return all(torch.equal(networks[which].features(X), expected[which]) for _ in range(N_CALLS))

    with ThreadPoolExecutor(4) as pool:
        return all(pool.map(call, range(4)))


def test_two_networks_of_one_spec_in_four_threads_give_the_bits_of_each_alone():
    spec = NetworkSpec(width=8, image_size=16)
    assert all_calls_agree([init_network(spec, generator(0, "network", number)) for number in range(2)])


def test_two_sets_of_weights_for_one_pretrained_module_in_four_threads_give_the_bits_of_each_alone():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 5))
    base = pretrained_base(module, image_size=16, channels=1, trainable=True)
    other = replace(base, params={name: 2 * tensor for name, tensor in base.params.items()})
    assert all_calls_agree([base, other])


def test_a_thread_of_its_own_does_not_copy_the_weights_of_a_pretrained_module():
    module = nn.Linear(16 * 16, 3)
    base = pretrained_base(nn.Sequential(nn.Flatten(), module), image_size=16, channels=1)
    before = base.features(X)
    for tensor in base.module.parameters():
        tensor.data.zero_()  # nobody does this; if the thread had copies, it would not notice
    assert not torch.equal(base.features(X), before)
