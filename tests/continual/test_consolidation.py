"""Consolidation: the equivalences that make one learner many methods, the tags, the head, the memory."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fscl.continual.consolidation import Consolidation
from fscl.continual.registry import make_learner, methods
from fscl.continual.regularisers import QuadraticPenalty
from fscl.continual.regularisers.tagging import tag_gates
from fscl.data.pool import ClassPool
from fscl.data.stream import Stream, StreamSpec, sample_stream
from fscl.errors import Divergence
from fscl.nets.network import Network
from fscl.nets.params import Params, empty_head, grow_head, linear, trainable_copy
from fscl.nets.trained import NetworkSpec, TrainedNetwork, init_network
from fscl.rng import generator

SPEC = StreamSpec(n_tasks=3, n_way=3, n_shot=3, n_query=5)
STEPS = 12


@pytest.fixture(scope="module")
def stream(small_pool: ClassPool) -> Stream:
    return sample_stream(small_pool, SPEC, generator(0, "stream"))


def base(norm: str = "group", *, double: bool = False) -> Network:
    network = init_network(
        NetworkSpec.model_validate({"norm": norm, "width": 8, "image_size": 16}), generator(0, "base")
    )
    if double:
        return replace(network, params={name: tensor.double() for name, tensor in network.params.items()})
    return network


def learn(learner: Consolidation, stream: Stream, pool: ClassPool) -> list[tuple[Params, Params]]:
    """Fast weights after each task."""
    weights = []
    for number in range(len(stream)):
        learner.learn_task(stream.task(pool, number).support)
        weights.append((learner.fast, learner.fast_head))
    return weights


def learner_with(network: Network, **settings: Any) -> Consolidation:
    learner = make_learner("fsw", network, seed=0, settings={"steps": STEPS, "embedding_steps": 4, **settings})
    assert isinstance(learner, Consolidation)
    return learner


def same(one: Params, other: Params) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def plain_training(network: Network, params: Params, head: Params, x: Tensor, y: Tensor) -> tuple[Params, Params]:
    """Full-batch Adam on everything: no slow weights, no memory, no tags; the reference for joint and replay."""
    params, head = trainable_copy(params), trainable_copy(head)
    optimiser = torch.optim.Adam([*params.values(), *head.values()], lr=5e-4, betas=(0.5, 0.999))
    features = network.featurer(x)
    for _ in range(STEPS):
        optimiser.zero_grad()
        cross_entropy(linear(head, features(params, None)), y).backward()
        optimiser.step()
    return params, head


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(("method", "slow_rate"), [("joint", 0.0), ("replay", 1.0)])
def test_a_slow_rate_of_zero_is_joint_training_and_of_one_is_replay_bit_for_bit(
    method: str, slow_rate: float, norm: str, stream: Stream, small_pool: ClassPool
):
    network = base(norm)
    by_settings = learn(learner_with(network, slow_rate=slow_rate, embedding_steps="all"), stream, small_pool)
    named = make_learner(method, network, seed=0, settings={"steps": STEPS})
    assert isinstance(named, Consolidation)
    by_name = learn(named, stream, small_pool)

    params, head = network.params, empty_head(network.n_features)
    for number in range(len(stream)):
        shots = [stream.task(small_pool, earlier).support for earlier in range(number + 1)]
        x = network.to_input(torch.cat([task.images for task in shots]))
        y = torch.cat([task.labels for task in shots])
        rows = [generator(0, "head-row", label) for label in range(3 * (number + 1))]
        grown = grow_head(empty_head(network.n_features) if method == "joint" else head, len(rows), rows)
        start = network.params if method == "joint" else params
        params, head = plain_training(network, start, grown, x, y)
        for found in (by_settings[number], by_name[number]):
            assert same(found[0], params)
            assert same(found[1], head)


def test_sequential_training_sees_the_newest_task_only(stream: Stream, small_pool: ClassPool):
    network = base()
    sequential = make_learner("sequential", network, seed=0, settings={"steps": STEPS})
    assert isinstance(sequential, Consolidation)
    first, second = learn(sequential, stream, small_pool)[:2]
    task = stream.task(small_pool, 1).support
    grown = grow_head(first[1], 6, [generator(0, "head-row", label) for label in range(6)])
    params, head = plain_training(network, first[0], grown, network.to_input(task.images), task.labels)
    assert same(second[0], params)
    assert same(second[1], head)
    assert len(sequential.memory) == 0


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_no_embedding_steps_leave_the_embedding_bit_identical(norm: str, stream: Stream, small_pool: ClassPool):
    network = base(norm)
    fresh = grow_head(empty_head(network.n_features), 3, [generator(0, "head-row", label) for label in range(3)])
    for fast, head in learn(learner_with(network, embedding_steps=0), stream, small_pool):
        assert same(fast, network.params)
        assert not torch.equal(head["weight"][:3], fresh["weight"])  # the head did learn


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_head_steps_on_cached_features_equal_those_that_compute_them_anew(
    norm: str, stream: Stream, small_pool: ClassPool
):
    network, task = base(norm), stream.task(small_pool, 0).support
    learner = learner_with(network)
    learner.learn_task(task)
    x = network.to_input(task.images)
    fast = trainable_copy(network.params)
    head = trainable_copy(grow_head(empty_head(network.n_features), 3, [generator(0, "head-row", i) for i in range(3)]))
    optimiser = torch.optim.Adam([*fast.values(), *head.values()], lr=5e-4, betas=(0.5, 0.999))
    statistics, features = None, network.featurer(x)
    for step in range(STEPS):
        if step == 4:
            statistics = network.freeze_statistics(x, fast)
            for tensor in fast.values():
                tensor.requires_grad_(False)
                tensor.grad = None
        optimiser.zero_grad()
        cross_entropy(linear(head, features(fast, statistics)), task.labels).backward()
        optimiser.step()
    assert same(learner.fast, fast)
    torch.testing.assert_close(learner.fast_head["weight"], head["weight"].detach(), rtol=1e-5, atol=1e-6)


def test_the_slow_weights_follow_by_the_slow_rate_head_rows_included(stream: Stream, small_pool: ClassPool):
    network = base()
    learner = learner_with(network, slow_rate=0.25)
    learner.learn_task(stream.task(small_pool, 0).support)
    rows = grow_head(empty_head(network.n_features), 3, [generator(0, "head-row", label) for label in range(3)])
    for name, start in network.params.items():
        torch.testing.assert_close(learner.slow[name], start + 0.25 * (learner.fast[name] - start))
    expected = rows["weight"] + 0.25 * (learner.fast_head["weight"] - rows["weight"])
    torch.testing.assert_close(learner.slow_head["weight"], expected)


def test_the_printed_strength_of_the_paper_has_no_effect_in_double_precision(stream: Stream, small_pool: ClassPool):
    network = base(double=True)
    results = [
        learn(learner_with(network, regulariser={"kind": "tagging", "strength": strength}), stream, small_pool)[-1][0]
        for strength in (0.0, 1e-10, 0.1)
    ]

    def largest_difference(one: Params, other: Params) -> float:
        return max(float((one[name] - other[name]).abs().max()) for name in one)

    assert largest_difference(results[0], results[1]) < 1e-8
    assert largest_difference(results[0], results[2]) > 1e-4


@pytest.mark.parametrize("regulariser", ["constant", "tagging"])
def test_a_strong_penalty_holds_the_embedding_near_the_slow_weights(
    regulariser: str, stream: Stream, small_pool: ClassPool
):
    network = base()
    moved = []
    for strength in (0.0, 10.0):
        learner = learner_with(
            network, regulariser={"kind": regulariser, "strength": strength}, embedding_steps="all", steps=40
        )
        learner.learn_task(stream.task(small_pool, 0).support)
        moved.append(sum(float((learner.fast[n] - network.params[n]).square().sum()) for n in network.params))
    assert moved[1] < 0.5 * moved[0]


def test_a_constant_activity_gives_a_gate_of_one_half_after_one_task():
    gates = tag_gates({"w": torch.full((4,), 0.3)}, 1, 1.0, "raw")
    assert gates["w"] == pytest.approx(torch.full((4,), 0.5))


def test_equal_activity_in_two_tasks_opens_the_gate_by_one_task():
    gates = tag_gates({"w": torch.full((4,), 2 * 0.3)}, 2, 1.5, "raw")
    torch.testing.assert_close(gates["w"], torch.sigmoid(torch.full((4,), 1.5 * 0.3)))


def test_the_layer_scaled_gate_does_not_change_with_the_size_of_the_gradients():
    activity = torch.rand(50, generator=generator(0, "activity"))
    gates, smaller = (tag_gates({"w": scale * activity}, 3, 1.0, "layer")["w"] for scale in (1.0, 1e-4))
    torch.testing.assert_close(gates, smaller)
    assert gates.max() - gates.min() > 0.2
    raw = tag_gates({"w": 1e-4 * activity}, 3, 1.0, "raw")["w"]
    assert raw.max() - raw.min() < 1e-3


def test_a_layer_without_any_gradient_has_a_finite_gate():
    assert torch.isfinite(tag_gates({"w": torch.zeros(3)}, 1, 1.0, "layer")["w"]).all()


def test_the_gradient_of_the_penalty_is_that_of_the_gated_sum_of_squares():
    random = generator(0, "pull")
    slow, gates = ({"w": torch.rand(5, generator=random)} for _ in range(2))
    fast = {"w": torch.rand(5, generator=random).requires_grad_()}
    penalty = 0.3 * (gates["w"] * (fast["w"] - slow["w"]).square()).sum()
    (expected,) = torch.autograd.grad(penalty, [fast["w"]])
    torch.testing.assert_close(QuadraticPenalty(gates, slow).gradient(fast, 0.3)["w"], expected)


def test_the_record_shows_that_the_printed_strength_pulls_at_nothing(stream: Stream, small_pool: ClassPool):
    ratios = {}
    for method in ("tsc_gated", "tsc_paper", "fsw", "head"):
        learner = make_learner(method, base(), seed=0, settings={"steps": STEPS, "embedding_steps": 4})
        learner.learn_task(stream.task(small_pool, 0).support)
        ratios[method] = learner.diagnostics().get("pull_ratio")
    assert ratios["fsw"] is None
    assert ratios["head"] is None
    assert ratios["tsc_gated"] is not None
    assert ratios["tsc_paper"] is not None
    assert ratios["tsc_gated"] > 1e-3
    assert ratios["tsc_paper"] < 1e-9


def test_tags_are_the_expected_gradient_of_the_new_task_at_the_slow_weights(stream: Stream, small_pool: ClassPool):
    network = base()
    learner = learner_with(network, regulariser={"kind": "tagging", "strength": 0.1})
    total = {name: torch.zeros_like(tensor) for name, tensor in network.params.items()}
    for number in range(2):
        task = stream.task(small_pool, number).support
        rows = [generator(0, "head-row", label) for label in range(3 * (number + 1))]
        head = grow_head(learner.slow_head, len(rows), rows)
        slow = trainable_copy(learner.slow)
        loss = cross_entropy(linear(head, network.features(network.to_input(task.images), slow)), task.labels)
        for name, grad in zip(slow, torch.autograd.grad(loss, list(slow.values())), strict=True):
            total[name] += grad.abs()
        learner.learn_task(task)
        assert same(learner.regulariser.tensors()["tags"], total)


def test_all_methods_draw_the_same_fresh_rows_for_the_same_class(stream: Stream, small_pool: ClassPool):
    network = base()
    one, other = (
        Consolidation(network, Consolidation.Settings(steps=1, slow_rate=0, embedding_steps=k), seed=5) for k in (0, 1)
    )
    for learner in (one, other):
        learn(learner, stream, small_pool)
    assert torch.equal(one.slow_head["weight"], other.slow_head["weight"])


def test_replay_holds_every_shot_of_every_task(stream: Stream, small_pool: ClassPool):
    learner = learner_with(base())
    learn(learner, stream, small_pool)
    assert len(learner.memory) == 27
    stored = learner.memory.stored
    assert stored is not None
    assert torch.equal(stored.images[9:18], stream.task(small_pool, 1).support.images)


def test_the_head_can_have_a_rate_of_its_own(stream: Stream, small_pool: ClassPool):
    """Adam's first step is as long as its rate, whatever the gradient."""
    learner = make_learner("joint", base(), seed=0, settings={"steps": 1, "learning_rate": 1e-3, "head_rate": 0.5})
    assert isinstance(learner, Consolidation)
    learner.learn_task(stream.task(small_pool, 0).support)
    before = learner.slow_head["bias"]  # a slow rate of 0: it stays where the fast one began
    moved = {
        "embedding": learner.fast["norms.3.bias"] - learner.slow["norms.3.bias"],
        "head": learner.fast_head["bias"] - before,
    }
    assert moved["embedding"].abs().max().item() == pytest.approx(1e-3, rel=1e-2)
    assert moved["head"].abs().max().item() == pytest.approx(0.5, rel=1e-2)


