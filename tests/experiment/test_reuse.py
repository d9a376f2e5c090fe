"""Cells of other runs: taken over where they would be the same."""

from pathlib import Path
from typing import Any

import pytest

from fscl.errors import OtherRun
from fscl.evaluation.probe import ProbeSpec
from fscl.experiment.plan import Cell, Finished, plan_cells
from fscl.experiment.progress import Reporter
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.experiment.versions import versions
from tests.experiment.tiny import tiny


def test_cells_of_another_run_are_taken_over_where_they_would_be_the_same(
    finished: RunRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = tiny(name="other", run__methods=["prototypes", "tsc", "replay"], run__n_sequences=4)
    config = config.model_copy(update={"settings": {**config.settings, "replay": {"steps": 7}}})
    record = run_experiment(
        config, tmp_path / "more", executor="in-process", reporter=Reporter(quiet=False), reuse=[finished.folder]
    )
    mine, theirs = record.cells(), finished.cells()
    # not those of replay, whose steps are others, and not those of sequence 3
    assert "6 finished cells are taken over" in capsys.readouterr().err
    assert all(mine[Cell(method, n)] == theirs[Cell(method, n)] for method in ("tsc", "prototypes") for n in range(3))
    assert all(mine[Cell("replay", n)]["cost"] != theirs[Cell("replay", n)]["cost"] for n in range(3))
    alone = run_experiment(config, tmp_path / "alone", executor="in-process")
    assert alone.results_path.read_bytes() == record.results_path.read_bytes()


def test_cells_of_another_arithmetic_are_not_taken_over_and_such_a_run_is_not_continued(
    finished: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fscl.experiment.versions.ARITHMETIC", "3")
    other = RunRecord(tmp_path / "other")
    other.begin({**finished.about(), "versions": versions("cpu")})
    assert other.take_over(finished, plan_cells(tiny())) == 0
    with pytest.raises(OtherRun, match=r"versions\.arithmetic = '2', but now it is '3'"):
        finished.begin({**finished.about(), "versions": versions("cpu")})


def test_a_method_of_another_name_serves_where_its_settings_are_the_same(tmp_path: Path):
    start = {"run__n_sequences": 1, "run__reference": "joint"}
    named = run_experiment(tiny(run__methods=["joint", "head"], **start), tmp_path / "named", executor="in-process")
    variants = tiny(run__methods=["fsw@beta=0", "fsw@k=5"], **{**start, "run__reference": "fsw@k=5"})
    settings = {
        "fsw@beta=0": {"slow_rate": 0, "embedding_steps": "all", "memory": {"always": True}},
        "fsw@k=5": {"embedding_steps": 5},
    }
    variants = variants.model_copy(update={"settings": {**variants.settings, **settings}})
    alone = run_experiment(variants, tmp_path / "alone", executor="in-process")
    record = run_experiment(variants, tmp_path / "served", executor="in-process", reuse=[named.folder])
    served, theirs = record.cells()[Cell("fsw@beta=0", 0)], named.cells()[Cell("joint", 0)]
    assert served["cost"] == theirs["cost"]  # its very times: nothing was computed again
    assert record.results_path.read_bytes() == alone.results_path.read_bytes()
    confused = [one.file_path(Cell("fsw@beta=0", 0), "confusions.json").read_bytes() for one in (record, alone)]
    assert confused[0] == confused[1]


def test_a_probed_run_serves_one_that_does_not_probe_but_not_the_other_way(tmp_path: Path):
    probe = {"after": [0, 3], "n_episodes": 2, "n_way": 2, "n_shot": 2, "n_query": 2, "n_classes": 4}
    plain = tiny(run__methods=["prototypes"], run__n_sequences=1, run__reference="prototypes")
    probed = plain.model_copy(update={"probe": ProbeSpec.model_validate(probe)})
    both = {
        name: run_experiment(config, tmp_path / name, executor="in-process")
        for name, config in (("plain", plain), ("probed", probed))
    }
    again = RunRecord(tmp_path / "again")
    again.begin(both["plain"].about())
    assert again.take_over(both["probed"], plan_cells(plain)) == 1
    assert again.cells()[Cell("prototypes", 0)]["result"] == both["plain"].cells()[Cell("prototypes", 0)]["result"]
    other = RunRecord(tmp_path / "other")
    other.begin(both["probed"].about())
    assert other.take_over(both["plain"], plan_cells(probed)) == 0


def test_the_processor_does_not_matter_to_a_run_on_a_gpu():
    assert "cpu" in versions("cpu")
    assert "cpu" not in versions("cuda")


def hand_made(folder: Path, **changes: Any) -> RunRecord:
    """A run of `tsc` and `joint` that has finished one cell, with some of what it depends on changed."""
    record = RunRecord(folder)
    about: dict[str, Any] = {
        "config": {"name": "toy", "seed": 0, "settings": {"tsc": {"steps": 5}, "joint": {"steps": 7}}},
        "versions": {"torch": "2", "cpu": "torch Z80"},
        "data": {"pool": "glyphs (test)", "hash": "pixels", "classes": 9},
        "base": {"hash": "weights", "spec": {}, "origin": "here", "summary": "a base"},
        "streams": ["first", "second"],
    }
    for key, value in changes.items():
        part, _, name = key.partition("__")
        about[part] = {**about[part], name: value} if name else value
    record.begin(about)
    return record


def finish_cell(record: RunRecord, cell: Cell) -> None:
    result = {"top1": [[0.5]], "probes": {"novel": {}}}
    files = {"confusions.json": b"confusions", "observed/drift.json": b"inside", "generated.png": b"picture"}
    record.append(cell, Finished(result, {"learn_seconds": [1.0], "probe_seconds": 2.0}, files))


def test_a_cell_is_taken_over_with_its_files_and_without_what_was_not_asked_for(tmp_path: Path):
    theirs, mine = (
        hand_made(tmp_path / "theirs", config__probe={"n_way": 5}, config__observe={"drift": {}}),
        hand_made(tmp_path / "mine"),
    )
    finish_cell(theirs, Cell("tsc", 0))
    assert mine.take_over(theirs, [Cell("tsc", 0), Cell("tsc", 1)]) == 1
    entry = mine.cells()[Cell("tsc", 0)]
    assert (entry["result"], entry["cost"]) == ({"top1": [[0.5]]}, {"learn_seconds": [1.0]})
    assert mine.file_path(Cell("tsc", 0), "confusions.json").read_bytes() == b"confusions"
    assert mine.file_path(Cell("tsc", 0), "generated.png").read_bytes() == b"picture"
    assert not mine.file_path(Cell("tsc", 0), "observed/drift.json").exists()
    assert mine.take_over(theirs, [Cell("tsc", 0)]) == 0  # done already


def test_a_run_that_asks_for_more_takes_what_has_it(tmp_path: Path):
    more = {"config__probe": {"n_way": 5}, "config__observe": {"drift": {"after": [1]}}}
    theirs, mine = hand_made(tmp_path / "theirs", **more), hand_made(tmp_path / "mine", **more)
    finish_cell(theirs, Cell("tsc", 0))
    assert mine.take_over(theirs, [Cell("tsc", 0)]) == 1
    assert "probes" in mine.cells()[Cell("tsc", 0)]["result"]
    assert mine.file_path(Cell("tsc", 0), "observed/drift.json").read_bytes() == b"inside"


@pytest.mark.parametrize(
    "change",
    [
        {"data__hash": "other pixels"},
        {"base__hash": "other weights"},
        {"streams": ["other", "second"]},
        {"versions__torch": "3"},
        {"config__seed": 1},
        {"config__settings": {"tsc": {"steps": 6}}},
        {"config__probe": {"n_way": 5}},
        {"config__observe": {"drift": {"after": [1]}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_cell_that_depends_on_anything_else_is_not_taken_over(tmp_path: Path, change: dict[str, Any]):
    theirs, mine = hand_made(tmp_path / "theirs"), hand_made(tmp_path / "mine", **change)
    finish_cell(theirs, Cell("tsc", 0))
    assert mine.take_over(theirs, [Cell("tsc", 0)]) == 0


def test_a_name_or_more_sequences_do_not_matter_to_a_cell(tmp_path: Path):
    theirs = hand_made(tmp_path / "theirs")
    mine = hand_made(tmp_path / "mine", config__name="other", streams=["first", "third", "fourth"])
    finish_cell(theirs, Cell("tsc", 0))
    assert mine.take_over(theirs, [Cell("tsc", 0)]) == 1


def test_a_method_of_the_same_settings_serves_under_its_own_name(tmp_path: Path):
    theirs = hand_made(tmp_path / "theirs")
    mine = hand_made(tmp_path / "mine", config__settings={"tsc@steps=7": {"steps": 7}, "tsc@steps=5": {"steps": 5}})
    finish_cell(theirs, Cell("tsc", 0))
    assert mine.take_over(theirs, [Cell("tsc@steps=7", 0), Cell("tsc@steps=5", 0)]) == 1
    assert set(mine.cells()) == {Cell("tsc@steps=5", 0)}
    assert mine.file_path(Cell("tsc@steps=5", 0), "confusions.json").read_bytes() == b"confusions"


def test_cells_of_another_kind_of_processor_are_refused_with_both_shown(tmp_path: Path):
    theirs, mine = hand_made(tmp_path / "theirs"), hand_made(tmp_path / "mine", versions__cpu="torch 6502")
    finish_cell(theirs, Cell("tsc", 0))
    with pytest.raises(OtherRun, match=r"another kind of processor: torch Z80, but this run is on torch 6502\."):
        mine.take_over(theirs, [Cell("tsc", 0)])
    assert mine.cells() == {}
