"""Penalties: what each regulariser says of itself, the histogram, and the figure."""

import math

import pytest
import torch

from fscl.analysis.penalties import Penalties, PenaltiesObserver, histogram, penalties_of
from fscl.continual.consolidation import Consolidation
from fscl.continual.regularisers.constant import GATE
from fscl.continual.regularisers.importance import Importance
from fscl.continual.regularisers.tagging import TagGates, tag_gates
from fscl.data.pool import ClassPool
from fscl.data.stream import Stream
from fscl.nets.trained import NetworkSpec, init_network
from fscl.report.figures.penalties import penalties_rows, penalties_svg
from fscl.report.results import Results
from fscl.rng import generator
from tests.analysis.small import learner_of, watched


def with_importance(method: str) -> Consolidation:
    """A learner whose regulariser has measured this, after two tasks."""
    learner = learner_of(method)
    assert isinstance(learner.regulariser, Importance)
    learner.regulariser.importance = {"a": torch.tensor([0.0, 3.0]), "b": torch.tensor([[6.0]])}
    learner.n_tasks = 2
    return learner


def test_the_histogram_of_tagging_is_that_of_the_gate_and_not_of_the_tags():
    learner = learner_of("stc")
    assert penalties_of(learner, 0) is None  # before any task
    assert isinstance(learner.regulariser, TagGates)
    learner.regulariser.tags, learner.n_tasks = {"a": torch.tensor([0.0, 2.0, 1.0])}, 1
    found = penalties_of(learner, 1)
    assert found is not None
    sigmoid = 1 / (1 + math.exp(-1))  # tags 0, 1, 2 around their mean of 1
    assert (found.low, found.high) == (pytest.approx(1 - sigmoid), pytest.approx(sigmoid))
    assert (found.mean, found.measure, found.strength) == (pytest.approx(0.5), "gate", 0.1)
    assert sum(found.counts) == 3
    assert found.counts[0] == found.counts[-1] == sum(found.counts[24:26]) == 1


@pytest.mark.parametrize(
    ("method", "measure"), [("ewc", "fisher information"), ("si", "path integral"), ("mas", "output sensitivity")]
)
def test_other_regularisers_show_their_importance(method: str, measure: str):
    found = penalties_of(with_importance(method), 2)
    assert found is not None
    assert (found.measure, found.after, found.low, found.high, found.mean) == (measure, 2, 0, 6, 3)


def test_a_constant_penalty_is_the_same_for_all_weights_and_where_there_is_none_nothing_is_shown():
    alike = learner_of("constant")
    alike.n_tasks = 1
    found = penalties_of(alike, 1)
    assert found is not None
    assert found.mean == GATE
    assert sum(found.counts) == sum(tensor.numel() for tensor in alike.slow.values())
    plain = learner_of("replay")
    plain.n_tasks = 1
    assert penalties_of(plain, 1) is None


def test_importance_that_is_not_finite_is_not_shown():
    learner = with_importance("ewc")
    assert isinstance(learner.regulariser, Importance)
    learner.regulariser.importance = {"a": torch.tensor([0.0, math.inf])}
    assert penalties_of(learner, 2) is None


def test_values_that_are_all_alike_fall_into_one_bin():
    found = histogram({"a": torch.full((7,), 0.5)}, "gate", 1, 0.1)
    assert found.counts[0] == sum(found.counts) == 7
    assert histogram({"a": torch.zeros(3)}, "gate", 1, 0.1).counts[0] == 3


def test_along_a_stream_it_is_looked_at_once_with_the_gates_that_the_task_was_learned_with(
    stream: Stream, small_pool: ClassPool
):
    learner = learner_of("stc")
    early, late = (
        PenaltiesObserver(PenaltiesObserver.Settings(after=after), stream.task(small_pool, 0)) for after in (1, 2)
    )
    watched(learner, stream, small_pool, early, late)
    first, second = early.found(learner), late.found(learner)
    assert first is not None
    assert second is not None
    assert (first.after, second.after) == (1, 2)
    assert first.mean != second.mean
    assert isinstance(learner.regulariser, TagGates)
    gates = torch.cat([gate.flatten() for gate in tag_gates(learner.regulariser.tags, 2, 1.0, "raw").values()])
    assert second.mean == pytest.approx(float(gates.double().mean()))
    assert learner.regulariser.penalty is not None
    held = torch.cat([gate.flatten() for gate in learner.regulariser.penalty.gates.values()])
    assert torch.equal(held, gates)


def test_rows_count_every_weight_once(results: Results):
    spec = NetworkSpec.model_validate(results.about["base"]["spec"])
    weights = init_network(spec, generator(0, "any")).params
    rows = penalties_rows(results)
    assert sum(int(str(row[-1])) for row in rows[1:]) == sum(tensor.numel() for tensor in weights.values())
    assert {row[0] for row in rows[1:]} == {"tsc"}
    found = results.findings["penalties"]["tsc"]
    assert isinstance(found, Penalties)
    assert found.after == 3


def test_the_figure_is_the_same_bytes_each_time_in_the_page_s_ink(results: Results):
    svg = penalties_svg(results)
    assert svg.startswith("<svg")
    assert svg == penalties_svg(results)
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert "tsc" in svg
