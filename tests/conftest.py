"""Fixtures shared by all tests: a private cache, the real data folder, and small pools."""

import io
import os
import signal
from pathlib import Path

import pytest
from PIL import Image

from fscl.data.pool import ClassPool
from fscl.process import configure_process
from fscl.testing import noise_pool

ROOT = Path(__file__).resolve().parent.parent
REAL_DATA = Path(os.environ.get("FSCL_DATA") or ROOT.parent / "shared" / "data")  # read before a test changes it


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests never touch the user's cache; the workers of one test run share theirs."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "fscl-cache"
    os.environ["FSCL_CACHE"] = str(cache)
    configure_process()
    return cache


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_works() -> None:
    """Where tests are started in the background of a shell (`make test &`), Ctrl-C is ignored, by their children too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real Omniglot. Without it these tests skip, except under CI, where that is a failure."""
    return real_path("omniglot").parent


def real_path(name: str) -> Path:
    """A file or folder of the real data; without it the test skips, except under CI, where that is a failure."""
    path = REAL_DATA / name
    if not path.exists():
        reason = f"no real data: {path} does not exist; set FSCL_DATA to a folder that holds {name}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of the test's own, and no FSCL_DATA."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("FSCL_CACHE", str(cache))
    monkeypatch.delenv("FSCL_DATA", raising=False)
    return cache


def jpeg(colour: tuple[int, int, int] = (200, 30, 60), size: tuple[int, int] = (8, 6)) -> bytes:
    """A small picture of one colour, as a file."""
    content = io.BytesIO()
    Image.new("RGB", size, colour).save(content, "JPEG")
    return content.getvalue()


@pytest.fixture(scope="session")
def small_pool() -> ClassPool:
    return noise_pool()
