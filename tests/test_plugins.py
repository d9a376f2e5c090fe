"""Plug-ins: found by reference, by entry point, and as files of a package; one clear sentence for each that is broken."""

from pathlib import Path

import pytest

from fscl.errors import MisuseError, UnknownName
from fscl.plugins import entry_points_of, load_entry_point, load_object, modules_in
from tests.plugging import installed

GROUP = "fscl.tests"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, with a module in it."""
    (tmp_path / "outside_fscl.py").write_text("class Thing:\n    part = 3\n\nTHING = Thing()\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_object_is_found_by_its_module_and_name(place: Path):
    assert type(load_object("outside_fscl:THING", what="thing")).__name__ == "Thing"
    assert load_object("outside_fscl:THING.part", what="thing") == 3


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("outside_fscl", "thing 'outside_fscl' is not of the form package.module:Name."),
        ("../evil:THING", "thing '../evil:THING' is not of the form package.module:Name."),
        (
            "outside_fcsl:THING",
            "there is no thing 'outside_fcsl:THING': no module 'outside_fcsl' is installed or on the path. "
            "Install its package, or add its folder to PYTHONPATH.",
        ),
        (
            "outside_fscl:THNG",
            "there is no thing 'outside_fscl:THNG': outside_fscl has no 'THNG'. Did you mean 'THING'?",
        ),
    ],
)
def test_what_is_not_there_is_one_sentence_with_the_way_out(place: Path, reference: str, sentence: str):
    with pytest.raises(UnknownName) as caught:
        load_object(reference, what="thing")
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_reason(place: Path, code: str, reason: str):
    (place / "broken_outside_fscl.py").write_text(code)
    with pytest.raises(MisuseError) as caught:
        load_object("broken_outside_fscl:THING", what="thing")
    assert str(caught.value).startswith(
        "the thing 'broken_outside_fscl:THING' cannot be used: importing broken_outside_fscl failed (" + reason
    )
    assert "\n" not in str(caught.value)


def test_entry_points_are_found_by_their_group_and_not_imported_before_they_are_asked_for(place: Path):
    installed(place, GROUP, {"second": "nowhere_at_all:X", "first": "outside_fscl:THING"})
    points = entry_points_of(GROUP)
    assert list(points) == ["first", "second"]
    assert type(load_entry_point(points["first"], what="thing")).__name__ == "Thing"
    with pytest.raises(
        UnknownName, match=r"the entry point 'second' of the group 'fscl\.tests' is broken: there is no "
    ):
        load_entry_point(points["second"], what="thing")
    assert entry_points_of("fscl.nothing") == {}


def test_one_name_for_two_things_is_refused_and_for_one_thing_it_is_not(place: Path):
    installed(place, GROUP, {"thing": "outside_fscl:THING"}, package="one")
    installed(place, GROUP, {"thing": "outside_fscl:THING"}, package="two")
    assert list(entry_points_of(GROUP)) == ["thing"]
    installed(place, GROUP, {"thing": "outside_fscl:Thing"}, package="three")
    with pytest.raises(MisuseError, match=r"two packages have an entry point 'thing' .*: outside_fscl:THING and "):
        entry_points_of(GROUP)


def test_the_modules_of_a_package_are_all_of_its_files_but_the_private_ones(place: Path):
    folder = place / "package_outside_fscl"
    folder.mkdir()
    for name in ("__init__", "two", "one", "_private"):
        (folder / f"{name}.py").write_text("")
    names = [module.__name__ for module in modules_in("package_outside_fscl")]
    assert names == ["package_outside_fscl.one", "package_outside_fscl.two"]