def test_naive_starts_from_random_weights_and_not_from_the_base(stream: Stream, small_pool: ClassPool):
    network = base()
    naive = make_learner("naive", network, seed=0, settings={"steps": 1})
    assert isinstance(naive, Consolidation)
    assert not torch.equal(naive.slow["convs.1.weight"], network.params["convs.1.weight"])


@pytest.mark.parametrize("strength", [0.0, 1e38])
def test_a_diverging_task_names_method_task_rate_and_strength_and_changes_nothing(
    strength: float, stream: Stream, small_pool: ClassPool
):
    learner = make_learner("tsc", base(), seed=0, settings={"steps": STEPS, "embedding_steps": "all"})
    assert isinstance(learner, Consolidation)
    learner.learn_task(stream.task(small_pool, 0).support)
    before = learner.state()
    regulariser = learner.settings.regulariser.model_copy(update={"strength": strength})
    learner.settings = learner.settings.model_copy(update={"learning_rate": 1e30, "regulariser": regulariser})
    learner.regulariser.settings = regulariser  # type: ignore[attr-defined]
    remedy = rf" and strength {re.escape(f'{strength:g}')}\. Lower one of them" if strength else r"\. Lower it"
    with pytest.raises(Divergence, match=rf"tsc diverged in task 2: .*learning_rate 1e\+30{remedy}"):
        learner.learn_task(stream.task(small_pool, 1).support)
    assert same(before.tensors, learner.state().tensors)


