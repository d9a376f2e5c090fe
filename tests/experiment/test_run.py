"""Runs: the same bits with any number of workers, refused when they would mix."""

import os
from pathlib import Path

import pytest
from PIL import Image

from fscl.data.stream import Stream
from fscl.errors import ConfigError, DataError, MisuseError, RunError, StorageError
from fscl.experiment.config import load_config, make_config
from fscl.experiment.plan import Cell, plan_cells
from fscl.experiment.progress import Reporter
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_network
from fscl.process import cpu_level
from fscl.rng import generator
from fscl.testing import noise_pool
from tests.children import run_child
from tests.experiment.tiny import TINY, begun, command, tiny, toml


def test_a_run_records_what_was_asked_and_what_came_out(finished: RunRecord):
    about = finished.about()
    assert about["config"]["stream"]["n_way"] == 2
    assert about["config"]["settings"]["tsc"]["regulariser"]["strength"] == 0.01
    assert {"fscl", "torch", "python"} <= about["versions"].keys()
    assert about["versions"]["cpu"] == cpu_level()
    assert len(set(about["streams"])) == 3
    cells = finished.cells()
    assert set(cells) == set(plan_cells(tiny()))
    for entry in cells.values():
        assert len(entry["cost"]["learn_seconds"]) == 3
        assert entry["cost"]["peak_memory_bytes"] > 2**20
        assert [len(row) for row in entry["result"]["top1"]] == [1, 2, 3]
        assert sum(map(sum, entry["result"]["confusion"])) == 3 * 2 * 3


def test_running_again_computes_nothing_and_changes_nothing(finished: RunRecord):
    before = (finished.folder / "cells.jsonl").read_bytes(), finished.results_path.read_bytes()
    run_experiment(tiny(), finished.folder, workers=1)
    assert ((finished.folder / "cells.jsonl").read_bytes(), finished.results_path.read_bytes()) == before


def test_a_run_whose_configuration_changed_is_refused_with_both_values(finished: RunRecord):
    before = finished.results_path.read_bytes()
    with pytest.raises(RunError, match=r"config\.run\.n_sequences = 3, but now it is 2"):
        run_experiment(tiny(run__n_sequences=2), finished.folder)
    assert finished.results_path.read_bytes() == before


def test_methods_see_the_same_streams_and_another_seed_sees_others(finished: RunRecord, tmp_path: Path):
    other = run_experiment(tiny(seed=1, run__methods=["prototypes"], run__n_sequences=1), tmp_path / "other", workers=1)
    assert other.about()["streams"][0] not in finished.about()["streams"]


def test_one_more_sequence_leaves_the_others_as_they_were(finished: RunRecord, tmp_path: Path):
    fewer = run_experiment(tiny(run__methods=["replay"], run__n_sequences=1), tmp_path / "fewer", workers=1)
    cell = Cell("replay", 0)
    assert fewer.cells()[cell]["result"] == finished.cells()[cell]["result"]


def test_cells_of_another_run_are_refused(finished: RunRecord, tmp_path: Path):
    record = begun(tmp_path)
    record.cells_path.write_bytes(finished.cells_path.read_bytes())
    with pytest.raises(StorageError, match="belongs to another run"):
        record.cells()


def test_results_without_their_description_are_not_adopted(finished: RunRecord, tmp_path: Path):
    for name in ("base.safetensors", "cells.jsonl"):
        (tmp_path / name).write_bytes((finished.folder / name).read_bytes())
    with pytest.raises(RunError, match=r"has cells\.jsonl but no run\.json"):
        run_experiment(tiny(seed=5), tmp_path)
    assert not (tmp_path / "run.json").exists()


def test_a_cell_that_diverges_leaves_the_others_to_finish(tmp_path: Path):
    config = tiny(
        run__methods=["replay", "prototypes"], run__n_sequences=1, settings={"replay": {"learning_rate": 1e30}}
    )
    with pytest.raises(
        RunError, match=r"1 of 2 cells failed; 1 finished ones are kept\. The first said: replay diverged"
    ):
        run_experiment(config, tmp_path / "run", workers=1)
    assert set(RunRecord(tmp_path / "run").cells()) == {Cell("prototypes", 0)}


