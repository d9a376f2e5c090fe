"""Studies: bases and runs as one piece of work, the same after a kill, and bases that are trained anywhere."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fscl.errors import ConfigError, Divergence, OtherRun, RunError
from fscl.experiment.base import load_side
from fscl.experiment.plan import Finished, Tick
from fscl.experiment.progress import Reporter
from fscl.experiment.study.driver import StudyRecord, run_study
from fscl.experiment.study.spec import Study, load_study
from fscl.experiment.training import CHECKPOINT, NETWORK, Trained, Training, make_training, train, training_order
from fscl.meta.shipped import load_base_with_details
from fscl.storage import tensor_bytes
from tests.children import run_child, started_child
from tests.experiment.planted import plant

TRAIN = """{ steps = 6, meta_batch = 2, n_way = 5, n_shot = 2, n_query = 2, validate_every = 2, validation_episodes = 3,
    validation_way = 5, test_episodes = 2 }""".replace("\n", "")
STREAM = "{ n_tasks = 2, n_way = 2, n_shot = 2, n_query = 3 }"
STUDY = f"""
name = "two"
[[bases]]
name = "short"
config = "glyphs-protonet"
base.network.width = 4
base.train = {TRAIN}
[[runs]]
name = "tiny"
config = "glyphs-quick"
stream = {STREAM}
run = {{ methods = ["prototypes", "neighbour"], reference = "prototypes", n_sequences = 2 }}
probe = {{ after = [0], n_episodes = 2 }}
each.base.use = ["short", "glyphs-protonet-conv4"]
"""


def study(tmp_path: Path, text: str = STUDY) -> Study:
    path = tmp_path / "study.toml"
    path.write_text(text)
    return load_study(str(path))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    """One whole study that nothing disturbed."""
    folder = tmp_path_factory.mktemp("studies")
    return run_study(study(folder), folder / "whole", executor="in-process")


def files_of(record: StudyRecord) -> dict[str, bytes]:
    """What must not depend on where it was computed, nor on a kill."""
    names = (NETWORK, "results.json", "base.json")
    paths = [path for path in record.folder.rglob("*") if path.name in names]
    return {str(path.relative_to(record.folder)): path.read_bytes() for path in paths}


def test_a_study_trains_its_base_and_makes_every_run_of_each(finished: StudyRecord, tmp_path: Path):
    asked = study(tmp_path)
    assert [run.name for run in asked.runs] == ["tiny-short", "tiny-glyphs-protonet-conv4"]
    assert [run.after for run in asked.runs] == ["short", None]
    network, about = load_base_with_details(str(finished.network_path("short")))
    assert (about["config"], about["train"]["steps"], network.spec.width) == ("short", 6, 4)
    for run in asked.runs:
        assert len(finished.run(run.name).cells()) == 4
    assert "protonet on glyphs" in finished.run("tiny-short").about()["base"]["summary"]


CHILD = """
import sys
from pathlib import Path
from fscl.experiment.study.driver import run_study
from fscl.experiment.study.spec import load_study
run_study(load_study(sys.argv[1]), Path(sys.argv[2]), executor="in-process", save_every=0.0)
"""


@pytest.mark.slow
def test_a_study_killed_while_it_trains_and_again_while_it_runs_has_the_same_bits(
    finished: StudyRecord, tmp_path: Path
):
    study(tmp_path)
    record = StudyRecord(tmp_path / "study")
    command = [sys.executable, "-c", CHILD, tmp_path / "study.toml", record.folder]
    with started_child(command) as child:
        child.wait_until((record.base_folder("short") / "meta-training.safetensors").exists)
        child.send(signal.SIGKILL, to_group=True)
    assert not record.network_path("short").exists()
    with started_child(command) as child:
        child.wait_until(record.run("tiny-short").cells_path.exists)
        child.send(signal.SIGKILL, to_group=True)
    assert not record.run("tiny-glyphs-protonet-conv4").results_path.exists()
    run_child(command)
    assert files_of(record) == files_of(finished)


def training(tmp_path: Path, processes: int = 1) -> Training:
    (base,) = study(tmp_path).bases
    return make_training(base.config, processes, None, load_side(base.config.base_side, Reporter(quiet=True)))


def trained(task: Training, begun: bytes | None = None) -> tuple[Finished, list[Tick]]:
    ticks: list[Tick] = []
    return train(training_order({"short": task}, 0.0), Trained("short", 0), ticks.append, begun), ticks


def test_a_training_goes_on_from_any_checkpoint_that_came_back_with_the_same_bits(
    finished: StudyRecord, tmp_path: Path
):
    whole, ticks = trained(training(tmp_path))
    assert whole.files[NETWORK] == finished.network_path("short").read_bytes()
    saved = [tick for tick in ticks if tick.begun is not None]
    assert [tick.n_done for tick in saved] == [2, 4, 6]
    again, later = trained(training(tmp_path), saved[1].begun)
    assert later[0].n_done > 4  # it did not begin anew
    assert again.files == whole.files


def test_a_checkpoint_that_is_not_whole_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    found: list[bool] = []

    def looks(config: object, folder: Path, reporter: object) -> None:
        found.append((folder / CHECKPOINT).exists())
        raise Divergence("far enough")

    monkeypatch.setattr("fscl.experiment.training.train_and_test", looks)
    whole = tensor_bytes("meta-training checkpoint", {"a": torch.zeros(2)}, {"step": 2})
    for begun in (whole, whole[:-3], b""):
        with pytest.raises(Divergence):
            trained(training(tmp_path), begun)
    assert found == [True, False, False]


@pytest.mark.slow
def test_two_processes_under_torchrun_train_the_same_base_as_one(finished: StudyRecord, tmp_path: Path):
    team, ticks = trained(training(tmp_path, processes=2))
    assert team.files[NETWORK] == finished.network_path("short").read_bytes()
    assert ticks[-1].begun is not None


KILLS = """
from pathlib import Path
from signal import SIGKILL
import fscl.experiment.training as training
whole, notes = training.train, Path({notes!r})

