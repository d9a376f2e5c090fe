"""The lists of few-shot class-incremental learning: the real ones, and those that are refused."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fscl.data.fscil import read_fscil
from fscl.data.imagenet_classes import MINI_IMAGENET
from fscl.data.sets.mini_fscil import load_mini_fscil
from fscl.data.stream import StreamSpec, listed_stream
from fscl.errors import ConfigError, DataError
from fscl.experiment.base import refuse_leak
from fscl.experiment.config import make_config
from fscl.experiment.plan import Cell
from fscl.experiment.run import run_experiment
from fscl.report.page import write_report
from fscl.testing import noise_pool
from tests.conftest import real_path
from tests.experiment.tiny import tiny
from tests.report.runs import interval_of, table_of, text_of

CLASSES = sorted(name for names in MINI_IMAGENET.values() for name in names)
BASE, NEW = CLASSES[:60], CLASSES[60:]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six training images and one test image a class; a session has the first five. Only names matter here."""
    root = tmp_path_factory.mktemp("lists") / "miniimagenet"
    for split in ("train", "val", "test"):
        (root / split).mkdir(parents=True)
    train, test = ["filename,label"], ["filename,label"]
    for name in CLASSES:
        (root / "train" / name).mkdir()
        for number in range(7):
            (root / "train" / name / f"{name}_{number}.jpg").touch()
        train += [f"{name}_{number}.jpg,{name}" for number in range(6)]
        test.append(f"{name}_6.jpg,{name}")
    (root / "fscil_train.csv").write_text("\n".join(train))
    (root / "fscil_test.csv").write_text("\n".join(test))
    for session in range(8):
        names = NEW[5 * session : 5 * session + 5]
        paths = [f"MINI-ImageNet/train/{name}/{name}_{number}.jpg" for name in names for number in range(5)]
        (root / f"fscil_session_{session + 2}.txt").write_text("\n".join(paths) + "\n")
    return root


def test_the_real_lists_are_60_classes_and_then_eight_times_five_with_five_images():
    lists = read_fscil(real_path("mini/miniimagenet_64x64.tar"))
    assert len(lists.base) == 60
    assert {len(images) for images in lists.base.values()} == {200}
    assert [[len(images) for images in session.values()] for session in lists.sessions] == [[5] * 5] * 8
    assert len(lists.test) == 100
    assert {len(images) for images in lists.test.values()} == {100}
    assert sorted(lists.class_names) == CLASSES
    assert lists.sessions[0]["n03544143"][0] == "n0354414300000811.jpg"


def test_lists_are_read_in_order(small: Path):
    lists = read_fscil(small)
    assert lists.class_names == tuple(CLASSES)
    assert lists.base[BASE[0]] == tuple(f"{BASE[0]}_{number}.jpg" for number in range(6))
    assert lists.sessions[7][NEW[-1]] == tuple(f"{NEW[-1]}_{number}.jpg" for number in range(5))
    assert lists.test[NEW[0]] == (f"{NEW[0]}_6.jpg",)


def swap(file: str, old: str, new: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        text = (root / file).read_text()
        assert old in text
        (root / file).write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda root: (root / "fscil_session_5.txt").unlink(), "has 0 files fscil_session_5.txt at its top"),
        (lambda root: (root / "fscil_train.csv").unlink(), "has 0 files fscil_train.csv at its top"),
        (
            swap("fscil_session_2.txt", f"MINI-ImageNet/train/{NEW[0]}/{NEW[0]}_0.jpg\n", ""),
            "its fscil_session_2.txt has 5 classes with 24 images, not 5 classes with 5 images each",
        ),
        (swap("fscil_session_3.txt", f"train/{NEW[5]}/", f"train/{NEW[6]}/"), "its fscil_session_3.txt has 4 classes"),
        (swap("fscil_session_3.txt", NEW[5], NEW[0]), f"class {NEW[0]} comes in two of its sessions"),
        (swap("fscil_session_3.txt", f"{NEW[5]}_0", f"{NEW[6]}_5"), f"session has '{NEW[6]}_5.jpg' as {NEW[5]}, but"),
        (swap("fscil_train.csv", f",{BASE[0]}", f",{BASE[1]}"), "59 classes of its fscil_train.csv are in no session"),
        (swap("fscil_test.csv", f",{BASE[0]}", f",{BASE[1]}"), f"class {BASE[0]} is either learned or tested"),
        (swap("fscil_test.csv", f"{BASE[0]}_6", f"{BASE[0]}_5"), f"the image '{BASE[0]}_5.jpg' twice"),
        (swap("fscil_session_9.txt", f"{NEW[39]}_1", f"{NEW[39]}_0"), f"the image '{NEW[39]}_0.jpg' twice"),
        (swap("fscil_test.csv", f"{BASE[0]}_6", f"{BASE[0]}_9"), f"the image '{BASE[0]}_9.jpg', which is not there"),
        (swap("fscil_session_9.txt", "/", "-"), "its fscil_session_9.txt has a line that does not end in <class>/"),
        (swap("fscil_test.csv", "filename,label", "a,b,c"), "its fscil_test.csv is no list of lines"),
    ],
)
def test_lists_that_do_not_fit_are_refused(small: Path, tmp_path: Path, change: Callable[[Path], None], reason: str):
    copy = Path(shutil.copytree(small, tmp_path / "miniimagenet"))
    change(copy)
    with pytest.raises(DataError) as caught:
        read_fscil(copy)
    assert str(copy) in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.slow
