"""A cell is a pure function of its order: what it is given, what it gives back, and what it refuses."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fscl.experiment.cell as cell_module
from fscl.continual.registry import make_learner
from fscl.data.catalogue import load_splits
from fscl.errors import DataError, RunError, StorageError
from fscl.evaluation.probe import Probe, make_probe
from fscl.experiment.cell import compute
from fscl.experiment.config import Config
from fscl.experiment.plan import Cell, Finished, Order, Tick, sample_streams
from fscl.experiment.record import RunRecord
from fscl.experiment.versions import versions
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import child_seed, generator
from tests.experiment.tiny import tiny

PROBE = {"after": [0, 2], "n_episodes": 3, "n_way": 2, "n_shot": 2, "n_query": 3, "n_classes": 230}


def order_of(config: Config, folder: Path) -> Order:
    """An order whose base is random."""
    pool = load_splits(config.data).pool(config.run.split)
    network = init_network(NetworkSpec(width=4, image_size=pool.image_shape[1]), generator(0, "base"))
    network.save(folder / "base.safetensors")
    return Order(
        config=config,
        base=(folder / "base.safetensors").read_bytes(),
        streams=sample_streams(config, pool),
        data_hash=pool.content_hash,
        base_data_hash=None,
        versions=versions("cpu"),
    )


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Order:
    return order_of(tiny(seed=3, run__methods=["tsc", "replay", "prototypes"]), tmp_path_factory.mktemp("order"))


def test_a_cell_gives_the_same_result_and_files_whatever_was_computed_before(order: Order):
    cell = Cell("tsc", 1)
    first = compute(order, cell)
    compute(order, Cell("replay", 0))
    again = compute(pickle.loads(pickle.dumps(order)), cell)
    assert again.result == first.result
    assert again.files == first.files
    assert json.dumps(first.cost)  # JSON, too
    assert first.files.keys() == {"confusions.json"}


def test_a_cell_is_computed_on_one_thread_whatever_the_process_had(order: Order):
    torch.set_num_threads(2)
    compute(order, Cell("prototypes", 0))
    assert torch.get_num_threads() == 1


def test_an_order_knows_nothing_of_the_run_directory(order: Order):
    assert not any(isinstance(value, Path | RunRecord) for value in vars(order).values())


def test_every_task_is_told(order: Order):
    told: list[Tick] = []
    finished = compute(order, Cell("prototypes", 0), told.append)
    assert [tick.n_done for tick in told] == [1, 2, 3]
    assert [tick.accuracy for tick in told] == pytest.approx([np.mean(row) for row in finished.result["top1"]])
    assert all(tick.begun is None for tick in told)  # it took less than `save_every`


def test_the_data_are_loaded_once_for_all_cells_of_an_order(order: Order, monkeypatch: pytest.MonkeyPatch):
    compute(order, Cell("prototypes", 0))
    monkeypatch.setattr(cell_module, "load_splits", lambda *_: pytest.fail("loaded again"))
    compute(order, Cell("prototypes", 1))


def test_data_that_changed_since_the_run_began_are_refused(order: Order):
    with pytest.raises(
        DataError, match=r"'glyphs \(test\)' is not what the run began with: its content hash is \w+, and"
    ):
        compute(replace(order, data_hash="another"), Cell("prototypes", 0))


def test_training_classes_that_changed_since_the_run_began_are_refused(tmp_path: Path):
    config = tiny(probe={**PROBE, "n_classes": 4}, base_data={"name": "glyphs"}, run__methods=["prototypes"])
    train = load_splits(config.data).train.content_hash
    order = replace(order_of(config, tmp_path), base_data_hash=train)
    assert "probes" in compute(order, Cell("prototypes", 0)).result
    with pytest.raises(DataError, match=r"'glyphs \(train\)' is not what the run began with"):
        compute(replace(order, base_data_hash="another"), Cell("prototypes", 0))


@pytest.mark.parametrize("name", ["torch", "fscl", "arithmetic", "cpu"])
def test_a_process_of_another_version_or_processor_refuses_to_compute(order: Order, name: str):
    other = replace(order, versions={**order.versions, name: "another"})
    with pytest.raises(RunError, match=f"the run is one of {name} another, but the process that should"):
        compute(other, Cell("prototypes", 0))


def test_a_version_that_does_not_change_results_is_no_reason_to_refuse(order: Order):
    other = replace(order, versions={**order.versions, "python": "4.0"})
    assert isinstance(compute(other, Cell("prototypes", 0)), Finished)


def test_a_base_whose_bytes_were_altered_is_refused(order: Order):
    altered = bytearray(order.base)
    altered[-1] ^= 1
    with pytest.raises(StorageError, match=r"base\.safetensors was altered"):
        compute(replace(order, base=bytes(altered)), Cell("prototypes", 0))


def test_the_learner_of_each_sequence_has_its_own_seed_which_all_methods_share(
    order: Order, monkeypatch: pytest.MonkeyPatch
):
    seeds: dict[Cell, int] = {}

    def spy(method: str, *args: Any, seed: int, **kwargs: Any) -> Any:
        seeds[Cell(method, sequence)] = seed
        return make_learner(method, *args, seed=seed, **kwargs)

    monkeypatch.setattr(cell_module, "make_learner", spy)
    for sequence in range(3):
        for method in ("replay", "prototypes"):
            compute(order, Cell(method, sequence))
    expected = [child_seed(order.config.seed, "learner", sequence) for sequence in range(3)]
    assert [seeds[Cell("replay", sequence)] for sequence in range(3)] == expected
    assert [seeds[Cell("prototypes", sequence)] for sequence in range(3)] == expected
    assert len(set(expected)) == 3


def test_the_learner_has_the_settings_of_its_own_method(order: Order, monkeypatch: pytest.MonkeyPatch):
    given: dict[str, Any] = {}

    def spy(method: str, *args: Any, settings: Any, **kwargs: Any) -> Any:
        given[method] = settings
        return make_learner(method, *args, settings=settings, **kwargs)

    monkeypatch.setattr(cell_module, "make_learner", spy)
    for method in ("tsc", "replay", "prototypes"):
        compute(order, Cell(method, 0))
    assert (given["tsc"].steps, given["tsc"].embedding_steps) == (6, 2)
    assert (given["replay"].steps, given["replay"].embedding_steps) == (6, "all")
    assert given["prototypes"].model_dump() == {}


def test_each_sequence_learns_its_own_stream(order: Order, monkeypatch: pytest.MonkeyPatch):
    streams: list[str] = []
    evaluate = cell_module.evaluate_stream

    def spy(learner: Any, stream: Any, pool: Any, **kwargs: Any) -> Any:
        streams.append(stream.content_hash)
        return evaluate(learner, stream, pool, **kwargs)

    monkeypatch.setattr(cell_module, "evaluate_stream", spy)
    for sequence in range(3):
        compute(order, Cell("prototypes", sequence))
    assert streams == [stream.content_hash for stream in order.streams]
    assert len(set(streams)) == 3


def classes_of(probe: Probe, images: dict[bytes, str]) -> set[str]:
    """The names of the classes whose images a probe shows."""
    shown = torch.cat([probe.shots.flatten(0, 1), probe.queries.flatten(0, 1)])
    return {images[image.numpy().tobytes()] for image in shown}


def test_the_novel_probe_meets_no_class_of_the_stream_and_the_base_probe_only_training_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    order = order_of(tiny(probe=PROBE, run__methods=["prototypes"]), tmp_path)
    made: list[tuple[Probe, int]] = []

    def spy(*args: Any, seed: int, **kwargs: Any) -> Probe:
        made.append((make_probe(*args, seed=seed, **kwargs), seed))
        return made[-1][0]

    monkeypatch.setattr(cell_module, "make_probe", spy)
    splits = load_splits(order.config.data)
    pools = (splits.train, splits.test)
    images = {
        image.numpy().tobytes(): name
        for pool in pools
        for index, name in enumerate(pool.class_names)
        for image in pool.of_class(index)
    }
    for sequence in range(2):
        compute(order, Cell("prototypes", sequence))
    (novel, _), (base, _), (novel_of_next, _), _ = made
    of_stream = {name for task in order.streams[0].tasks for name in task.classes}
    of_next = {name for task in order.streams[1].tasks for name in task.classes}
    # so many classes are asked for that the probe takes all that are left
    assert classes_of(novel, images) <= set(splits.test.class_names) - of_stream
    assert len(classes_of(novel, images)) == 230
    assert classes_of(novel_of_next, images) <= set(splits.test.class_names) - of_next
    assert classes_of(base, images) <= set(splits.train.class_names)
    assert len({seed for _, seed in made}) == 4  # other problems for each sequence and each side


def test_a_sequence_has_one_probe_for_all_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    probe = {**PROBE, "n_classes": 4}
    order = order_of(tiny(probe=probe, run__methods=["prototypes", "replay"]), tmp_path)
    first = compute(order, Cell("prototypes", 0)).result["probes"]
    monkeypatch.setattr(cell_module, "make_probe", lambda *_, **__: pytest.fail("made again"))
    other = compute(order, Cell("replay", 0)).result["probes"]
    assert other["novel"]["0"] == first["novel"]["0"]  # before any task, both stand at the base


def test_only_the_first_sequence_is_observed_and_shows_generated_images(tmp_path: Path):
    observe = {"drift": {"after": [1]}, "penalties": {"after": 1}, "fisher": {"steps": [0], "episodes": 0}}
    order = order_of(tiny(observe=observe, run__methods=["gr"], run__reference="gr", run__n_sequences=2), tmp_path)
    first, second = (compute(order, Cell("gr", sequence)).files for sequence in range(2))
    observed = {"observed/drift.json", "observed/fisher.json"}  # there is no penalty to see
    assert first.keys() == {"confusions.json", "generated.png", *observed}
    assert second.keys() == {"confusions.json"}
    assert compute(order, Cell("prototypes", 0)).files.keys() == {"confusions.json"}  # nothing moves
