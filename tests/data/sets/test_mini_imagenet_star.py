"""miniImageNet*: miniImageNet's classes after a base of ImageNet's others; no real copy is at hand for these tests."""

import shutil
from pathlib import Path

import pytest

from fscl.data.imagenet_classes import MINI_IMAGENET
from fscl.data.sets.mini_imagenet_star import STAR, load_mini_imagenet_star
from fscl.errors import DataError
from fscl.experiment.base import refuse_leak
from fscl.experiment.config import make_config
from tests.conftest import jpeg

MINI = [name for names in MINI_IMAGENET.values() for name in names]
OTHERS = [f"n{99000000 + number}" for number in range(900)]


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train/<class>/*.JPEG` with 1,000 classes of two images."""
    root = tmp_path_factory.mktemp("data") / "imagenet"
    picture = jpeg((200, 90, 30))
    for name in [*MINI, *OTHERS]:
        (root / "train" / name).mkdir(parents=True)
        for image in ("1", "2"):
            (root / "train" / name / f"{name}_{image}.JPEG").write_bytes(picture)
    (root / "train" / "notes").mkdir()
    return root


def test_all_of_miniimagenet_is_to_test_on_and_the_others_train_and_choose(
    imagenet: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FSCL_DATA", str(imagenet.parent))
    assert STAR.locate() == imagenet
    splits = load_mini_imagenet_star(image_size=16, images_per_class=1)
    assert splits.test.class_names == tuple(MINI)
    assert set(splits.test.counts) == {1}
    assert splits.validation.class_names == tuple(OTHERS[::10])
    assert splits.train.class_names == tuple(name for name in OTHERS if name not in OTHERS[::10])
    again = load_mini_imagenet_star(image_size=16, images_per_class=1, progress=lambda *_: pytest.fail("decoded again"))
    assert again.test.content_hash == splits.test.content_hash
    # a base trained on miniImageNet's own base classes knows classes of this stream
    config = make_config({"data": {"name": "mini-imagenet-star"}})
    with pytest.raises(Exception, match="the base was trained on 64 of the classes"):
        refuse_leak(
            config,
            {"data": {"name": "mini-imagenet"}, "train_classes": list(MINI_IMAGENET["train"])},
            splits.test,
        )


def test_less_than_the_whole_of_imagenet_is_refused(imagenet: Path, empty_cache: Path, tmp_path: Path):
    copy = Path(shutil.copytree(imagenet, tmp_path / "imagenet"))
    shutil.rmtree(copy / "train" / OTHERS[5])
    with pytest.raises(DataError, match=r"has 999 classes of ImageNet, not 1000\. Put the whole"):
        load_mini_imagenet_star(path=copy, image_size=16)
    shutil.rmtree(copy / "train" / MINI[7])
    with pytest.raises(DataError, match=f"998 classes.*1 of miniImageNet's 100 are not among them, such as {MINI[7]}"):
        load_mini_imagenet_star(path=copy, image_size=16)


def test_an_archive_is_refused_with_the_way_out(tmp_path: Path):
    archive = tmp_path / "ILSVRC2012_img_train.tar"
    archive.write_bytes(b"")
    with pytest.raises(DataError, match=r"is read from a folder\. Unpack ImageNet"):
        load_mini_imagenet_star(path=archive)
