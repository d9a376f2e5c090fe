"""Observers: a learner never notices them, their files are refused when damaged, and anybody can bring one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fscl.evaluation.findings as findings_module
from fscl.analysis.drift import Drift, DriftObserver
from fscl.analysis.fisher import FisherObserver
from fscl.analysis.penalties import Penalties, PenaltiesObserver
from fscl.continual.registry import make_learner
from fscl.data.catalogue import load_splits
from fscl.data.pool import ClassPool
from fscl.data.stream import Stream
from fscl.errors import ConfigError, MisuseError, OtherRun, StorageError
from fscl.evaluation.findings import finding_bytes, load_finding
from fscl.evaluation.observer import Finding, find_observer, observer_names
from fscl.evaluation.protocol import evaluate_stream
from fscl.experiment.config import make_config
from fscl.experiment.observers import observers_of, problems_with_observers
from fscl.experiment.plan import Cell
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.nets.trained import TrainedNetwork
from fscl.report.page import write_report
from fscl.report.results import Results, read_results
from fscl.rng import child_seed
from fscl.storage import digest, write_bytes
from tests.analysis.conftest import OBSERVE
from tests.analysis.small import QUICK, base, learner_of, watched
from tests.experiment.tiny import tiny
from tests.report.runs import GOOD, about, make_run, page_of

MINE = """
from fscl.evaluation.observer import Finding, Observer, TrainingPoint


class Seen(Finding):
    classes: tuple[int, ...]


class SeenInTraining(TrainingPoint):
    images: int


class ClassCounter(Observer):
    class Settings(Observer.Settings):
        every: int = 1

    finding = Seen

    def __init__(self, settings, task):
        super().__init__(settings, task)
        self.classes = []

    def look(self, n_tasks, learner):
        if n_tasks % self.settings.every == 0:
            self.classes.append(learner.n_classes)

    def found(self, learner):
        return Seen(classes=tuple(self.classes))

    @classmethod
    def n_episodes(cls, settings):
        return 2

    @classmethod
    def look_at_training(cls, network, episodes, step):
        return SeenInTraining(step=step, images=sum(len(episode.support) for episode in episodes))


class Half(Observer):
    def look(self, n_tasks, learner):
        return
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reference to an observer of somebody else, in a module on the path."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "observer_outside_fscl.py").write_text(MINE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "observer_outside_fscl", raising=False)
    return "observer_outside_fscl:ClassCounter"


# Along a stream


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("method", ["stc", "ewc", "tsc", "naive", "prototypes"])
def test_a_learner_never_notices_that_it_is_observed(method: str, norm: str, stream: Stream, small_pool: ClassPool):
    network = base(norm)
    statistics = network.freeze_statistics(network.to_input(small_pool.images))
    network = network.with_weights(network.params, statistics)
    settings = None if method == "prototypes" else QUICK
    seen, plain = (make_learner(method, network, seed=0, settings=settings) for _ in range(2))
    task = stream.task(small_pool, 0)
    drift = DriftObserver(DriftObserver.Settings(after=(0, 1, 2)), task)
    fisher = FisherObserver(FisherObserver.Settings(steps=(0, 2, 50)), task)
    penalties = PenaltiesObserver(PenaltiesObserver.Settings(after=2), task)
    result = watched(seen, stream, small_pool, drift, fisher, penalties)
    findings = drift.found(seen), fisher.found(seen), penalties.found(seen)
    if method == "prototypes":
        assert findings == (None, None, None)
    else:
        assert findings[0] is not None
        assert findings[0].after == (0, 1, 2)
        assert findings[1] is not None
        assert (findings[2] is None) == (method == "naive")  # which holds nothing
    without = evaluate_stream(plain, stream, small_pool)
    assert result.result() == without.result()
    one, other = seen.state(), plain.state()
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(one.tensors[key], other.tensors[key]) for key in one.tensors)


# Files


@pytest.fixture(scope="module")
def drift(stream: Stream, small_pool: ClassPool) -> Drift:
    learner = learner_of("stc")
    observer = DriftObserver(DriftObserver.Settings(after=(0, 1, 2)), stream.task(small_pool, 0))
    watched(learner, stream, small_pool, observer)
    found = observer.found(learner)
    assert found is not None
    return found