def test_a_loss_that_is_no_number_ends_the_task_at_once(stream: Stream, small_pool: ClassPool):
    learner = make_learner("joint", base(), seed=0, settings={"steps": 5, "learning_rate": 1e30})
    with pytest.raises(Divergence, match=r"joint diverged in task 1: the loss is (nan|inf) at step 2"):
        learner.learn_task(stream.task(small_pool, 0).support)


def test_the_table_is_the_paper_s():  # but for tsc, which is ours
    expected = {
        "sequential": (1.0, "all", "none", "none"),
        "joint": (0.0, "all", "none", "shots"),
        "replay": (1.0, "all", "none", "shots"),
        "fsw": (0.01, 100, "none", "shots"),
        "head": (0.01, 0, "none", "shots"),
        "constant": (0.01, 100, "constant", "shots"),
        "tsc_paper": (0.01, 100, "tagging", "shots"),
        "tsc_gated": (0.01, 100, "tagging", "shots"),
        "tsc_gr": (0.01, 100, "tagging", "generated"),
        "gr": (1.0, "all", "none", "generated"),
        "ewc": (1.0, "all", "ewc", "shots"),
        "si": (1.0, "all", "si", "shots"),
        "mas": (1.0, "all", "mas", "shots"),
        "stc": (1.0, "all", "tagging", "shots"),
        "naive": (0.0, "all", "none", "shots"),
    }
    for name, row in expected.items():
        settings = methods()[name].settings_in_force()
        assert isinstance(settings, Consolidation.Settings)
        kinds = settings.regulariser.kind, settings.memory.kind
        assert (settings.slow_rate, settings.embedding_steps, *kinds) == row
        assert (settings.steps, settings.learning_rate, settings.betas) == (500, 5e-4, (0.5, 0.999))