def test_two_processes_cannot_write_one_run(tmp_path: Path):
    with RunRecord(tmp_path).locked(), pytest.raises(RunError, match="another process is running"):
        run_experiment(tiny(), tmp_path)


def test_a_base_trained_on_the_streams_classes_is_refused(finished: RunRecord, tmp_path: Path):
    network, about = TrainedNetwork.load(finished.network_path)
    about["train_classes"] += Stream.load(finished.stream_path(0)).tasks[0].classes
    network.save(tmp_path / "leaky.safetensors", about)
    leaky = tiny(base={"use": str(tmp_path / "leaky.safetensors")})
    with pytest.raises(ConfigError, match=r"the base was trained on 2 of the classes of"):
        run_experiment(leaky, tmp_path / "leaky")
    about["train_classes"], about["validation_classes"] = [], about["train_classes"]
    network.save(tmp_path / "leaky.safetensors", about)
    with pytest.raises(ConfigError, match=r"the base was chosen on 2 of the classes of"):
        run_experiment(leaky, tmp_path / "leaky")
    assert not (tmp_path / "leaky" / "run.json").exists()


@pytest.mark.slow
def test_real_omniglot_runs_from_the_archives_to_the_results(
    real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FSCL_DATA", str(real_data))
    overrides = [
        "base={}",  # in place of the shipped one
        "base.network.width=4", "base.learner.method=maml", "base.learner.inner_steps=1", "base.train.steps=2",
        "base.train.n_way=5", "base.train.validation_episodes=2", "base.train.validate_every=1",
        "base.train.validation_way=5", "run.n_sequences=1", "settings.all.steps=3", "stream.n_tasks=3",
        'run.methods=["tsc", "prototypes"]',
    ]  # fmt: skip
    record = run_experiment(load_config("omniglot-5w5s", overrides), tmp_path / "run", workers=1)
    about = record.about()
    assert about["data"] == {"pool": "omniglot (test)", "hash": about["data"]["hash"], "classes": 660}
    for entry in record.cells().values():
        assert sum(map(sum, entry["result"]["confusion"])) == 15 * 15


def test_a_flat_folder_of_pictures_can_be_the_stream_of_a_shipped_base(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pool = noise_pool(6, 4, size=32)
    for index, name in enumerate(pool.class_names):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number, image in enumerate(pool.of_class(index)):
            Image.fromarray(image[0].numpy()).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos" / "class-0" / "broken.png").write_bytes(b"not a picture")
    changes = {
        "data": {"name": "folder", "path": str(tmp_path / "photos")},
        "base": {"use": "glyphs-protonet-conv4"},
        "stream": {"n_tasks": 3, "n_way": 2, "n_shot": 2, "n_query": 2},
        "run": {"methods": ["prototypes"], "n_sequences": 1},
    }
    with pytest.raises(DataError, match=r"broken\.png"):
        run_experiment(make_config(changes), tmp_path / "refused")
    changes["data"]["bad_files"] = "skip"
    record = run_experiment(make_config(changes), tmp_path / "run", workers=1, reporter=Reporter(quiet=True))
    assert "Skipped: class-0/broken.png is not an image" in capsys.readouterr().err.replace("\n", " ")
    assert record.about()["data"]["classes"] == 6
    assert record.cells()[Cell("prototypes", 0)]["result"]["top1"][-1] != []


def test_a_stream_that_the_data_cannot_serve_leaves_no_run_behind(tmp_path: Path):
    with pytest.raises(DataError, match=r"needs 500 classes .* has 240\. Lower n_tasks to 48\."):
        run_experiment(tiny(stream={"n_tasks": 100, "n_way": 5}), tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


def test_progress_is_silent_off_a_terminal_and_full_at_the_end_on_one(capsys: pytest.CaptureFixture[str]):
    for quiet in (True, False):
        reporter = Reporter(quiet=quiet)
        reporter.say("a remark")
        with reporter.stage("Working") as stage:
            stage.update(1, 3, "one of three")
        shown = capsys.readouterr()
        assert shown.out == ""
        assert ("100%" in shown.err and "a remark" in shown.err) is not quiet


def test_a_run_with_a_probe_records_it_for_every_cell(tmp_path: Path) -> None:
    probe = {"after": [0, 2], "n_episodes": 3, "n_way": 2, "n_shot": 2, "n_query": 3, "n_classes": 4}
    config = tiny(probe=probe, run__n_sequences=1)
    record = run_experiment(config, tmp_path / "run", workers=1)
    cells = record.cells()
    assert cells
    for entry in cells.values():
        probes = entry["result"]["probes"]
        assert {name: sorted(found) for name, found in probes.items()} == {"novel": ["0", "2"], "base": ["0", "2"]}
        assert all(len(shares) == 3 for found in probes.values() for shares in found.values())
        assert entry["cost"]["probe_seconds"] > 0
    starts: dict[int, set[tuple[float, ...]]] = {cell.sequence: set() for cell in cells}
    for cell, entry in cells.items():
        starts[cell.sequence].add(tuple(entry["result"]["probes"]["novel"]["0"]))
    assert all(len(found) == 1 for found in starts.values())  # before any task all methods stand at the base


def test_a_run_may_have_several_probes_each_with_its_own_moments(tmp_path: Path) -> None:
    probe = {"after": [0, 2], "n_episodes": 3, "n_way": 2, "n_shot": 2, "n_query": 3, "n_classes": 4}
    more = {"one-shot": {**probe, "after": [2], "n_shot": 1, "learn": "optimum"}}
    record = run_experiment(tiny(probe=probe, probes=more, run__n_sequences=1), tmp_path / "run", workers=1)
    for entry in record.cells().values():
        moments = {name: sorted(found) for name, found in entry["result"]["probes"].items()}
        assert moments == {"novel": ["0", "2"], "base": ["0", "2"], "novel one-shot": ["2"], "base one-shot": ["2"]}
    with pytest.raises(ConfigError, match=r"probes\.late\.after is \[8\], but a stream has 0 to 3 tasks behind it"):
        tiny(probes={"late": {**probe, "after": [8]}})


def test_probes_after_the_end_are_left_out_unless_none_is_left() -> None:
    assert tiny(probe={"after": [0, 9]}).probe is not None
    with pytest.raises(ConfigError, match=r"probe\.after is \[8, 9\], but a stream has 0 to 3 tasks behind it"):
        tiny(probe={"after": [8, 9]})


def test_a_run_is_not_continued_on_another_level_of_the_processor(tmp_path: Path):
    config = toml(tmp_path / "tiny.toml", {**TINY, "run": {**TINY["run"], "methods": ["prototypes"], "n_sequences": 1}})
    run = command(config, tmp_path / "run", 1)
    run_child(run)
    lower = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    again = run_child(run, env=lower, expect=1)
    assert f"another kind of processor: {cpu_level()}, but now it is torch DEFAULT, oneDNN" in again.stderr
    assert "Traceback" not in again.stderr
    reused = [*command(config, tmp_path / "other", 1), "--reuse", str(tmp_path / "run")]
    other = run_child(reused, env=lower, expect=1)
    assert f"another kind of processor: {cpu_level()}, but this run is on torch DEFAULT, oneDNN" in other.stderr


def test_what_a_method_cannot_use_is_refused_before_anything_is_written(tmp_path: Path):
    few = tiny(run__methods=["nc_fscil"], run__reference="nc_fscil", settings={"nc_fscil": {"vertices": 5}})
    with pytest.raises(MisuseError, match="nc_fscil has 5 vertices for classes, but the stream brings 6 classes"):
        run_experiment(few, tmp_path / "run", executor="in-process")
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_base_without_what_a_method_needs_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "bare.safetensors"
    init_network(NetworkSpec(width=4, image_size=32), generator(0, "bare")).save(path)
    config = tiny(
        base={"use": str(path)}, run__methods=["prototypes", "teen"], run__reference="prototypes", settings={}
    )
    with pytest.raises(MisuseError, match=r"teen, .*needs 'class_means' from the base, and this one carries nothing"):
        run_experiment(config, tmp_path / "run", executor="in-process")
    assert not (tmp_path / "run" / "cells.jsonl").exists()
