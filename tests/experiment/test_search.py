"""Searches: on validation classes alone, the same after a kill, and a winner that can be run."""

import json
import signal
import sys
import tomllib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fscl.data.catalogue import load_splits
from fscl.errors import ConfigError, MisuseError, OtherRun, RunError
from fscl.experiment.config import Config, load_config, make_config
from fscl.experiment.executors.executor import Outcome
from fscl.experiment.executors.in_process import InProcess
from fscl.experiment.plan import Cell, Order
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.experiment.search.driver import run_search
from fscl.experiment.search.record import SearchRecord
from fscl.experiment.search.sampling import Sampler, importances
from fscl.experiment.search.spec import SearchSpec
from tests.children import FSCL, run_child, started_child
from tests.experiment.tiny import toml

pytest.importorskip("optuna")

SEARCH: dict[str, Any] = {
    "name": "tiny-search",
    "base": {"use": "glyphs-protonet-conv4"},
    "stream": {"n_tasks": 2, "n_way": 5, "n_shot": 2, "n_query": 3},
    "run": {"methods": ["tsc", "prototypes"], "reference": "prototypes", "n_sequences": 4, "split": "validation"},
    "settings": {"all": {"steps": 4, "views": 1}},
    "search": {
        "method": "tsc",
        "trials": 6,
        "at_a_time": 3,
        "keep": 2,
        "space": {"embedding_steps": {"low": 1, "high": 3}, "learning_rate": {"low": 1e-4, "high": 0.1, "log": True}},
    },
}


def searched(**changes: Any) -> Config:
    content = json.loads(json.dumps(SEARCH))
    for key, value in changes.items():
        section, _, name = key.rpartition("__")
        (content[section] if section else content)[name] = value
    return make_config(content)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SearchRecord:
    """One whole search that nothing disturbed."""
    return run_search(searched(), tmp_path_factory.mktemp("searches") / "whole", executor="in-process")


def files_of(record: SearchRecord) -> dict[str, bytes]:
    """What must not depend on who computed it, nor on a kill."""
    names = ("search.json", "trials.json", "trials.csv", "winner.toml")
    results = {str(path.relative_to(record.folder)): path.read_bytes() for path in record.folder.rglob("results.json")}
    return results | {name: (record.folder / name).read_bytes() for name in names}


def test_every_trial_has_its_values_its_sequences_and_its_accuracy(finished: SearchRecord):
    trials = finished.trials()
    assert [trial.number for trial in trials.trials] == list(range(6))
    assert {len(trial.accuracy) for trial in trials.trials} <= {1, 2, 4}
    assert {len(trial.accuracy) for trial in trials.trials if trial.state == "complete"} == {4}
    assert any(trial.state == "stopped" for trial in trials.trials)
    for trial in trials.trials:
        assert 1 <= int(trial.values["embedding_steps"]) <= 3
        assert 1e-4 <= float(trial.values["learning_rate"]) <= 0.1
    best = trials.trials[trials.winner or 0]
    assert best.mean == max(trial.mean for trial in trials.trials if trial.state == "complete")
    assert sum(trials.importance.values()) == pytest.approx(1, abs=1e-3)
    lines = (finished.folder / "trials.csv").read_text().splitlines()
    assert lines[0] == "trial,embedding_steps,learning_rate,state,sequences,accuracy_percent"
    assert len(lines) == 7


@pytest.mark.slow
def test_a_search_killed_in_the_middle_ends_with_the_same_trials_and_the_same_winner(
    finished: SearchRecord, tmp_path: Path
):
    config, record = toml(tmp_path / "tiny.toml", SEARCH), SearchRecord(tmp_path / "search")
    command = [*FSCL, "search", config, "--out", record.folder, "--executor", "in-process"]
    with started_child(command) as child:
        child.wait_until(record.level(0, 2).about_path.exists)
        child.send(signal.SIGKILL, to_group=True)
    assert not record.winner_path.exists()
    ended = run_child(command)
    assert files_of(record) == files_of(finished)
    assert ended.stdout.splitlines()[-1] == str(record.folder / "search.html")
    before = {path: path.stat().st_mtime_ns for path in record.folder.rglob("cells.jsonl")}
    run_search(searched(), record.folder, executor="in-process")  # again: nothing is left to do
    assert {path: path.stat().st_mtime_ns for path in record.folder.rglob("cells.jsonl")} == before
    assert files_of(record) == files_of(finished)


