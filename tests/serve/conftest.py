"""A server that many tests share; those that change much start their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.serving import Running, model, running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that knows three characters."""
    model(tmp_path / "model", 0, 1, 2)
    return tmp_path / "model"


@pytest.fixture
def server(folder: Path) -> Iterator[Running]:
    with running(folder) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of a module; its tests change nothing that the others rely on."""
    folder = tmp_path_factory.mktemp("shared") / "model"
    model(folder, 0, 1, 2)
    with running(folder) as found:
        yield found
