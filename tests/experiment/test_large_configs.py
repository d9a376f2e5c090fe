"""The configurations for a machine with a GPU and a copy of ImageNet: they begin, run and end, on a few small pictures."""

from pathlib import Path

import pytest

from fscl.data.imagenet_classes import MINI_IMAGENET, TIERED_IMAGENET
from fscl.errors import ConfigError
from fscl.experiment.config import load_config
from fscl.experiment.run import run_experiment
from fscl.report.results import read_results
from tests.conftest import jpeg

N_IMAGES = 4
SMALL = (
    "data.image_size=16",
    "base.network.width=8",
    "base.learner.inner_steps=1",
    "base.train.steps=1",
    "base.train.meta_batch=1",
    "base.train.n_shot=2",
    "base.train.n_query=1",
    "base.train.validation_query=1",
    "base.train.validation_episodes=2",
    "stream.n_tasks=2",
    "stream.n_shot=2",
    "stream.n_query=1",
    "run.n_sequences=1",
    "settings.all.steps=2",
    "settings.gr.memory.generator.steps=1",
    "settings.gr.memory.generator.width=8",
    "settings.gr.memory.generator.images_per_class=2",
    "settings.tsc_gr.memory.generator.steps=1",
    "settings.tsc_gr.memory.generator.width=8",
    "settings.tsc_gr.memory.generator.images_per_class=2",
)


def pictures(folder: Path, names: list[str], shades: tuple[int, ...] = (20, 90, 160, 230)) -> None:
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for shade in shades:
            picture = jpeg((shade, number % 256, 255 - number % 256))
            (folder / name / f"{name}_{shade}.JPEG").write_bytes(picture)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 classes: miniImageNet's, tieredImageNet's, and others that do not exist."""
    real = {name for split in (MINI_IMAGENET, TIERED_IMAGENET) for names in split.values() for name in names}
    others = [f"n{99000000 + number}" for number in range(1000 - len(real))]
    root = tmp_path_factory.mktemp("data") / "imagenet"
    pictures(root / "train", [*sorted(real), *others])
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mini-star", "tiered-5w5s"])
def test_a_large_configuration_runs_to_its_end_on_a_few_small_pictures(
    name: str, imagenet: Path, empty_cache: Path, tmp_path: Path
):
    config = load_config(name, [*SMALL, f'data.path="{imagenet}"', f"data.images_per_class={N_IMAGES}"])
    assert config.base.network.backbone == "resnet18"
    record = run_experiment(config, tmp_path / name, workers=1)
    results = read_results(record)
    assert not results.unfinished
    assert list(results.methods) == list(load_config(name).run.methods)


@pytest.mark.slow
def test_a_base_of_tieredimagenet_meets_birds(imagenet: Path, empty_cache: Path, tmp_path: Path):
    birds = tmp_path / "CUB_200_2011"
    names = [f"{number:03d}.Bird_{number}" for number in range(1, 201)]
    for number, name in enumerate(names):
        (birds / "images" / name).mkdir(parents=True)
        for shade in (20, 90, 160):
            (birds / "images" / name / f"{shade}.jpg").write_bytes(jpeg((shade, number, 255 - number)))
    paths = [f"{name}/{shade}.jpg" for name in names for shade in (20, 90, 160)]
    labels = [number for number in range(1, 201) for _ in range(3)]
    (birds / "classes.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(names, start=1)))
    (birds / "images.txt").write_text("".join(f"{i} {path}\n" for i, path in enumerate(paths, start=1)))
    (birds / "image_class_labels.txt").write_text("".join(f"{i} {c}\n" for i, c in enumerate(labels, start=1)))
    (birds / "train_test_split.txt").write_text("".join(f"{i} 1\n" for i, _ in enumerate(paths, start=1)))
    here = [f'data.path="{birds}"', "base_data.image_size=16", f'base_data.path="{imagenet}"']
    config = load_config("tiered-to-cub", [*SMALL, *here, f"base_data.images_per_class={N_IMAGES}"])
    record = run_experiment(config, tmp_path / "run", workers=1)
    assert not read_results(record).unfinished
    assert "maml on tiered-imagenet" in record.about()["base"]["summary"]
    assert record.about()["data"]["pool"] == "cub (test)"


def test_a_run_whose_base_is_not_trained_yet_says_which_command_makes_it(
    imagenet: Path, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mini = tmp_path / "mini-imagenet"
    for split, short in (("train", "train"), ("validation", "val"), ("test", "test")):
        pictures(mini / short, list(MINI_IMAGENET[split]), shades=tuple(range(20)))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"network.safetensors is not here yet: `fscl train mini-resnet18` makes it"):
        run_experiment(load_config("mini-5w5s", [f'data.path="{mini}"', "data.image_size=16"]), tmp_path / "run")