def test_the_winner_is_a_configuration_that_names_its_search_and_repeats_its_cells(
    finished: SearchRecord, tmp_path: Path
):
    winner, trials = load_config(str(finished.winner_path)), finished.trials()
    best = trials.trials[trials.winner or 0]
    assert winner.name == "tiny-search-winner"
    assert winner.chosen_by is not None
    assert winner.chosen_by.startswith("tiny-search (")
    assert winner.chosen_by.endswith(f"), trial {best.number} of 6")
    settings = winner.settings_of("tsc").model_dump()
    assert {path: settings[path] for path in best.values} == best.values
    record = run_experiment(winner, tmp_path / "run", executor="in-process")
    assert record.about()["config"]["chosen_by"] == winner.chosen_by
    (level,) = [path for path in finished.folder.glob("levels/*-004") if f"trial-{best.number:03d}" in _methods(path)]
    trial = RunRecord(level).cells()
    for number in range(4):
        mine, theirs = record.cells()[Cell("tsc", number)], trial[Cell(f"tsc@trial-{best.number:03d}", number)]
        assert mine["result"] == theirs["result"]


def _methods(level: Path) -> str:
    return " ".join(RunRecord(level).about()["config"]["run"]["methods"])


def test_no_image_of_a_test_class_is_in_any_stream_of_a_search(finished: SearchRecord):
    splits = load_splits(searched().data)
    levels = [RunRecord(path) for path in finished.folder.glob("levels/*")]
    assert len(levels) >= 4
    for level in levels:
        assert level.about()["data"]["hash"] == splits.validation.content_hash
        streams = [json.loads(path.read_text()) for path in (level.folder / "streams").iterdir()]
        named = {name for stream in streams for task in stream["tasks"] for name in task["classes"]}
        assert named <= set(splits.validation.class_names)
        assert not named & set(splits.test.class_names)


def test_a_search_cannot_be_pointed_at_test_classes(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"settings are chosen on validation classes alone, but run\.split is 'test'"):
        searched(run__split="test")
    content = json.loads(json.dumps(SEARCH))
    del content["run"]["split"]  # the default is no way around
    with pytest.raises(ConfigError, match="validation classes alone"):
        make_config(content)
    config = searched()
    forged = config.model_copy(update={"run": config.run.model_copy(update={"split": "test"})})
    with pytest.raises(ConfigError, match="validation classes alone"):
        run_search(forged, tmp_path / "search")
    assert not (tmp_path / "search").exists()
    ended = run_child([*FSCL, "search", toml(tmp_path / "t.toml", SEARCH), "run.split=test"], cwd=tmp_path, expect=2)
    assert "validation classes alone" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("space", "line"),
    [
        ({"slow_rat": {"low": 0.0, "high": 1.0}}, "search.space.slow_rat: no such key. Did you mean 'slow_rate'?"),
        ({"slow_rate": {"low": 0.0, "high": 2.0}}, "search.space.slow_rate: input should be less than or equal to 1"),
        ({"run.split": {"values": ["validation", "test"]}}, "search.space.run: no such key."),
        ({"slow_rate": {"low": 1.0, "high": 0.5}}, "needs values, or low and high, of which high is the larger"),
        ({"slow_rate": {"values": [0.5, 1.0], "low": 0.1}}, "values names every value, so low, high, log and step"),
        ({"slow_rate": {"values": [0.5]}}, "values needs at least two, each once"),
        ({"slow_rate": {"low": 0.0, "high": 1.0, "log": True}}, "log needs a low above 0, and no step"),
        ({}, "at least 1"),
    ],
)
def test_a_space_that_the_method_does_not_have_is_refused(space: dict[str, Any], line: str):
    with pytest.raises(ConfigError) as caught:
        searched(search__space=space)
    assert line in str(caught.value)


def test_a_search_needs_a_base_that_is_there_and_a_method_of_the_run(tmp_path: Path):
    with pytest.raises(ConfigError, match="all trials of a search begin with the same one"):
        run_search(searched(base={}), tmp_path / "search")
    with pytest.raises(ConfigError, match=r"'ewc' is none of run\.methods"):
        searched(search__method="ewc")
    with pytest.raises(ConfigError, match=r"search\.first: is 5, but run\.n_sequences is 4"):
        searched(search__first=5)
    with pytest.raises(ConfigError, match=r"has no table \[search\]"):
        run_search(load_config("glyphs-quick"), tmp_path / "search")


def test_a_configuration_with_a_search_is_not_run_as_if_it_had_none(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"has a table \[search\], which has an effect in `fscl search` alone"):
        run_experiment(searched(), tmp_path / "run")