def test_what_was_found_comes_back_as_it_was(drift: Drift, tmp_path: Path):
    path = tmp_path / "drift.json"
    path.write_bytes(finding_bytes(drift))
    assert load_finding(path, Drift) == drift
    with pytest.raises(StorageError, match="is a drift file where a penalties file is needed"):
        load_finding(path, Penalties)


def test_a_damaged_file_is_refused_in_one_sentence(drift: Drift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "drift.json"
    whole = finding_bytes(drift)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StorageError, match="is not a whole JSON file"):
        load_finding(path, Drift)
    content = json.loads(whole)
    content["found"]["moved"][0] = 1.0
    path.write_text(json.dumps(content))
    with pytest.raises(StorageError, match=r"was altered after it was written.*Delete it to have the report without"):
        load_finding(path, Drift)
    del content["found"]["moved"][0]
    content["digest"] = digest(content["found"])
    path.write_text(json.dumps(content))
    with pytest.raises(StorageError, match=r"is damaged: the whole: .*3 moments, but not as many values"):
        load_finding(path, Drift)
    content["found"]["explained"] = "most"
    content["digest"] = digest(content["found"])
    path.write_text(json.dumps(content))
    with pytest.raises(StorageError, match="is damaged: explained: "):
        load_finding(path, Drift)
    content["found"], content["digest"] = [1], digest([1])
    path.write_text(json.dumps(content))
    with pytest.raises(StorageError, match="is damaged: the whole"):
        load_finding(path, Drift)
    monkeypatch.setattr(findings_module, "MAX_BYTES", 10)
    with pytest.raises(StorageError, match="a finding has at most 10"):
        load_finding(path, Drift)


# Configuration


def test_moments_that_never_come_are_refused():
    assert list(problems_with_observers({"drift": {"after": [1, 7]}, "penalties": {"after": 1}}, 3)) == [
        "observe.drift: it looks after 7 tasks, but a stream has 3. Look earlier, or raise stream.n_tasks."
    ]
    with pytest.raises(ConfigError, match=r"  - observe\.penalties: it looks after 5 tasks, but a stream has 3\."):
        make_config({"stream": {"n_tasks": 3}, "observe": {"penalties": {}}})
    for section in ({"fisher": {"steps": [5, 1]}}, {"drift": {"after": [2, 2]}}):
        assert "go up and come once each" in str(list(problems_with_observers(section, 3)))
    assert list(problems_with_observers({"drift": {"after": [0, 3]}}, 3)) == []


def test_a_misspelt_observer_or_setting_is_one_line_with_the_nearest_name(mine: str):
    asked = {"dirft": {}, "drift": {"aftr": [1]}, mine: {"evry": 2}, mine.replace("Counter", "Countr"): {}}
    assert list(problems_with_observers(asked, 3)) == [
        "observe.dirft: no observer named 'dirft'. Did you mean 'drift'? Known: drift, fisher, penalties.",
        "observe.drift.aftr: no such key. Did you mean 'after'?",
        f"observe.\"{mine}\".evry: no such key. Did you mean 'every'?",
        "observe.\"observer_outside_fscl:ClassCountr\": there is no observer 'observer_outside_fscl:ClassCountr': "
        "observer_outside_fscl has no 'ClassCountr'. Did you mean 'ClassCounter'?",
    ]


def test_what_is_no_observer_or_half_of_one_is_refused(mine: str):
    with pytest.raises(MisuseError, match=r"^json:loads is no observer: a class that extends"):
        find_observer("json:loads")
    with pytest.raises(MisuseError, match=r":Half is not a whole observer: it needs `look`, `found` and `finding`\.$"):
        find_observer("observer_outside_fscl:Half")
    with pytest.raises(MisuseError, match="is not a whole observer"):
        find_observer("fscl.evaluation.observer:Observer")
    assert observer_names() == ["drift", "fisher", "penalties"]
    assert all(find_observer(name).__module__ == f"fscl.analysis.{name}" for name in observer_names())