def test_with_the_statistics_of_the_base_an_embedding_that_stands_still_answers_as_class_means(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=4, image_size=16, norm="batch"), generator(0, "n"))
    network = replace(network, statistics=network.freeze_statistics(network.to_input(small_pool.images[:60])))
    stream = sample_stream(small_pool, StreamSpec(n_tasks=2, n_way=3, n_shot=3, n_query=5), generator(0, "stream"))
    still = {"embedding_steps": 0, "views": 1, "statistics": "base"}
    learner, means = make_learner("tsc", network, seed=0, settings=still), make_learner("prototypes", network, seed=0)
    for number in range(2):
        for one in (learner, means):
            one.learn_task(stream.task(small_pool, number).support)
    asked = stream.task(small_pool, 1).query.images
    assert torch.equal(learner.predict(asked).argmax(1), means.predict(asked).argmax(1))


@pytest.mark.parametrize("method", ["tsc", "joint", "ewc"])
def test_with_the_statistics_of_the_base_no_shot_changes_how_another_is_normalised(
    method: str, small_pool: ClassPool, monkeypatch: pytest.MonkeyPatch
):
    network = init_network(NetworkSpec(width=4, image_size=16, norm="batch"), generator(0, "n"))
    base = network.freeze_statistics(network.to_input(small_pool.images[:60]))
    network = replace(network, statistics=base)
    used = []
    whole = TrainedNetwork._features

    def watched(self: Network, x: Any, params: Any, statistics: Any, record: Any = None) -> Tensor:
        used.append(statistics)
        return whole(self, x, params, statistics, record)

    monkeypatch.setattr(TrainedNetwork, "_features", watched)
    settings = {"steps": 2, "statistics": "base", "stop_loss": 0}
    learner = make_learner(method, network, seed=0, settings=settings)
    assert isinstance(learner, Consolidation)
    support = sample_stream(small_pool, StreamSpec(n_tasks=1, n_query=2), generator(0, "s")).task(small_pool, 0).support
    learner.learn_task(support)
    assert used
    assert all(statistics is base for statistics in used)
    assert learner.statistics is base


