"""Looking inside learners: closed forms on toys, a learner that never notices, files that are refused when damaged."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fscl.evaluation.inspected as inspected_module
import pytest
import torch
from fscl.evaluation.inspected import FisherPoint, FisherReading, Inspection, Watch, load_found, save_found
from fscl.evaluation.inspection import (
    Inspector,
    InspectSpec,
    drift_of,
    fisher_reading,
    held,
    histogram,
    principal_plane,
    scatter_ratio,
)
from torch import Tensor

from fscl.continual.consolidation import Consolidation
from fscl.continual.registry import make_learner
from fscl.continual.regularisers import CONSTANT_GATE
from fscl.data.catalogue import load_splits
from fscl.data.pool import ClassPool, Examples, split_classes
from fscl.data.sets import load_splits
from fscl.data.stream import Stream, StreamSpec, sample_stream
from fscl.errors import OtherRun, StorageError
from fscl.evaluation.protocol import evaluate_stream
from fscl.experiment.config import make_config
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.experiment.watch import watch_meta_training
from fscl.meta.train import meta_train
from fscl.nets.network import Network
from fscl.nets.trained import NetworkSpec, init_network
from fscl.report.figures.drift import drift_rows, drift_svg
from fscl.report.figures.fisher import fisher_rows, fisher_svg
from fscl.report.figures.penalties import penalties_rows, penalties_svg
from fscl.report.page import write_report
from fscl.report.results import Results, read_results
from fscl.rng import child_seed, generator
from fscl.storage import digest
from tests.conftest import noise_pool
from tests.experiment.test_config import problems
from tests.experiment.tiny import tiny
from tests.report.runs import GOOD, about, make_run, page_of

DIALS = {"steps": 6, "learning_rate": 2e-2}
SPEC = InspectSpec(drift_after=(0, 1, 2), penalties_after=2, fisher_steps=(0, 2, 50))


def base(norm: str = "group") -> Network:
    return init_network(NetworkSpec.model_validate({"norm": norm, "width": 4, "image_size": 16}), generator(0, "base"))


def learner_of(method: str, norm: str = "group", **settings: Any) -> Consolidation:
    learner = make_learner(method, base(norm), seed=0, settings={**DIALS, **settings})
    assert isinstance(learner, Consolidation)
    return learner


@pytest.fixture(scope="module")
def stream(small_pool: ClassPool) -> Stream:
    return sample_stream(small_pool, StreamSpec(n_tasks=2, n_way=3, n_shot=2, n_query=4), generator(0, "stream"))


def inspection_of(learner: Consolidation, stream: Stream, pool: ClassPool) -> Inspection:
    inspector = Inspector(SPEC, stream.task(pool, 0))
    evaluate_stream(learner, stream, pool, on_learned=inspector.look)
    return inspector.found(learner)


# Closed forms


def test_the_fisher_trace_of_a_linear_softmax_is_what_it_is_on_paper():
    # With all weights 0, p = (½, ½), and ∂ log p(y) / ∂W = (e_y - p) xᵀ has squares ¼ x² in each of two rows:
    # for x = (3, 4) they sum to 2 · ¼ · 25 = 12.5, for x = (1, 0) to 0.5; the mean of both is 6.5. The loss is log 2.
    toy: Any = SimpleNamespace(
        to_input=lambda images: images.double(), features=lambda x, params, statistics: x @ params["w"].T
    )
    head = {"weight": torch.eye(2).double(), "bias": torch.zeros(2).double()}
    examples = Examples(torch.tensor([[3, 4], [1, 0]]), torch.tensor([0, 1]))
    reading = fisher_reading(toy, {"w": torch.zeros(2, 2).double()}, head, examples, None)
    assert reading is not None
    assert reading.trace == pytest.approx(6.5)
    assert reading.layers == {"w": pytest.approx(6.5)}
    assert reading.loss == pytest.approx(math.log(2))


def test_a_cloud_that_moves_as_a_whole_moves_by_its_distance_over_its_spread():
    cloud = torch.tensor([[2.0, 0, 0], [-2, 0, 0], [0, 2, 0], [0, -2, 0]])  # spread 2
    away = cloud + torch.tensor([0, 0, 10.0])
    drift = drift_of({1: cloud, 3: cloud, 7: away}, torch.tensor([0, 0, 1, 1]))
    assert drift is not None
    assert drift.after == (1, 3, 7)
    assert drift.moved == pytest.approx((0, 0, 5))
    assert drift.apart[0] == drift.apart[1] == pytest.approx(drift.apart[2])
    # one plane for all moments: an image that did not move keeps its point, and the motion out of the first plane is seen
    assert drift.points[0] == drift.points[1]
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(drift.points[0], drift.points[2], strict=True)]
    assert steps == [pytest.approx((5, 0), abs=1e-6)] * 4
    # variance: 200/3 along the motion, 24/12 along each of two axes of the cloud
    assert drift.explained == pytest.approx((800 / 3 + 24) / (800 / 3 + 48), rel=1e-5)


def test_points_that_are_all_one_have_no_drift_and_one_image_a_class_has_no_scatter():
    assert drift_of({1: torch.ones(4, 3)}, torch.tensor([0, 0, 1, 1])) is None
    drift = drift_of({1: torch.eye(3)}, torch.tensor([0, 1, 2]))
    assert drift is not None
    assert drift.apart == (None,)


def test_the_sign_of_a_component_is_fixed():
    line = torch.tensor([[0.0, 0.0], [-1, -3], [-2, -6]])
    assert principal_plane(line)[0][:, 0].tolist() == pytest.approx([10**0.5, 0, -(10**0.5)], abs=1e-6)


def test_scatter_is_between_classes_over_within():
    features = torch.tensor(
        [[-1.0], [1], [9], [11]]
    )  # class means 0 and 10, 5 from the middle; images 1 from their mean
    assert scatter_ratio(features, torch.tensor([4, 4, 7, 7])) == pytest.approx(25)


def test_the_histogram_of_tagging_is_that_of_the_gate_and_not_of_the_tags():
    learner = learner_of("stc")
    assert held(learner) is None  # before any task
    learner.importance, learner.n_tasks = {"a": torch.tensor([0.0, 2.0, 1.0])}, 1
    found = held(learner)
    assert found is not None
    sigmoid = 1 / (1 + math.exp(-1))  # tags 0, 1, 2 around their mean of 1
    assert (found.low, found.high) == (pytest.approx(1 - sigmoid), pytest.approx(sigmoid))
    assert (found.mean, found.measure, found.strength) == (pytest.approx(0.5), "gate", 0.1)
    assert sum(found.counts) == 3
    assert found.counts[0] == found.counts[-1] == sum(found.counts[24:26]) == 1


def test_other_regularisers_show_their_importance_and_those_without_show_nothing():
    for method, measure in (("ewc", "fisher information"), ("si", "path integral"), ("mas", "output sensitivity")):
        learner = learner_of(method)
        learner.importance, learner.n_tasks = {"a": torch.tensor([0.0, 3.0]), "b": torch.tensor([[6.0]])}, 2
        found = held(learner)
        assert found is not None
        assert (found.measure, found.after, found.low, found.high, found.mean) == (measure, 2, 0, 6, 3)
    alike = learner_of("constant")
    alike.n_tasks = 1
    found = held(alike)
    assert found is not None
    assert found.mean == CONSTANT_GATE
    assert sum(found.counts) == sum(tensor.numel() for tensor in alike.slow.values())
    plain = learner_of("replay")
    plain.n_tasks = 1
    assert held(plain) is None


def test_values_that_are_all_alike_fall_into_one_bin():
    found = histogram({"a": torch.full((7,), 0.5)}, "gate", 1, 0.1)
    assert found.counts[0] == sum(found.counts) == 7
    assert histogram({"a": torch.zeros(3)}, "gate", 1, 0.1).counts[0] == 3


# Along a stream


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("method", ["stc", "ewc", "tsc", "naive", "prototypes"])
def test_a_learner_never_notices_that_it_is_inspected(method: str, norm: str, stream: Stream, small_pool: ClassPool):
    network = base(norm)
    statistics = network.freeze_statistics(network.to_input(small_pool.images))
    network = TrainedNetwork(network.spec, network.params, None, statistics)
    settings = None if method == "prototypes" else DIALS
    seen, plain = (make_learner(method, network, seed=0, settings=settings) for _ in range(2))
    inspector = Inspector(SPEC, stream.task(small_pool, 0))
    result = evaluate_stream(seen, stream, small_pool, on_learned=inspector.look)
    if isinstance(seen, Consolidation):
        found = inspector.found(seen)
        assert found.drift is not None
        assert found.drift.after == (0, 1, 2)
    without = evaluate_stream(plain, stream, small_pool)
    assert result.result() == without.result()
    one, other = seen.state(), plain.state()
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(one.tensors[key], other.tensors[key]) for key in one.tensors)


@pytest.mark.parametrize("method", ["replay", "tsc", "si"])
def test_the_last_point_of_a_task_is_where_the_stream_s_own_first_task_ends(
    method: str, stream: Stream, small_pool: ClassPool
):
    task = stream.task(small_pool, 0)
    learner = learner_of(method)
    points = Inspector(SPEC, task).found(learner).fisher
    assert [point.step for point in points] == [0, 2, 6]  # 50 stands for the method's own 6
    untaught = base().params
    learner.learn_task(task.support)
    weights, head, statistics = learner.fast, learner.fast_head, learner.statistics
    assert points[-1].shots == fisher_reading(learner.network, weights, head, task.support, statistics)
    assert points[-1].test == fisher_reading(learner.network, weights, head, task.query, statistics)
    if method == "replay":
        assert points[0].shots.loss > points[-1].shots.loss
        fresh = learner_of(method, embedding_steps=0, steps=1, learning_rate=1e-12)
        fresh.learn_task(task.support)  # in effect no step at all
        start = fisher_reading(base(), untaught, fresh.fast_head, task.support, None)
        assert start is not None
        assert points[0].shots.trace == pytest.approx(start.trace, rel=1e-4)


def test_drift_is_that_of_the_features_that_answer(stream: Stream, small_pool: ClassPool):
    learner = learner_of("fsw", slow_rate=0.1, embedding_steps=6)
    drift = inspection_of(learner, stream, small_pool).drift
    query = stream.task(small_pool, 0).query
    before, now = base().embed(query.images).double(), base().embed(query.images, learner.fast).double()
    spread = float((before - before.mean(0)).square().sum(1).mean().sqrt())
    assert drift is not None
    assert drift.moved[-1] == pytest.approx(float((now - before).norm(dim=1).mean()) / spread, rel=1e-5)
    assert drift.labels == tuple(query.labels.tolist())


# Files


@pytest.fixture(scope="module")
def found(stream: Stream, small_pool: ClassPool) -> Inspection:
    return inspection_of(learner_of("stc"), stream, small_pool)


def test_what_was_found_comes_back_as_it_was(found: Inspection, tmp_path: Path):
    save_found(tmp_path / "stc.json", found)
    assert load_found(tmp_path / "stc.json", Inspection) == found
    with pytest.raises(StorageError, match="is a inspection file where a watch file is needed"):
        load_found(tmp_path / "stc.json", Watch)


def test_a_damaged_file_is_refused_in_one_sentence(found: Inspection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "stc.json"
    save_found(path, found)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StorageError, match="is not a whole JSON file"):
        load_found(path, Inspection)
    content = json.loads(whole)
    content["found"]["drift"]["moved"][0] = 1.0
    path.write_text(json.dumps(content))
    with pytest.raises(StorageError, match=r"was altered after it was written.*Delete it to have the report without"):
        load_found(path, Inspection)
    del content["found"]["drift"]["moved"][0]
    content["digest"] = digest(content["found"])
    path.write_text(json.dumps(content))
    with pytest.raises(StorageError, match=r"is damaged: drift: .*3 moments, but not as many values"):
        load_found(path, Inspection)
    content["found"], content["digest"] = [1], digest([1])
    path.write_text(json.dumps(content))
    with pytest.raises(StorageError, match="is damaged: the whole"):
        load_found(path, Inspection)
    monkeypatch.setattr(inspected_module, "MAX_BYTES", 10)
    with pytest.raises(StorageError, match="an inspection has at most 10"):
        load_found(path, Inspection)


# Configuration


def test_moments_that_never_come_are_refused():
    assert "inspect.drift_after has 7, but a stream has 3 tasks" in str(
        problems({"stream": {"n_tasks": 3}, "inspect": {"drift_after": [1, 7], "penalties_after": 1}})
    )
    assert "inspect.penalties_after has 5" in str(problems({"stream": {"n_tasks": 3}, "inspect": {"drift_after": [1]}}))
    assert "go up and come once each" in str(problems({"inspect": {"fisher_steps": [5, 1]}}))


def test_a_run_begun_before_the_section_existed_goes_on_and_one_with_it_is_another(tmp_path: Path):
    record = make_run(tmp_path, {"tsc": GOOD})
    config = record.about()["config"]
    content = json.loads(record.about_path.read_text())
    del content["config"]["inspect"]
    record.about_path.write_text(json.dumps(content))
    record.begin(about(config))
    asked = InspectSpec(drift_after=(1,), penalties_after=1).model_dump(mode="json")
    with pytest.raises(OtherRun, match=r"config\.inspect\.drift_after"):
        record.begin(about({**config, "inspect": asked}))


# Meta-training


def test_meta_training_that_was_killed_and_continued_was_watched_as_one_that_was_not(tmp_path: Path):
    splits = split_classes(noise_pool(24, 20), train=range(8), validation=range(8, 16), test=range(16, 24))
    config = tiny(inspect={"drift_after": [1], "penalties_after": 1, "fisher_episodes": 2})
    plan = config.base.train.model_copy(update={"steps": 6})
    config = config.model_copy(update={"base": config.base.model_copy(update={"train": plan})})

    def train(folder: Path, stop_at: int | None = None) -> Path:
        path = folder / "meta-training.json"
        watch = watch_meta_training(config, splits, path)
        assert watch is not None

        def look(step: int, network: Network) -> None:
            watch(step, network)
            if step == stop_at:
                raise KeyboardInterrupt

        meta_train(
            config.base.learner,
            base().spec,
            splits.train,
            splits.validation,
            plan,
            seed=0,
            checkpoint=folder / "checkpoint.safetensors",
            on_validation=look,
        )
        return path

    whole = train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", stop_at=4)  # after it was looked at, before it was saved
    assert train(tmp_path / "killed").read_bytes() == whole.read_bytes()
    points = load_found(whole, Watch).fisher
    assert [point.step for point in points] == [0, 2, 4, 6]
    assert len({point.test.trace for point in points}) == 4
    assert watch_meta_training(tiny(), splits, whole) is None  # nothing asked


# Runs and reports


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    asked = {"drift_after": [1, 3], "penalties_after": 3, "fisher_steps": [0, 2, 6], "fisher_episodes": 1}
    folder = tmp_path_factory.mktemp("inspected")
    return run_experiment(tiny(inspect=asked, run__n_sequences=2), folder, workers=1)


@pytest.fixture(scope="module")
def results(run: RunRecord) -> Results:
    return read_results(run)


@pytest.mark.slow
def test_results_are_the_same_bytes_with_and_without_inspection(run: RunRecord, tmp_path: Path):
    plain = run_experiment(tiny(run__n_sequences=2), tmp_path, workers=1)
    assert plain.results_path.read_bytes() == run.results_path.read_bytes()
    assert not (tmp_path / "inspected").exists()


def test_a_run_inspects_what_trains_its_embedding_and_watches_its_base(run: RunRecord, results: Results):
    names = sorted(path.name for path in (run.folder / "inspected").iterdir())
    assert names == ["meta-training.json", "replay.json", "tsc.json"]  # and not prototypes
    assert [point.step for point in results.watched] == [0, 2]
    assert results.inspected["replay"].penalties is None
    assert results.inspected["tsc"].penalties is not None


def test_the_first_sequence_is_the_one_inspected(run: RunRecord, results: Results):
    config = make_config(run.about()["config"])
    pool, stream = load_splits(config.data).pool("test"), Stream.load(run.stream_path(0))
    settings, network = config.settings_of("replay"), TrainedNetwork.load(run.network_path)[0]
    assert settings is not None
    learner = make_learner(
        "replay", network, seed=child_seed(config.seed, "learner", 0), settings=settings.model_dump()
    )
    assert isinstance(learner, Consolidation)
    assert config.inspect is not None
    inspector = Inspector(config.inspect, stream.task(pool, 0))
    evaluate_stream(learner, stream, pool, on_learned=inspector.look)
    assert inspector.found(learner) == results.inspected["replay"]


def test_rows_have_a_header_and_what_the_files_say(results: Results):
    points = drift_rows(results)
    assert points[0][:3] == ("method", "tasks_learned", "image")
    assert len(points) == 1 + 2 * 2 * 6  # methods × moments × images
    fisher = fisher_rows(results)
    tensors = len(results.watched[0].shots.layers)
    assert len(fisher) == 1 + (2 + 3 + 3) * 2 * (1 + tensors)  # steps of meta-training, replay, tsc × images × tensors
    whole = [row for row in fisher if row[:5] == ("task", "replay", 6, "test", "all")]
    assert whole[0][5] == results.inspected["replay"].fisher[-1].test.trace
    bins = penalties_rows(results)
    assert sum(int(str(row[-1])) for row in bins[1:]) == sum(t.numel() for t in network_of(results).values())


def network_of(results: Results) -> dict[str, Tensor]:
    return init_network(NetworkSpec.model_validate(results.about["base"]["spec"]), generator(0, "any")).params


@pytest.mark.parametrize("draw", [drift_svg, fisher_svg, penalties_svg])
def test_figures_are_the_same_bytes_each_time_in_the_page_s_ink(draw: Any, results: Results):
    svg = draw(results)
    assert svg.startswith("<svg")
    assert svg == draw(results)
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert "tsc" in svg


def test_gradients_that_are_all_zero_are_said_to_be_and_do_not_break_the_figure(results: Results):
    found = results.inspected["tsc"]
    nothing = FisherReading(loss=0.0, layers=dict.fromkeys(found.fisher[0].shots.layers, 0.0))
    still = found.model_copy(update={"fisher": (FisherPoint(step=0, shots=nothing, test=nothing),)})
    svg = fisher_svg(replace(results, inspected={"tsc": still}, watched=()))
    assert svg.count("0 at every step") == 5  # trace and loss, on shots and on test images, and the layers


def test_the_page_shows_interference_and_says_what_was_not_watched(run: RunRecord, tmp_path: Path):
    text = write_report(run, tmp_path).read_text("utf-8")
    assert "<h2>Interference</h2>" in text
    assert "Along meta-training" in text
    assert {"drift.csv", "fisher.csv", "penalties.csv"} <= {path.name for path in (tmp_path / "figures").glob("*.csv")}


def test_a_ready_made_base_has_no_meta_training_and_the_page_says_so(found: Inspection, tmp_path: Path):
    record = make_run(tmp_path, {"stc": GOOD}, base={"use": "glyphs-protonet-conv4"})
    save_found(record.inspected_path("stc"), found)
    text = page_of(record)
    assert "there is no meta-training to watch" in text
    assert "meta-training: trace" not in text


def test_nothing_is_said_of_interference_where_nothing_was_inspected(tmp_path: Path):
    record = make_run(tmp_path, {"stc": GOOD})
    assert "Interference" not in page_of(record)
    assert not (tmp_path / "figures" / "drift.csv").exists()
    (tmp_path / "inspected").mkdir()
    record.inspected_path("stc").write_text("{")
    with pytest.raises(StorageError, match=r"stc\.json is not a whole JSON file"):
        page_of(record)