def test_the_real_sessions_are_one_stream_whose_base_is_chosen_on_images_held_out():
    splits = load_mini_fscil(path=real_path("mini/miniimagenet_64x64.tar"))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (60, 60, 100)
    assert set(splits.train.counts) == {180}
    assert set(splits.validation.counts) == {20}
    assert splits.known == set(splits.train.class_names)
    spec = StreamSpec(n_tasks=9, n_way=5, n_shot=5, n_query=100, base_way=60, base_shot=180)
    stream = listed_stream(splits.test, spec)
    assert [len(task.classes) for task in stream.tasks] == [60, *[5] * 8]
    base, first = stream.task(splits.test, 0), stream.task(splits.test, 1)
    assert torch.equal(base.support.images[:180], splits.train.of_class(0))
    assert (len(first.support), len(first.query)) == (25, 500)
    held = {image.numpy().tobytes() for image in splits.validation.images}
    assert not held & {image.numpy().tobytes() for image in splits.test.images[:2800]}  # of the first ten classes


def test_a_base_class_with_too_few_images_to_hold_one_out_is_refused(small: Path, empty_cache: Path, tmp_path: Path):
    root = shutil.copytree(small, tmp_path / "miniimagenet")
    picture = io.BytesIO()
    Image.new("RGB", (16, 16)).save(picture, "JPEG")
    for path in root.rglob("*.jpg"):
        path.write_bytes(picture.getvalue())
    with pytest.raises(DataError, match="base class n01532829 has 6 training images; at least 10 are needed"):
        load_mini_fscil(path=root)


def test_published_sessions_run_once_on_their_test_side():
    with pytest.raises(ConfigError, match=r"one published stream, on its test side: run.n_sequences must be 1"):
        make_config({"data": {"name": "mini-fscil"}, "run": {"n_sequences": 20}})


def test_a_base_may_know_the_base_session_but_no_later_one():
    config = make_config({"data": {"name": "mini-fscil"}, "run": {"n_sequences": 1}})
    pool = noise_pool(n_classes=4)
    known = frozenset(pool.class_names[:2])
    about = {"data": {"name": "mini-imagenet"}, "train_classes": list(known)}
    refuse_leak(config, about, pool, known)
    about["train_classes"] = [pool.class_names[3]]
    with pytest.raises(ConfigError, match="the base was trained on 1 of the classes"):
        refuse_leak(config, about, pool, known)


def test_a_run_with_a_base_session_tells_session_accuracy_average_and_drop(tmp_path: Path):
    """Class means on invented characters: the base session counts by its classes."""
    sessions = {"n_tasks": 3, "n_way": 2, "n_shot": 2, "n_query": 3, "base_way": 6, "base_shot": 5}
    run = {"run__methods": ["tsc", "prototypes"], "run__n_sequences": 2, "run__at_classes": [6, 8]}
    config = tiny(
        stream=sessions,
        **run,
        settings={"all": {"steps": 2, "memory": {"kind": "bounded", "per_class": 2}, "batch_size": 12}},
    )
    record = run_experiment(config, tmp_path / "run", workers=1)
    table = table_of(record)
    rows = [record.cells()[Cell("prototypes", number)]["result"]["top1"] for number in range(2)]
    first = [100 * R[0][0] for R in rows]
    last = [100 * (6 * R[2][0] + 2 * R[2][1] + 2 * R[2][2]) / 10 for R in rows]
    assert interval_of(table, "prototypes", "A_6_top1").mean == pytest.approx(np.mean(first))
    assert interval_of(table, "prototypes", "final_top1").mean == pytest.approx(np.mean(last))
    assert interval_of(table, "prototypes", "drop").mean == pytest.approx(np.mean(first) - np.mean(last))
    printed = text_of(record)
    assert "a base session of 6 classes (5-shot), then 2 sessions, 2-way 2-shot" in printed
    assert "drop" in printed
    assert "average A" in printed
    page = write_report(record).read_text()
    assert "from the base session, points" in page
    assert "drop_points" in (record.folder / "table.csv").read_text()