def test_mirrored_pictures_are_looked_at_both_ways(small_pool: ClassPool):
    network = init_network(NetworkSpec(width=4, image_size=16), generator(0, "n"))
    learner = make_learner("tsc", network, seed=0, settings={"embedding_steps": 0, "views": 1, "mirror": True})
    assert isinstance(learner, Consolidation)
    images = small_pool.images[:6]
    both = (network.embed(images) + network.embed(images.flip(3))) / 2
    torch.testing.assert_close(learner.features(images), both)
    learner.learn_task(
        sample_stream(small_pool, StreamSpec(n_tasks=1, n_query=2), generator(0, "s")).task(small_pool, 0).support
    )
    torch.testing.assert_close(learner.predict(images), learner.predict(images.flip(3)))


def test_an_embedding_that_moves_in_the_first_task_only_is_that_of_replay_there_and_stands_still_after_it(
    stream: Stream, small_pool: ClassPool
):
    given = {"steps": STEPS}
    first, replay = (make_learner(method, base(), seed=0, settings=given) for method in ("first_task", "replay"))
    assert isinstance(first, Consolidation)
    assert isinstance(replay, Consolidation)
    for learner in (first, replay):
        learner.learn_task(stream.task(small_pool, 0).support)
    assert same(first.fast, replay.fast)
    after_one, moved = dict(first.fast), first.diagnostics()["moved"]
    assert moved > 0
    first.learn_task(stream.task(small_pool, 1).support)
    assert same(first.fast, after_one)
    assert first.diagnostics()["embedding_steps"] == 0
    assert first.diagnostics()["moved"] == moved
    assert first.n_classes == len(first.fast_head["bias"]) == 2 * stream.spec.n_way
