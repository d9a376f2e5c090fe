"""Which data sets there are, from inside and from outside the package."""

import sys
from pathlib import Path

import pytest

from fscl.data.catalogue import (
    GROUP,
    built_in_data_sets,
    data_set_names,
    find_data_set,
    known_data_set,
    load_splits,
    read_options,
    recorded,
    share_names,
)
from fscl.errors import ConfigError, MisuseError, UnknownName
from fscl.experiment.config import make_config
from fscl.meta.shipped import load_base_with_details, shipped_bases
from tests.conftest import ROOT
from tests.data.toy import write_toy
from tests.plugging import installed


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, with a data set in it; what was imported from it is forgotten at the end."""
    write_toy(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_data", raising=False)
    return tmp_path


# ---- what comes with the package ----


def test_each_file_of_the_folder_is_one_data_set():
    files = {path.stem for path in (ROOT / "fscl" / "data" / "sets").glob("[!_]*.py")}
    assert {name.replace("-", "_") for name in built_in_data_sets()} == files


@pytest.mark.parametrize("name", built_in_data_sets())
def test_a_data_set_answers_for_itself(name: str, empty_cache: Path):
    data_set = find_data_set(name)
    assert data_set.name == name
    assert data_set.summary.endswith(".")
    assert data_set.Options.model_fields["name"].default == name
    assert data_set.find() is None or name in ("glyphs", "folder")
    assert data_set.how_to_get()
    if name != "omniglot":
        with pytest.raises(MisuseError, match=r"needs no fetching|is not fetched by fscl"):
            data_set.fetch()
    assert repr(data_set) == f"<data set {name!r}>"


def test_only_a_folder_cannot_be_loaded_without_being_told_more():
    needed = {name: data_set.needed_keys() for name, data_set in built_in_data_sets().items()}
    assert {name: keys for name, keys in needed.items() if keys} == {"folder": {"path": "YOUR/FOLDER"}}


def test_the_options_of_a_set_are_its_own():
    keys = {name: sorted(data_set.Options.model_fields) for name, data_set in built_in_data_sets().items()}
    assert keys == {
        "birds": ["image_size", "name", "path"],
        "cars": ["image_size", "name", "path"],
        "cub": ["image_size", "name", "path", "split"],
        "folder": ["bad_files", "channels", "image_size", "name", "path"],
        "glyphs": ["image_size", "name"],
        "mini-fscil": ["image_size", "name", "path"],
        "mini-imagenet": ["image_size", "name", "path"],
        "mini-imagenet-star": ["image_size", "images_per_class", "name", "path"],
        "mini-incremental": ["image_size", "name", "path"],
        "omniglot": ["image_size", "name", "split"],
        "tiered-imagenet": ["image_size", "images_per_class", "name", "path"],
    }


def test_the_details_of_every_shipped_base_are_understood():
    for base in shipped_bases():
        data = load_base_with_details(base)[1]["data"]
        others = [read_options({"name": name}) for name in ("glyphs", "omniglot", "cub")]
        assert [other.name for other in others if share_names(data, recorded(other))] == [data["name"]]


def test_nothing_but_an_equal_name_is_known_of_a_set_that_is_not_here():
    assert share_names({"name": "gone"}, {"name": "gone"})
    assert not share_names({"name": "gone"}, {"name": "cub"})
    assert not share_names({}, {"name": "cub"})


# ---- from outside, by reference ----


def test_a_data_set_from_outside_is_loaded_by_its_reference_with_its_own_options(outside: Path):
    options = read_options({"name": "toy_data:TOY", "n_classes": 32})
    assert options.model_dump() == {"name": "toy_data:TOY", "image_size": 16, "n_classes": 32}
    splits = load_splits(options)
    assert [len(pool) for pool in (splits.train, splits.validation, splits.test)] == [16, 8, 8]
    assert recorded(options)["vocabulary"] == "toy"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("toy_data:TYO", "there is no data set 'toy_data:TYO': toy_data has no 'TYO'. Did you mean 'TOY'?"),
        ("toy_dtaa:TOY", "there is no data set 'toy_dtaa:TOY': no module 'toy_dtaa' is installed or on the path."),
        ("toy_data:CLASS", "the data set 'toy_data:CLASS' is broken: Toy is a class. Name an instance of it."),
        ("toy_data:NUMBER", "the data set 'toy_data:NUMBER' is broken: it is a int, not an instance of a subclass of"),
        ("toy_data:NAMELESS", "the data set 'toy_data:NAMELESS' is broken: it has no name."),
        ("toy_data:LOOSE", "the data set 'toy_data:LOOSE' is broken: its Options are not a subclass of"),
    ],
)
def test_a_wrong_reference_is_one_sentence_alone_and_in_a_configuration(outside: Path, name: str, sentence: str):
    with pytest.raises(MisuseError) as caught:
        find_data_set(name)
    assert str(caught.value).startswith(sentence)
    with pytest.raises(ConfigError) as refused:
        make_config({"data": {"name": name}})
    assert f"  - data.name: {sentence}" in str(refused.value)


def test_a_wrong_key_of_a_set_from_outside_is_answered_with_the_nearest(outside: Path):
    with pytest.raises(ConfigError, match=r"data\.n_clases: no such key\. Did you mean 'n_classes'\?"):
        make_config({"data": {"name": "toy_data:TOY", "n_clases": 32}})


def test_a_reference_in_a_file_or_in_the_name_of_a_pool_is_never_imported(outside: Path):
    recorded_elsewhere = {"name": "toy_data:TOY", "vocabulary": "imagenet"}
    assert known_data_set("toy_data:TOY") is None
    assert share_names(recorded_elsewhere, {"name": "mini-imagenet"})
    assert not share_names({"name": "toy_data:TOY"}, {"name": "cub"})
    assert "toy_data" not in sys.modules
    find_data_set("toy_data:TOY")
    assert known_data_set("toy_data:TOY") is not None  # it is in use here
    assert known_data_set("os:path") is None


# ---- from outside, by entry point ----


def test_a_data_set_of_an_entry_point_has_a_short_name(outside: Path):
    assert "toy" not in data_set_names()
    installed(outside, GROUP, {"toy": "toy_data:TOY"})
    assert data_set_names() == [*built_in_data_sets(), "toy"]
    assert make_config({"data": {"name": "toy"}}).resolved()["data"] == {
        "name": "toy",
        "image_size": 16,
        "n_classes": 40,
    }
    assert known_data_set("toy") is find_data_set("toy")
    with pytest.raises(UnknownName, match=r"no data set named 'tyo'\. Did you mean 'toy'\?"):
        find_data_set("tyo")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("gone", "not_there:TOY", "there is no data set 'not_there:TOY'"),
        ("number", "toy_data:NUMBER", "it is a int, not an instance of a subclass of"),
        ("other", "toy_data:TOY", r"its data set is called 'toy'\. Give both the same name\."),
    ],
)
def test_a_broken_entry_point_is_named_and_hurts_no_other_set(outside: Path, name: str, value: str, reason: str):
    installed(outside, GROUP, {name: value})
    with pytest.raises(
        MisuseError, match=rf"the entry point '{name}' of the group 'fscl\.datasets' is broken: {reason}"
    ):
        find_data_set(name)
    assert find_data_set("cub").name == "cub"


def test_an_entry_point_cannot_take_the_name_of_a_set_that_comes_with_the_package(outside: Path):
    installed(outside, GROUP, {"cub": "toy_data:TOY"})
    assert data_set_names() == list(built_in_data_sets())
    with pytest.raises(MisuseError, match=r"the entry point 'cub' .* \(toy_data:TOY\) has the name of a data set that"):
        find_data_set("cub")
    assert find_data_set("omniglot").name == "omniglot"