def dies_once(order, cell, on_part, begun):
    def tell(tick):
        on_part(tick)
        if tick.begun is not None and not (notes / "died").exists():
            (notes / "died").write_text(str(tick.n_done))
            os.kill(os.getpid(), SIGKILL)
    (notes / f"from-{{begun is not None}}").touch()
    return whole(order, cell, tell, begun)

training.train = dies_once
"""


@pytest.mark.slow
def test_a_worker_killed_while_it_trains_is_replaced_and_goes_on_from_the_drivers_checkpoint(
    finished: StudyRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plant(KILLS.format(notes=str(tmp_path)), tmp_path / "planted", monkeypatch)
    only = STUDY.replace('each.base.use = ["short", "glyphs-protonet-conv4"]', 'base.use = "short"')
    record = run_study(study(tmp_path, only), tmp_path / "study", workers=1, save_every=0.0)
    assert (tmp_path / "died").read_text() == "2"
    assert (tmp_path / "from-False").exists()
    assert (tmp_path / "from-True").exists()
    assert record.network_path("short").read_bytes() == finished.network_path("short").read_bytes()
    assert (record.run("tiny").results_path).read_bytes() == finished.run("tiny-short").results_path.read_bytes()


def test_a_base_may_start_from_another_of_the_study(tmp_path: Path):
    second = f"""
[[bases]]
name = "longer"
config = "glyphs-protonet"
base.network.width = 4
base.start = "short"
base.train = {TRAIN}
[[runs]]"""
    text = STUDY.replace("[[runs]]", second).replace('["short", ', '["longer", ')
    asked = study(tmp_path, text)
    assert [(base.name, base.after) for base in asked.bases] == [("short", None), ("longer", "short")]
    record = run_study(asked, tmp_path / "study", executor="in-process")
    _, about = load_base_with_details(str(record.network_path("longer")))
    assert about["start"] == "short"
    assert len(record.run("tiny-longer").cells()) == 4


def test_a_base_that_was_begun_otherwise_is_refused_with_both_values(finished: StudyRecord, tmp_path: Path):
    with pytest.raises(OtherRun, match=r"holds a base with base\.train\.steps = 6, but now it is 8\."):
        run_study(study(tmp_path, STUDY.replace("steps = 6", "steps = 8")), finished.folder, executor="in-process")


def test_what_fails_leaves_the_rest_to_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def diverges(*_: object) -> None:
        raise Divergence("the loss is nan")

    monkeypatch.setattr("fscl.experiment.training.train_and_test", diverges)
    with pytest.raises(RunError, match=r"1 parts of the study two failed.* short, said: the loss is nan"):
        run_study(study(tmp_path), tmp_path / "study", executor="in-process")
    record = StudyRecord(tmp_path / "study")
    assert len(record.run("tiny-glyphs-protonet-conv4").cells()) == 4
    assert not record.run("tiny-short").folder.exists()


def _unused(text: str) -> str:
    return text.replace('"short", "glyphs', '"glyphs')


def _with_a_base(text: str) -> str:
    bases, runs, rest = text.partition("[[runs]]")
    kept = [line for line in bases.splitlines() if not line.startswith("base.")]
    return "\n".join(kept).replace('"glyphs-protonet"', '"glyphs-quick"') + "\n" + runs + rest


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda text: text.replace('name = "short"', 'name = "glyphs-protonet-conv4"'),
            "comes with fscl; give it another",
        ),
        (_unused, "would train the base 'short', but no run has base.use = 'short'; remove it"),
        (lambda text: text.replace("each.base.use = [", "each.base.use = []\n#"), "must be a list of values"),
        (lambda text: text + text.partition("[[runs]]")[1] + text.partition("[[runs]]")[2], "two runs of the name"),
        (lambda text: text.replace("[[runs]]", "[[rums]]"), "rums: no such key. Did you mean 'runs'?"),
        (lambda text: text.replace('"glyphs-quick"', '"glyphs-quik"'), "Did you mean 'glyphs-quick'?"),
        (lambda text: text.replace('"glyphs-quick"', '"omniglot-table2"'), "stands for several configurations"),
        (_with_a_base, "which brings one. Name a configuration for"),
        (lambda text: text.replace('"glyphs-quick"', '"glyphs-search"'), "has a table [search]"),
        (lambda text: text.replace("[[runs]]", 'base.start = "short"\n[[runs]]'), "one must start elsewhere"),
        (lambda text: text.replace("n_tasks = 2", "n_task = 2"), "Did you mean 'n_tasks'?"),
    ],
)
def test_a_file_that_is_no_study_is_refused_in_a_sentence(change: Callable[[str], str], sentence: str, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        study(tmp_path, change(STUDY))
    assert sentence in str(caught.value)