class Counting(InProcess):
    """Computes here, and notes what it was given."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def compute(self, order: Order, cells: Sequence[Cell], *rest: Any) -> Generator[tuple[Cell, Outcome], None, None]:
        self.cells += cells
        yield from super().compute(order, cells, *rest)


def test_every_cell_goes_through_the_executor_once_and_what_a_level_has_is_taken_over(tmp_path: Path):
    executor = Counting()
    config = searched(search__trials=2, search__at_a_time=2, run__n_sequences=2)
    trials = run_search(config, tmp_path / "search", executor=executor).trials().trials
    wanted = [Cell(f"tsc@trial-{trial.number:03d}", n) for trial in trials for n in range(len(trial.accuracy))]
    assert sorted(executor.cells, key=str) == sorted(wanted, key=str)


def test_another_search_in_the_same_folder_is_refused_with_both_values(finished: SearchRecord):
    with pytest.raises(OtherRun, match=r"holds a search with search.seed = 0, but now it is 1\."):
        run_search(searched(search__seed=1), finished.folder, executor="in-process")


def test_trials_that_diverge_are_noted_and_the_others_go_on(tmp_path: Path):
    space = {"learning_rate": {"values": [1e-3, 1e30]}}
    config = searched(search__space=space, search__trials=4, run__n_sequences=1)
    trials = run_search(config, tmp_path / "search", executor="in-process").trials()
    states = {float(trial.values["learning_rate"]): trial.state for trial in trials.trials}
    assert states == {1e-3: "complete", 1e30: "diverged"}
    assert trials.trials[trials.winner or 0].values["learning_rate"] == 1e-3
    hopeless = searched(search__space={"learning_rate": {"values": [1e29, 1e30]}}, search__trials=2)
    with pytest.raises(RunError, match="every one of the 2 trials of tiny-search diverged"):
        run_search(hopeless, tmp_path / "hopeless", executor="in-process")


def test_the_first_trial_is_what_the_method_has_now_if_the_space_holds_it():
    search = SearchSpec.model_validate({"method": "tsc", "space": {"slow_rate": {"low": 0.0, "high": 1.0}}})
    assert Sampler(search, {"slow_rate": 0.3}).draw() == (0, {"slow_rate": 0.3})
    assert Sampler(search, {"slow_rate": 7.0}).draw()[1] != {"slow_rate": 7.0}


def test_the_same_seed_draws_the_same_values_and_stops_the_same_trials():
    space = {"a": {"low": 0.0, "high": 1.0}, "b": {"values": ["x", "y"]}, "c": {"low": 1, "high": 9, "step": 2}}
    search = SearchSpec.model_validate({"method": "tsc", "keep": 2, "space": space, "seed": 3})

    def course() -> list[object]:
        sampler, found = Sampler(search, {}), []
        for _ in range(20):
            number, values = sampler.draw()
            goes_on = sampler.goes_on(number, float(values["a"]), 1)
            if goes_on:
                sampler.finished(number, float(values["a"]))
            found.append((values, goes_on))
        return found

    first = course()
    assert first == course()
    assert all(values["c"] in (1, 3, 5, 7, 9) for values, _ in first)  # type: ignore[index, misc]
    kept = [values["a"] for values, goes_on in first if goes_on]  # type: ignore[index, misc]
    stopped = [values["a"] for values, goes_on in first if not goes_on]  # type: ignore[index, misc]
    assert sum(kept) / len(kept) > sum(stopped) / len(stopped)


def test_importance_tells_the_setting_that_matters_from_the_one_that_does_not():
    space = {"matters": {"low": 0.0, "high": 1.0}, "does_not": {"low": 0.0, "high": 1.0}}
    search = SearchSpec.model_validate({"method": "tsc", "space": space})
    trials = [({"matters": a / 10, "does_not": b / 10}, 90 + a) for a in range(11) for b in range(0, 11, 5)]
    found = importances(search, trials)
    assert found["matters"] > 0.95
    assert importances(search, trials[:3]) == {}
    assert importances(search, [(values, 1.0) for values, _ in trials]) == {}


def test_levels_grow_up_to_all_sequences():
    search = SearchSpec.model_validate({"method": "tsc", "first": 2, "keep": 3, "space": {"a": {"values": [1, 2]}}})
    assert search.levels(20) == [2, 6, 18, 20]
    assert search.levels(6) == [2, 6]
    assert search.levels(2) == [2]


def test_sections_of_the_file_are_paths_of_the_space():
    content = tomllib.loads('method = "ewc"\n[space]\nregulariser.strength = { low = 1.0, high = 9.0, log = true }')
    assert list(SearchSpec.model_validate(content).space) == ["regulariser.strength"]


def test_without_optuna_a_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MisuseError, match=r"a search needs Optuna: python -m pip install 'fscl\[search\]'"):
        run_search(searched(), tmp_path / "search")
    assert not (tmp_path / "search").exists()