def test_every_value_in_force_is_on_record():
    config = make_config({"observe": {"fisher": {"steps": [0, 1]}, "penalties": {}}})
    assert config.resolved()["observe"] == {"fisher": {"steps": [0, 1], "episodes": 4}, "penalties": {"after": 5}}
    assert make_config(config.resolved()).resolved() == config.resolved()


def test_a_run_that_is_observed_is_another_than_one_that_is_not(tmp_path: Path):
    record = make_run(tmp_path, {"tsc": GOOD})
    config = record.about()["config"]
    record.begin(about(config))
    for asked in ({"drift": {"after": [1]}}, {"fisher": {}}):
        observed = make_config({**config, "observe": asked})
        with pytest.raises(OtherRun, match=r"config\.observe\.(drift\.after|fisher\.episodes) = None, but now"):
            record.begin(about(observed.resolved()))


# Runs


def test_results_are_the_same_bytes_with_and_without_observers(run: RunRecord, tmp_path: Path):
    plain = run_experiment(tiny(run__n_sequences=2), tmp_path, executor="in-process")
    assert plain.results_path.read_bytes() == run.results_path.read_bytes()
    assert not list(tmp_path.rglob("observed"))


def test_what_an_observed_run_has_finished_serves_one_that_is_not_observed(run: RunRecord, tmp_path: Path):
    config = tiny(run__n_sequences=2, base={"use": str(run.network_path)})
    plain = run_experiment(config, tmp_path, executor="in-process", reuse=[run.folder])
    assert plain.cells_path.read_text().count('"learn_seconds"') == 6
    costs = [{cell: entry["cost"] for cell, entry in record.cells().items()} for record in (plain, run)]
    assert costs[0] == costs[1]  # seconds, too: nothing was computed again
    assert not list(tmp_path.rglob("observed"))


def test_a_run_observes_what_trains_its_embedding_and_the_training_of_its_base(run: RunRecord, results: Results):
    observed = {path.relative_to(run.folder).as_posix() for path in run.folder.rglob("observed/*")}
    assert observed == {
        "observed/fisher.json",  # meta-training
        "files/replay-000/observed/drift.json",
        "files/replay-000/observed/fisher.json",
        "files/tsc-000/observed/drift.json",
        "files/tsc-000/observed/fisher.json",
        "files/tsc-000/observed/penalties.json",
    }  # nothing of prototypes, and of the first sequence alone
    assert [point["step"] for point in results.training["fisher"]] == [0, 2]
    assert list(results.training) == ["fisher"]
    assert {name: sorted(found) for name, found in results.findings.items()} == {
        "drift": ["replay", "tsc"],
        "fisher": ["replay", "tsc"],
        "penalties": ["tsc"],
    }


def test_the_first_sequence_is_the_one_observed(run: RunRecord, results: Results):
    config = make_config(run.about()["config"])
    pool, stream = load_splits(config.data).pool("test"), Stream.load(run.stream_path(0))
    network = TrainedNetwork.load(run.network_path)[0]
    for method in ("replay", "tsc"):
        seed = child_seed(config.seed, "learner", 0)
        learner = make_learner(method, network, seed=seed, settings=config.settings_of(method))
        observers = {
            name: observer(settings, stream.task(pool, 0))
            for name, (observer, settings) in observers_of(config.observe).items()
        }
        watched(learner, stream, pool, *observers.values())
        for name, observer in observers.items():
            assert observer.found(learner) == results.findings[name].get(method)


def test_an_observer_of_somebody_else_goes_through_a_run_with_two_workers(mine: str, tmp_path: Path):
    config = tiny(observe={mine: {"every": 2}}, stream__n_tasks=4, run__n_sequences=2)
    record = run_experiment(config, tmp_path / "run", workers=2)
    kind = find_observer(mine).finding
    for method in ("tsc", "replay", "prototypes"):
        found: Finding = load_finding(record.file_path(Cell(method, 0), f"observed/{mine}.json"), kind)
        assert found.model_dump() == {"classes": (0, 4, 8)}  # after 0, 2 and 4 tasks, of 2 classes each
        assert not record.file_path(Cell(method, 1), "observed").exists()
    names = {path.name for path in record.folder.rglob("observed/*")}
    assert names == {"observer_outside_fscl+ClassCounter.json"}  # a colon is no part of a file name everywhere
    results = read_results(record)
    assert results.findings[mine] == {}  # reading a run imports nothing that it names
    images = 2 * config.base.train.n_way * config.base.train.n_shot
    assert results.training[mine] == ({"step": 0, "images": images}, {"step": 2, "images": images})
    assert mine in page_of(record)  # in the listing of the configuration


