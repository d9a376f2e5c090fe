"""Fixtures of the tests of meta-training."""

import pytest

from fscl.data.pool import Splits, split_classes
from fscl.testing import noise_pool


@pytest.fixture(scope="module")
def splits() -> Splits:
    return split_classes(noise_pool(), train=range(10), validation=range(10, 15), test=range(15, 20))
