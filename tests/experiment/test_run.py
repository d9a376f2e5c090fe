"""Runs: resumable, the same bits with any number of workers, refused when they would mix."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from PIL import Image

from fscl.continual.settings import Dials
from fscl.data.stream import Stream
from fscl.errors import ConfigError, DataError, OtherRun, RunError, StorageError
from fscl.evaluation.probe import ProbeSpec
from fscl.experiment.config import Config, load_config, make_config
from fscl.experiment.progress import Reporter
from fscl.experiment.record import Cell, RunRecord, versions
from fscl.experiment.run import plan_cells, run_experiment
from fscl.experiment.worker import task_work
from fscl.nets.network import Network
from tests.children import FSCL, run_child, started_child
from tests.conftest import noise_pool

TINY = {
    "name": "tiny",
    "base": {
        "network": {"width": 4},
        "train": {"steps": 2, "n_query": 2, "validate_every": 2, "validation_episodes": 2, "test_episodes": 2},
    },
    "stream": {"n_tasks": 3, "n_way": 2, "n_shot": 2, "n_query": 3},
    "run": {"methods": ["tsc", "replay", "prototypes"], "reference": "replay", "n_sequences": 3},
    "settings": {"all": {"steps": 6}, "tsc": {"embedding_steps": 2}},
}


def tiny(**changes: object) -> Config:
    content = json.loads(json.dumps(TINY))
    for key, value in changes.items():
        section, _, name = key.rpartition("__")
        (content[section] if section else content)[name] = value
    return make_config(content)


def command(config: Path, out: Path, workers: int) -> list[str]:
    arguments = ["run", str(config), "--out", str(out), "--workers", str(workers)]
    return [*FSCL, *arguments]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """One whole run with two workers."""
    return run_experiment(tiny(), tmp_path_factory.mktemp("runs") / "whole", workers=2)


def test_a_run_records_what_was_asked_and_what_came_out(finished: RunRecord):
    about = finished.about()
    assert about["config"]["stream"]["n_way"] == 2
    assert about["config"]["settings"]["tsc"]["strength"] == 0.1
    assert {"fscl", "torch", "python"} <= about["versions"].keys()
    assert len(set(about["streams"])) == 3
    cells = finished.cells()
    assert set(cells) == set(plan_cells(tiny()))
    for entry in cells.values():
        assert len(entry["cost"]["learn_seconds"]) == 3
        assert entry["cost"]["peak_memory_bytes"] > 2**20
        assert [len(row) for row in entry["result"]["top1"]] == [1, 2, 3]
        assert sum(map(sum, entry["result"]["confusion"])) == 3 * 2 * 3


def toml(path: Path, config: dict[str, object], prefix: str = "") -> Path:
    """Write a nested dict as dotted keys."""

    def lines(section: dict[str, object], prefix: str) -> list[str]:
        out = []
        for key, value in section.items():
            out += (
                lines(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key} = {json.dumps(value)}"]
            )
        return out

    path.write_text("\n".join(lines(config, prefix)) + "\n")
    return path


@pytest.mark.slow
def test_a_run_killed_halfway_and_continued_equals_one_never_killed(finished: RunRecord, tmp_path: Path):
    config = toml(tmp_path / "tiny.toml", TINY)
    cut = RunRecord(tmp_path / "cut")
    with started_child(command(config, cut.folder, 2)) as child:
        child.wait_until(cut.cells)
        child.send(signal.SIGKILL)
        child.finish(expect=-signal.SIGKILL)
        done = len(cut.cells())
        assert 0 < done < 9
        assert not cut.results_path.exists()
        assert _all_gone(child.pid)

    ended = run_child(command(config, cut.folder, 1))
    assert ended.stdout.splitlines()[-1] == str(cut.folder / "report.html")
    assert cut.results_path.read_bytes() == finished.results_path.read_bytes()
    assert len((cut.folder / "cells.jsonl").read_text().splitlines()) == 9  # what was finished was not done again


@pytest.mark.slow
def test_cells_of_another_run_are_taken_over_where_they_would_be_the_same(
    finished: RunRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = tiny(name="other", run__methods=["prototypes", "tsc", "replay"], run__n_sequences=4)
    config = config.model_copy(update={"settings": {**config.settings, "replay": Dials(steps=7)}})
    record = run_experiment(
        config, tmp_path / "more", workers=1, reporter=Reporter(quiet=False), reuse=[finished.folder]
    )
    mine, theirs = record.cells(), finished.cells()
    # not those of replay, whose steps are others, and not those of sequence 3
    assert "6 finished cells are taken over" in capsys.readouterr().err
    assert all(mine[Cell(method, n)] == theirs[Cell(method, n)] for method in ("tsc", "prototypes") for n in range(3))
    assert all(mine[Cell("replay", n)]["cost"] != theirs[Cell("replay", n)]["cost"] for n in range(3))
    alone = run_experiment(config, tmp_path / "alone", workers=1)
    assert alone.results_path.read_bytes() == record.results_path.read_bytes()


def test_cells_of_another_arithmetic_are_not_taken_over_and_such_a_run_is_not_continued(
    finished: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fscl.experiment.record.ARITHMETIC", "3")
    other = RunRecord(tmp_path / "other")
    other.begin({**finished.about(), "versions": versions()})
    assert other.take_over(finished, plan_cells(tiny())) == 0
    with pytest.raises(OtherRun, match=r"versions\.arithmetic = '2', but now it is '3'"):
        finished.begin({**finished.about(), "versions": versions()})


@pytest.mark.slow
def test_a_method_of_another_name_serves_where_its_settings_are_the_same(tmp_path: Path):
    start = {"run__n_sequences": 1, "run__reference": "joint"}
    named = run_experiment(tiny(run__methods=["joint", "head"], **start), tmp_path / "named", workers=1)
    variants = tiny(run__methods=["fsw@beta=0", "fsw@k=5"], **{**start, "run__reference": "fsw@k=5"})
    settings = {"fsw@beta=0": Dials(slow_rate=0, embedding_steps="all"), "fsw@k=5": Dials(embedding_steps=5)}
    variants = variants.model_copy(update={"settings": {**variants.settings, **settings}})
    alone = run_experiment(variants, tmp_path / "alone", workers=1)
    record = run_experiment(variants, tmp_path / "served", workers=1, reuse=[named.folder])
    served, theirs = record.cells()[Cell("fsw@beta=0", 0)], named.cells()[Cell("joint", 0)]
    assert served["cost"] == theirs["cost"]  # its very times: nothing was computed again
    assert record.results_path.read_bytes() == alone.results_path.read_bytes()
    confused = [one.confused_path(Cell("fsw@beta=0", 0)).read_bytes() for one in (record, alone)]
    assert confused[0] == confused[1]


@pytest.mark.slow
def test_a_probed_run_serves_one_that_does_not_probe_but_not_the_other_way(tmp_path: Path):
    probe = {"after": [0, 3], "n_episodes": 2, "n_way": 2, "n_shot": 2, "n_query": 2, "n_classes": 4}
    plain = tiny(run__methods=["prototypes"], run__n_sequences=1, run__reference="prototypes")
    probed = plain.model_copy(update={"probe": ProbeSpec.model_validate(probe)})
    both = {
        name: run_experiment(config, tmp_path / name, workers=1)
        for name, config in (("plain", plain), ("probed", probed))
    }
    again = RunRecord(tmp_path / "again")
    again.begin(both["plain"].about())
    assert again.take_over(both["probed"], plan_cells(plain)) == 1
    assert again.cells()[Cell("prototypes", 0)]["result"] == both["plain"].cells()[Cell("prototypes", 0)]["result"]
    other = RunRecord(tmp_path / "other")
    other.begin(both["probed"].about())
    assert other.take_over(both["plain"], plan_cells(probed)) == 0


def _all_gone(session: int) -> bool:
    """Whether every process of a session ends within a few seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_keeps_the_finished_cells_and_says_how_to_go_on(tmp_path: Path):
    config = toml(tmp_path / "tiny.toml", TINY)
    record = RunRecord(tmp_path / "cut")
    with started_child(command(config, record.folder, 1)) as child:
        child.wait_until(record.cells)
        child.send(signal.SIGINT, to_group=True)  # as a terminal does: to the workers too
        errors = child.finish(timeout=60, expect=1).stderr
    assert errors.strip().splitlines()[-1].startswith("fscl: stopped; ")
    assert "the same command continues" in errors
    assert "Traceback" not in errors
    assert record.cells()


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