def test_a_run_is_reported_where_its_observer_is_not_installed(tmp_path: Path):
    record = RunRecord(tmp_path)
    record.begin(about({**tiny().resolved(), "observe": {"nowhere_at_all:Observer": {"every": 2}}}))
    assert read_results(record).findings == {"nowhere_at_all:Observer": {}}


def imported_by(code: str) -> set[str]:
    """The modules of fscl.analysis that are imported once the code has run in a process of its own."""
    tail = "\nimport sys\nprint(*[name for name in sys.modules if name.startswith('fscl.analysis')])"
    ended = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())


def test_nothing_imports_an_observer_unless_a_configuration_names_it(tmp_path: Path):
    code = (
        "from pathlib import Path\n"
        "import fscl, fscl.experiment.run, fscl.evaluation.observer\n"
        "from tests.experiment.tiny import tiny\n"
        "config = tiny(run__methods=['tsc'], run__reference='tsc', run__n_sequences=1, {observe})\n"
        f"fscl.experiment.run.run_experiment(config, Path({str(tmp_path)!r}) / {{folder!r}}, executor='in-process')"
    )
    assert imported_by(code.format(observe="", folder="plain")) == set()
    asked = "observe={'drift': {'after': [1]}}"
    assert imported_by(code.format(observe=asked, folder="observed")) == {"fscl.analysis", "fscl.analysis.drift"}


# Reports


def test_the_page_shows_interference_and_what_was_seen_of_meta_training(run: RunRecord, tmp_path: Path):
    text = write_report(run, tmp_path).read_text("utf-8")
    assert "<h2>Interference</h2>" in text
    assert "Along meta-training" in text
    assert {"drift.csv", "fisher.csv", "penalties.csv"} <= {path.name for path in (tmp_path / "figures").glob("*.csv")}


def test_a_ready_made_base_has_no_meta_training_and_the_page_says_so(
    stream: Stream, small_pool: ClassPool, tmp_path: Path
):
    record = make_run(tmp_path, {"stc": GOOD}, base={"use": "glyphs-protonet-conv4"}, observe={"fisher": {}})
    course = FisherObserver(FisherObserver.Settings(steps=(0, 2)), stream.task(small_pool, 0)).found(learner_of("stc"))
    assert course is not None
    write_bytes(record.file_path(Cell("stc", 0), "observed/fisher.json"), finding_bytes(course))
    text = page_of(record)
    assert "there is no meta-training to watch" in text
    assert "meta-training: trace" not in text


def test_nothing_is_said_of_interference_where_nothing_was_observed(tmp_path: Path):
    asked = {"drift": {"after": [1]}, "fisher": OBSERVE["fisher"], "penalties": {"after": 1}}
    for folder, observe in (("without", {}), ("asked", asked)):  # the second has not come to the first sequence yet
        assert "Interference" not in page_of(make_run(tmp_path / folder, {"stc": GOOD}, observe=observe))
        assert not (tmp_path / folder / "figures" / "drift.csv").exists()


@pytest.mark.parametrize("of_training", [False, True])
def test_a_page_is_not_made_from_a_damaged_finding(of_training: bool, tmp_path: Path):
    record = make_run(tmp_path, {"stc": GOOD}, observe={"fisher": {}})
    path = record.observed_path("fisher") if of_training else record.file_path(Cell("stc", 0), "observed/fisher.json")
    write_bytes(path, b"{")
    with pytest.raises(StorageError, match=r"fisher\.json is not a whole JSON file"):
        page_of(record)
