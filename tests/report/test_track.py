"""Trackers: what they get of a run, with their own packages; again and again without doubling."""

import sys
from pathlib import Path
from typing import Any

import pytest

from fscl.errors import MisuseError, UnknownName
from fscl.experiment.plan import Cell
from fscl.report.results import read_results
from fscl.report.track import track_run
from fscl.report.track.cells import tracked_run
from tests.report.runs import FAIR, GOOD, append, make_run, probed_run

MISSING = [
    ("tensorboard", "torch.utils.tensorboard", "python -m pip install tensorboard"),
    ("mlflow", "mlflow.tracking", "python -m pip install mlflow"),
    ("wandb", "wandb", "python -m pip install wandb"),
]


def test_a_cell_is_told_as_curves_and_figures_in_percent(tmp_path: Path):
    run = tracked_run(read_results(probed_run(tmp_path / "run")))
    first = run.cells[0]
    assert (first.method, first.sequence) == ("tsc", 0)
    assert first.curves["accuracy"] == {1: 100.0, 2: pytest.approx(80.0)}
    assert first.curves["probe_novel"] == {0: pytest.approx(60), 1: pytest.approx(60), 2: pytest.approx(70)}
    assert first.curves["learn_seconds"] == {1: 0.5, 2: 1.5}
    assert first.figures["final_accuracy"] == pytest.approx(80)
    assert first.figures["forgetting"] == pytest.approx(20)
    assert first.settings["slow_rate"] == 0.3
    assert run.means["tsc"]["accuracy"] == {1: 100.0, 2: pytest.approx(90.0)}


def test_keys_are_the_same_every_time_and_of_no_other_cell(tmp_path: Path):
    runs = [
        make_run(tmp_path / name, {"tsc": GOOD, "joint": FAIR}, seed=seed)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    keys = [[cell.key for cell in tracked_run(read_results(record)).cells] for record in runs]
    assert keys[0] == keys[1]
    assert len(set(keys[0]) | set(keys[2])) == 12


def events(folder: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Every scalar below a folder, as TensorBoard itself reads it, by sub-folder and name."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    found = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    return {
        run: {tag: [(each.step, each.value) for each in found.Scalars(run, tag)] for tag in tags["scalars"]}
        for run, tags in found.Runs().items()
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_each_cell_once_however_often_it_is_exported(tmp_path: Path):
    pytest.importorskip("tensorboard")
    record = make_run(tmp_path / "run", {"tsc": GOOD[:2], "joint": FAIR})
    first = track_run(record, "tensorboard")
    assert (first.n_new, first.n_cells) == (5, 5)
    before = events(Path(first.place))
    place = next(iter(before)).split("/")[0]
    assert before[f"{place}/tsc/sequence-001"]["accuracy"] == [(1, 100.0), (2, 90.0)]
    assert before[f"{place}/tsc/mean"]["accuracy"] == [(1, 100.0), (2, 85.0)]
    assert track_run(record, "tensorboard").n_new == 0
    assert events(Path(first.place)) == before
    append(record, Cell("tsc", 2), GOOD[2], 4)
    assert track_run(record, "tensorboard").n_new == 1
    after = events(Path(first.place))
    assert after[f"{place}/tsc/mean"]["accuracy"] == [(1, 100.0), (2, 90.0)]  # replaced, not added to
    assert after.keys() - before.keys() == {f"{place}/tsc/sequence-002"}
    assert not list(Path(first.place).rglob("*.part"))


@pytest.mark.filterwarnings("ignore")  # its packages warn of each other
def test_mlflow_has_each_cell_once_however_often_it_is_exported(tmp_path: Path):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    record = make_run(tmp_path / "run", {"tsc": GOOD[:2], "joint": FAIR})
    first = track_run(record, "mlflow", str(tmp_path / "store"))
    assert first.n_new == 5
    client = MlflowClient(tracking_uri=first.place)
    (experiment,) = [each for each in client.search_experiments() if each.name == "toy"]

    def runs() -> dict[str, Any]:
        found = client.search_runs([experiment.experiment_id])
        return {each.info.run_name: each for each in found}

    assert len(runs()) == len(client.search_runs([experiment.experiment_id])) == 5
    one = runs()["tsc, sequence 1"]
    assert one.data.metrics["final_accuracy"] == pytest.approx(90)
    assert one.data.params["settings.slow_rate"] == "0.3"
    history = client.get_metric_history(one.info.run_id, "accuracy")
    assert [(each.step, each.value) for each in history] == [(1, 100.0), (2, pytest.approx(90.0))]
    client.set_tag(one.info.run_id, "fscl.whole", "no")  # as an export that was killed leaves it
    assert track_run(record, "mlflow", first.place).n_new == 1
    assert len(runs()) == 5
    assert len(client.get_metric_history(runs()["tsc, sequence 1"].info.run_id, "accuracy")) == 2


@pytest.mark.filterwarnings("ignore")
def test_wandb_has_each_cell_once_and_stays_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    record = make_run(tmp_path / "run", {"joint": FAIR[:2]})
    first = track_run(record, "wandb")
    assert first.n_new == 2
    folders = sorted(Path(first.place).glob("wandb/offline-run-*"))
    keys = sorted(cell.key for cell in tracked_run(read_results(record)).cells)
    assert sorted(folder.name.rpartition("-")[2] for folder in folders) == keys
    assert track_run(record, "wandb").n_new == 0
    (Path(first.place) / "exported.json").unlink()  # as if the export had been killed before it was done
    assert track_run(record, "wandb").n_new == 2
    assert len(list(Path(first.place).glob("wandb/offline-run-*"))) == 2


@pytest.mark.parametrize(("tracker", "module", "line"), MISSING)
def test_a_tracker_that_is_not_installed_is_named_with_the_line_that_installs_it(
    tracker: str, module: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, module.partition(".")[0] if module.startswith("mlflow") else module, None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MisuseError, match=f"--to {tracker} needs its package: {line}"):
        track_run(make_run(tmp_path / "run", {"tsc": GOOD}), tracker)


def test_an_unknown_tracker_is_answered_with_the_nearest(tmp_path: Path):
    with pytest.raises(UnknownName, match=r"no tracker named 'tensorbored'\. Did you mean 'tensorboard'\?"):
        track_run(make_run(tmp_path / "run", {"tsc": GOOD}), "tensorbored")