def begun(folder: Path) -> RunRecord:
    """A run directory without cells."""
    record = RunRecord(folder)
    spec = {"hash": "b", "spec": {}, "origin": "o", "summary": ""}
    data = {"pool": "p", "hash": "h", "classes": 2}
    record.begin({"config": {"name": "toy"}, "versions": {}, "data": data, "base": spec, "streams": []})
    return record


def test_a_line_cut_short_by_a_kill_is_dropped(tmp_path: Path):
    record = begun(tmp_path)
    record.append(Cell("tsc", 0), {"top1": [[1.0]]}, {})
    with record.cells_path.open("a") as file:
        file.write('{"method": "tsc", "sequ')
    before = record.cells_path.read_bytes()
    assert set(record.cells()) == {Cell("tsc", 0)}
    assert record.cells_path.read_bytes() == before  # readers change nothing: a writer may be at work
    record.drop_torn_line()
    record.append(Cell("tsc", 1), {"top1": [[0.5]]}, {})
    assert set(record.cells()) == {Cell("tsc", 0), Cell("tsc", 1)}


@pytest.mark.parametrize(
    ("old", "new"), [("0.5", "0.9"), ('"tsc"', '"joint"'), ('"sequence":0', '"sequence":1'), ("7.0", "1.0")]
)
def test_an_altered_cell_is_refused_whatever_was_altered(tmp_path: Path, old: str, new: str):
    record = begun(tmp_path)
    record.append(Cell("tsc", 0), {"top1": [[0.5]]}, {"learn_seconds": [7.0]})
    text = record.cells_path.read_text()
    assert old in text
    record.cells_path.write_text(text.replace(old, new))
    with pytest.raises(StorageError, match=r"line 1 was altered"):
        record.cells()


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[]", b"3", b"{}", b'{"digest": 1, "method": "x", "sequence": {}}', b"[" * 100_000]
)
def test_a_line_that_is_no_cell_is_refused_by_its_number(tmp_path: Path, line: bytes):
    record = begun(tmp_path)
    record.cells_path.write_bytes(line + b"\n")
    with pytest.raises(StorageError, match=r"cells\.jsonl, line 1 is not a finished cell"):
        record.cells()


