"""`base.tail`: the first stages of a pretrained base are frozen, methods move the rest, and the run says so."""

import tomllib
from pathlib import Path

import pytest
import torch

from fscl.errors import ConfigError, MisuseError
from fscl.experiment.config import Config, load_config, make_config
from fscl.experiment.plan import plan_cells
from fscl.experiment.progress import Reporter
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.nets.efficientnet_lite import EfficientNetLite
from fscl.nets.pretrained import PretrainedNetwork, pretrained_base
from fscl.nets.sources import load_network
from fscl.report.commands import toml_listing
from fscl.storage import read_json
from tests.experiment.tiny import tiny

N_STAGES = 18


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of EfficientNet-Lite0 with random weights, as a pretrained base would leave it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = pretrained_base(EfficientNetLite(), image_size=32, seen="imagenet", name="efficientnet_lite0@32")
    path = tmp_path_factory.mktemp("base") / "lite0.safetensors"
    network.save(path, {"summary": "frozen features that have seen nothing"})
    return path


def with_tail(base: Path, tail: int | None = 14, **changes: object) -> Config:
    section = {"use": str(base)} if tail is None else {"use": str(base), "tail": tail}
    methods = {"run__methods": ["replay", "tsc", "prototypes"], "run__n_sequences": 1, "stream__n_tasks": 2}
    return tiny(**{"base": section, **methods, **changes})


@pytest.fixture(scope="module")
def moved(base: Path, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return run_experiment(with_tail(base), tmp_path_factory.mktemp("moved"), executor="in-process")


def top1(record: RunRecord, method: str) -> list[list[float]]:
    cells = read_json(record.results_path, "results")["cells"]
    (found,) = (cell["result"]["top1"] for cell in cells if cell["method"] == method)
    return found  # type: ignore[no-any-return]


# ---- the configuration ----


def test_a_tail_needs_a_base_to_be_the_tail_of():
    with pytest.raises(ConfigError, match=r"base\.tail = 11 freezes the first stages .* base\.use must name one"):
        make_config({"base": {"tail": 11}})
    with pytest.raises(ConfigError, match=r"base\.tail: .*greater than or equal to 1"):
        make_config({"base": {"use": "efficientnet_lite0", "tail": 0}})


def test_a_tail_is_part_of_what_is_recorded_and_printed(base: Path):
    config = with_tail(base)
    assert config.resolved()["base"] == {"use": str(base), "tail": 14}
    assert make_config(config.resolved()).resolved() == config.resolved()
    assert tomllib.loads(toml_listing(config.resolved()))["base"]["tail"] == 14
    assert "tail" not in with_tail(base, None).resolved()["base"]
    assert "tail" not in load_config("glyphs-quick").resolved()["base"]


# ---- the run ----


def test_the_last_stages_move_and_the_record_says_how_many(moved: RunRecord, base: Path):
    network, about = load_network(moved.network_path)
    assert isinstance(network, PretrainedNetwork)
    assert network.spec.tail == 14
    assert set(network.params) == {
        name for name in network.params if name.startswith(("blocks.13.", "blocks.14.", "blocks.15.", "top."))
    }
    assert about["summary"] == "features that have seen nothing, whose last 4 stages move"
    assert moved.about()["base"]["summary"].endswith("whose last 4 stages move")
    cells = {cell.method: entry["result"] for cell, entry in moved.cells().items()}
    assert cells["replay"]["diagnostics"][0]["embedding_steps"] == 6
    assert cells["tsc"]["diagnostics"][0]["embedding_steps"] == 2


def test_methods_on_frozen_features_have_the_figures_that_they_have_without_a_tail(
    moved: RunRecord, base: Path, tmp_path: Path
):
    still = run_experiment(with_tail(base, None), tmp_path / "still", executor="in-process")
    assert top1(still, "prototypes") == top1(moved, "prototypes")
    assert still.cells().keys() == moved.cells().keys()
    (frozen,) = (entry["result"]["diagnostics"][0] for cell, entry in still.cells().items() if cell.method == "replay")
    assert frozen["embedding_steps"] == 0


def test_a_run_with_a_tail_is_continued_and_gives_the_same_bits(moved: RunRecord, base: Path, tmp_path: Path):
    again = run_experiment(with_tail(base), tmp_path / "again", workers=2)
    assert again.results_path.read_bytes() == moved.results_path.read_bytes()


def test_cells_of_another_tail_are_not_taken_over(moved: RunRecord, base: Path, tmp_path: Path):
    plan = plan_cells(with_tail(base))
    for tail, n_taken in ((14, 3), (15, 0), (None, 0)):
        config = with_tail(base, tail, run__methods=["replay", "tsc", "prototypes"])
        record = RunRecord(tmp_path / str(tail))
        network = load_network(base)[0]
        spec = (network if tail is None else network.movable(tail)).spec.model_dump(mode="json")
        record.begin({**moved.about(), "config": config.resolved(), "base": {**moved.about()["base"], "spec": spec}})
        assert record.take_over(moved, plan) == n_taken, tail


def test_a_run_says_that_pictures_are_not_varied(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = with_tail(base, run__methods=["prototypes"], run__reference="prototypes")
    run_experiment(config, tmp_path / "run", executor="in-process", reporter=Reporter(quiet=True))
    said = " ".join(capsys.readouterr().err.split())
    assert "jitter, mirror and views have no effect" in said
    assert "The base is frozen" not in said


# ---- what is refused ----


@pytest.mark.parametrize(
    ("use", "tail", "sentence"),
    [
        ("glyphs-protonet-conv4", 2, r"base\.tail = 2: a conv4 that was trained here moves as a whole"),
        ("{base}", N_STAGES, r"base\.tail = 18: efficientnet_lite0@32 has 18 stages, .* but depth is 18"),
    ],
)
def test_a_base_without_such_stages_is_refused(use: str, tail: int, sentence: str, base: Path, tmp_path: Path):
    config = tiny(base={"use": use.format(base=base), "tail": tail})
    with pytest.raises(ConfigError, match=sentence):
        run_experiment(config, tmp_path / "run", executor="in-process")
    assert not (tmp_path / "run" / "run.json").exists()


def test_random_weights_and_probes_are_refused_as_on_any_pretrained_base(base: Path, tmp_path: Path):
    with pytest.raises(MisuseError, match="cannot start from random weights"):
        run_experiment(with_tail(base, run__methods=["replay", "naive"]), tmp_path / "naive", executor="in-process")
    with pytest.raises(ConfigError, match="those of a pretrained base are not at hand"):
        run_experiment(with_tail(base, probe={"after": [0, 1]}), tmp_path / "probed", executor="in-process")
