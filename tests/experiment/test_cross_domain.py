"""A base from one data set, streams from another."""

import json
from pathlib import Path

import pytest
from PIL import Image

from fscl.data.catalogue import recorded, share_names
from fscl.data.imagenet_classes import MINI_IMAGENET, TIERED_IMAGENET
from fscl.data.pool import ClassPool, Splits
from fscl.data.sets.cub import CUB
from fscl.data.stream import Stream
from fscl.errors import ConfigError, OtherRun
from fscl.experiment.base import check_base_side, refuse_leak, refuse_other_base_side, train_base
from fscl.experiment.config import Config, load_config, make_config
from fscl.experiment.progress import Reporter
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.nets.trained import TrainedNetwork
from fscl.report.commands import toml_listing
from fscl.report.page import write_report
from fscl.testing import noise_pool
from tests.experiment.tiny import TINY, tiny

PROBE = {"after": [0, 2], "n_episodes": 2, "n_way": 2, "n_shot": 2, "n_query": 2, "n_classes": 4}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sub-folder a class: all of it is for streams."""
    root, pool = tmp_path_factory.mktemp("data") / "photos", noise_pool(10, 6, size=32)
    for index, name in enumerate(pool.class_names):
        (root / name).mkdir(parents=True)
        for number, image in enumerate(pool.of_class(index)):
            Image.fromarray(image[0].numpy()).save(root / name / f"{number}.png")
    return root


def crossed(photos: Path, **changes: object) -> Config:
    data = {"data": {"name": "folder", "path": str(photos)}, "base_data": {"name": "glyphs"}}
    return tiny(**{**data, "probe": PROBE, "run__n_sequences": 1, "run__methods": ["prototypes", "replay"], **changes})


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return run_experiment(crossed(photos), tmp_path_factory.mktemp("runs") / "crossed", workers=1)


def test_the_base_is_trained_on_one_set_and_the_streams_come_from_the_other(run: RunRecord):
    about = run.about()
    _, origin = TrainedNetwork.load(run.network_path)
    assert origin["data"]["name"] == "glyphs"
    assert "protonet on glyphs" in about["base"]["summary"]
    assert len(origin["train_classes"]) == 840
    assert about["data"]["pool"] == "photos (test)"
    assert {name for task in Stream.load(run.stream_path(0)).tasks for name in task.classes} <= {
        f"class-{number}" for number in range(10)
    }


def test_the_base_is_probed_on_its_own_classes(run: RunRecord):
    for entry in run.cells().values():  # the folder has no class to train on, so these can only be glyphs
        assert entry["result"]["probes"]["base"].keys() == {"0", "2"}


def test_such_a_run_is_continued_and_refused_when_the_base_data_changes(run: RunRecord, photos: Path):
    before = run.results_path.read_bytes()
    run_experiment(crossed(photos), run.folder, workers=1)
    assert run.results_path.read_bytes() == before
    itself = {"name": "folder", "path": str(photos)}
    with pytest.raises(OtherRun, match=r"config\.base_data\.name = 'glyphs', but now it is 'folder'"):
        run_experiment(crossed(photos, base_data=itself), run.folder)
    whole = run.about_path.read_text()
    about = json.loads(whole)
    about["trained_on"]["train"] = "other content"
    run.about_path.write_text(json.dumps(about))
    with pytest.raises(OtherRun, match=r"trained_on\.train = 'other content'"):
        run_experiment(crossed(photos), run.folder)
    run.about_path.write_text(whole)


def test_the_report_lists_both_sets_and_no_path_of_the_machine(run: RunRecord, photos: Path, tmp_path: Path):
    listing = toml_listing(run.about()["config"])
    assert "[base_data]" in listing
    assert write_report(run, tmp_path).exists()
    swapped = tiny(data={"name": "glyphs"}, base_data={"name": "folder", "path": str(photos)})
    assert str(photos.parent) not in toml_listing(swapped.resolved())
    (tmp_path / "again.toml").write_text(listing.replace('"photos"', f'"{photos}"'))
    assert load_config(str(tmp_path / "again.toml")).resolved() == run.about()["config"]


def test_a_configuration_without_the_section_is_what_it_was_before():
    content = tiny().resolved()
    assert content["base_data"] is None
    assert content["data"] == {"name": "glyphs", "image_size": 32}


def test_base_data_that_would_have_no_effect_is_refused():
    with pytest.raises(ConfigError, match="so base_data has no effect; remove one"):
        make_config({**TINY, "base": {"use": "x"}, "base_data": {"name": "glyphs"}})
    with pytest.raises(ConfigError, match=r"base_data\.nmae: no such key\. Did you mean 'name'"):
        make_config({**TINY, "base_data": {"nmae": "glyphs"}})


def test_images_of_another_shape_are_refused_before_training(photos: Path, tmp_path: Path):
    config = crossed(photos, base_data={"name": "glyphs", "image_size": 16})
    with pytest.raises(ConfigError, match=r"base_data has images of 1×16×16 .* and data has 1×32×32"):
        run_experiment(config, tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


# ---- a base must not know the classes of the stream, whichever set they were read from ----


def named(names: tuple[str, ...]) -> ClassPool:
    pool = noise_pool(len(names), 4)
    return ClassPool("named", pool.images, names, pool.counts)


def test_classes_of_one_name_are_the_same_in_both_sets_made_of_imagenet_and_wherever_they_lie():
    mini, tiered, cub = ({"name": name} for name in ("mini-imagenet", "tiered-imagenet", "cub"))
    assert share_names(mini, tiered)
    assert not share_names(mini, cub)
    assert share_names(cub, {"name": "cub", "path": "/elsewhere/CUB_200_2011.tgz"})
    assert not share_names({"name": "folder", "path": "a"}, {"name": "folder", "path": "b"})


def test_a_base_of_mini_imagenet_is_refused_for_streams_of_tiered_before_training():
    config = tiny(base_data={"name": "mini-imagenet"}, data={"name": "tiered-imagenet"})
    train, validation, test = (named(names) for names in MINI_IMAGENET.values())
    pool = named(TIERED_IMAGENET["test"])
    with pytest.raises(ConfigError, match=r"the base was trained on \d+ of the classes of 'named'"):
        check_base_side(config, Splits(train, validation, test), pool)
    birds = tiny(base_data={"name": "mini-imagenet"}, data={"name": "cub"})
    check_base_side(birds, Splits(train, validation, test), pool)


def test_a_base_remembers_the_classes_of_another_set_that_its_training_started_from(tmp_path: Path):
    stream, rest = named(("bird-1", "bird-2", "bird-3")), noise_pool(75, 30)
    splits = Splits(*(rest.subset(range(start, start + 25)) for start in (0, 25, 50)))
    first, about = train_base(tiny(), splits, tmp_path / "a", Reporter(quiet=True))
    about |= {"data": recorded(CUB.Options()), "train_classes": ["bird-2"]}
    first.network.save(tmp_path / "first.safetensors", about)
    config = tiny(
        data={"name": "cub"}, base_data={"name": "mini-imagenet"}, base__start=str(tmp_path / "first.safetensors")
    )
    _, second = train_base(config, splits, tmp_path / "b", Reporter(quiet=True))
    assert second["data"]["name"] == "mini-imagenet"
    with pytest.raises(ConfigError, match="the base was trained on 1 of the classes of 'named', such as 'bird-2'"):
        refuse_leak(config, second, stream)


def test_the_base_side_of_a_probe_is_of_the_classes_that_the_base_was_trained_on(photos: Path):
    config = crossed(photos)
    glyphs = {"data": {"name": "glyphs"}}
    refuse_other_base_side(config, glyphs)
    refuse_other_base_side(config, {})  # nobody knows
    with pytest.raises(ConfigError, match=r"trained on glyphs, but its side .* would be of folder\. Add base_data"):
        refuse_other_base_side(config.model_copy(update={"base_data": None}), glyphs)
    refuse_other_base_side(config.model_copy(update={"base_data": None, "probe": None}), glyphs)