def test_a_cell_that_comes_twice_is_refused(tmp_path: Path):
    record = begun(tmp_path)
    for _ in range(2):
        record.append(Cell("tsc", 0), {"top1": [[0.5]]}, {})
    with pytest.raises(StorageError, match="line 2 repeats tsc on sequence 0"):
        record.cells()


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


@pytest.mark.parametrize("text", ["{}", '{"kind": "run", "schema": 1}', '{"kind": "run", "schema": 1, "config": 3}'])
def test_a_damaged_description_is_refused_by_name(finished: RunRecord, tmp_path: Path, text: str):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(StorageError, match=r"run\.json"):
        RunRecord(tmp_path).about()


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
    network, about = Network.load(finished.network_path)
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


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(RunError, match="is not a run directory"):
        RunRecord(tmp_path).about()


def test_the_expected_work_grows_with_the_replayed_tasks_and_not_without_replay():
    config = tiny(run__methods=["replay", "sequential", "head", "prototypes"])
    first, last = ([task_work(config, method, number) for method in config.run.methods] for number in (0, 2))
    assert last[0] == 3 * first[0]
    assert last[1] - first[1] == 2 * 2 * 3  # the queries of two more tasks
    assert first[0] > first[2] == first[3]


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


def test_probes_after_the_end_are_left_out_unless_none_is_left() -> None:
    assert tiny(probe={"after": [0, 9]}).probe is not None
    with pytest.raises(ConfigError, match=r"probe\.after is \[8, 9\], but a stream has 0 to 3 tasks behind it"):
        tiny(probe={"after": [8, 9]})
