"""The probe: fresh few-shot problems, learned from where the learner stands, without touching it."""

import json
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

import fscl.evaluation.probe as probe_module
from fscl.continual.consolidation import Consolidation
from fscl.continual.registry import make_learner
from fscl.data.pool import ClassPool, Examples
from fscl.data.stream import StreamSpec, sample_stream
from fscl.errors import DataError
from fscl.evaluation.probe import Probe, ProbeSpec, make_probe
from fscl.evaluation.protocol import evaluate_stream
from fscl.nets.network import Network
from fscl.nets.params import empty_head, grow_head, linear, trainable_copy
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import generator

SPEC = ProbeSpec(after=(0, 2), n_episodes=6, n_way=3, n_shot=2, n_query=4, n_classes=5)


def base(norm: str = "group") -> Network:
    return init_network(NetworkSpec.model_validate({"norm": norm, "width": 8, "image_size": 16}), generator(0, "base"))


@pytest.fixture(scope="module")
def probe(small_pool: ClassPool) -> Probe:
    return make_probe(small_pool, SPEC, seed=3)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_class_means_answer_as_they_do_one_problem_at_a_time(norm: str, probe: Probe):
    network = base(norm)
    statistics = network.freeze_statistics(network.to_input(probe.shots.flatten(0, 1)))
    expected = []
    for classes in probe.problems.tolist():
        means = torch.stack([network.embed(probe.shots[c], statistics=statistics).mean(0) for c in classes])
        right = [
            torch.cdist(network.embed(probe.queries[c], statistics=statistics), means).argmin(1) == place
            for place, c in enumerate(classes)
        ]
        expected.append(torch.stack(right).double().mean().item())
    assert probe.accuracies(network) == pytest.approx(expected)
    assert min(expected) > 0


def test_heads_that_learn_side_by_side_learn_as_if_alone(probe: Probe, monkeypatch: pytest.MonkeyPatch):
    quick = probe_module.PROBE_SETTINGS.model_copy(update={"steps": 20, "learning_rate": 1e-2})
    monkeypatch.setattr(probe_module, "PROBE_SETTINGS", quick)
    network, heads = base(), replace(probe, spec=SPEC.model_copy(update={"learn": "head"}))
    found = heads.accuracies(network)
    labels = torch.arange(3).repeat_interleave(2)
    for classes, share in zip(probe.problems, found, strict=True):
        head = trainable_copy(
            grow_head(empty_head(network.n_features), 3, [generator(3, "probe-row", i) for i in range(3)])
        )
        features = network.embed(probe.shots[classes].flatten(0, 1))
        optimiser = torch.optim.Adam(list(head.values()), lr=1e-2, betas=(0.5, 0.999))
        for _ in range(20):
            optimiser.zero_grad()
            cross_entropy(linear(head, features), labels).backward()
            optimiser.step()
        answers = linear(head, network.embed(probe.queries[classes].flatten(0, 1))).argmax(1)
        assert share == pytest.approx((answers == torch.arange(3).repeat_interleave(4)).double().mean().item())


def test_the_paper_s_way_moves_a_copy_of_the_network(probe: Probe, monkeypatch: pytest.MonkeyPatch):
    quick = probe_module.PROBE_SETTINGS.model_copy(update={"steps": 6, "embedding_steps": 3})
    monkeypatch.setattr(probe_module, "PROBE_SETTINGS", quick)
    network = base()
    before = {name: tensor.clone() for name, tensor in network.params.items()}
    found = replace(probe, spec=SPEC.model_copy(update={"learn": "network"})).accuracies(network)
    assert len(found) == SPEC.n_episodes
    assert all(torch.equal(network.params[name], before[name]) for name in before)


def test_the_same_problems_are_met_by_everyone_and_shots_are_never_queries(small_pool: ClassPool, probe: Probe):
    again = make_probe(small_pool, SPEC, seed=3)
    assert torch.equal(again.problems, probe.problems)
    assert torch.equal(again.shots, probe.shots)
    assert not torch.equal(make_probe(small_pool, SPEC, seed=4).problems, probe.problems)
    for shots, queries in zip(probe.shots, probe.queries, strict=True):
        assert not any(torch.equal(shot, query) for shot in shots for query in queries)
    assert all(len(set(classes)) == SPEC.n_way for classes in probe.problems.tolist())


def test_classes_images_and_problems_of_a_probe_are_drawn(small_pool: ClassPool, probe: Probe):
    assert len({tuple(classes) for classes in probe.problems.tolist()}) > 1
    place = {
        image.numpy().tobytes(): (index, number)
        for index in range(len(small_pool))
        for number, image in enumerate(small_pool.of_class(index))
    }
    shots = [[place[shot.numpy().tobytes()] for shot in of_class] for of_class in probe.shots]
    assert [of_class[0][0] for of_class in shots] != list(range(SPEC.n_classes))
    assert any([number for _, number in of_class] != list(range(SPEC.n_shot)) for of_class in shots)


def test_a_query_does_not_influence_another(probe: Probe):
    network = base("batch")
    other = probe.queries.clone()
    other[:, 1:] = 255 - other[:, 1:]
    one, changed = (replace(probe, queries=queries)._features(network)[1][:, 0] for queries in (probe.queries, other))
    torch.testing.assert_close(one, changed)


def test_weights_that_were_probed_before_are_not_probed_again(probe: Probe, monkeypatch: pytest.MonkeyPatch):
    fresh = replace(probe)
    first = fresh.accuracies(base())
    monkeypatch.setattr(Probe, "_measure", lambda *_: pytest.fail("measured again"))
    assert fresh.accuracies(base()) == first
    other = replace(base(), params={name: tensor + 1 for name, tensor in base().params.items()})
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        fresh.accuracies(other)


def test_classes_can_be_left_out_and_too_few_are_an_error(small_pool: ClassPool):
    kept = make_probe(small_pool, SPEC, seed=0, without=small_pool.class_names[4:])
    assert len(kept.shots) == 4  # fewer than n_classes: all of them
    images = {image.numpy().tobytes() for index in range(4) for image in small_pool.of_class(index)}
    assert all(image.numpy().tobytes() in images for image in kept.shots.flatten(0, 1))
    with pytest.raises(DataError, match="a probe of 3 ways needs 3 classes"):
        make_probe(small_pool, SPEC, seed=0, without=small_pool.class_names[2:])


def test_a_stream_is_probed_where_it_was_asked_from_the_slow_weights(small_pool: ClassPool, probe: Probe):
    stream = sample_stream(small_pool, StreamSpec(n_tasks=2, n_way=2, n_shot=3, n_query=4), generator(0, "stream"))
    settings = {"steps": 6, "embedding_steps": 6, "learning_rate": 2e-2, "slow_rate": 0.5}
    learner, plain = (make_learner("fsw", base(), seed=0, settings=settings) for _ in range(2))
    result = evaluate_stream(learner, stream, small_pool, probes={"novel": probe})
    without = evaluate_stream(plain, stream, small_pool)
    assert isinstance(learner, Consolidation)
    assert result.probes["novel"].keys() == {0, 2}
    assert result.probes["novel"][0] == probe.accuracies(base())
    assert result.probes["novel"][2] == probe.accuracies(replace(base(), params=learner.slow))
    assert result.probes["novel"][2] != probe.accuracies(replace(base(), params=learner.fast))
    assert (result.top1[-1] == without.top1[-1]).all()  # probing changed nothing
    assert json.loads(json.dumps(result.result()))["probes"]["novel"]["2"] == result.probes["novel"][2]
    assert result.cost()["probe_seconds"] > 0
    assert "probes" not in without.result()


def test_a_head_at_its_optimum_answers_as_scikit_learn(probe: Probe):
    from sklearn.linear_model import LogisticRegression

    network = base()
    found = replace(probe, spec=SPEC.model_copy(update={"learn": "optimum"})).accuracies(network)
    for classes, share in zip(probe.problems, found, strict=True):
        shots = network.embed(probe.shots[classes].flatten(0, 1)).double().numpy()
        queries = network.embed(probe.queries[classes].flatten(0, 1)).double().numpy()
        centre, unit = shots.mean(0), ((shots - shots.mean(0)) ** 2).sum(1).mean() ** 0.5
        head = LogisticRegression(C=100, tol=1e-8, max_iter=5000)
        head.fit((shots - centre) / unit, torch.arange(3).repeat_interleave(2).numpy())
        answers = torch.from_numpy(head.predict((queries - centre) / unit))
        assert share == pytest.approx((answers == torch.arange(3).repeat_interleave(4)).double().mean().item())


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_the_inner_loop_is_plain_gradient_descent_from_a_head_of_zeros(norm: str, probe: Probe):
    network = base(norm)
    before = {name: tensor.clone() for name, tensor in network.params.items()}
    spec = SPEC.model_copy(update={"learn": "inner_loop", "inner_steps": 3, "inner_rate": 0.5})
    found = replace(probe, spec=spec).accuracies(network)
    assert all(torch.equal(network.params[name], before[name]) for name in before)
    labels = torch.arange(3).repeat_interleave(2)
    for classes, share in zip(probe.problems, found, strict=True):
        shots, queries = (network.to_input(part[classes].flatten(0, 1)) for part in (probe.shots, probe.queries))
        params = trainable_copy(network.params)
        head = trainable_copy({"weight": torch.zeros(3, network.n_features), "bias": torch.zeros(3)})
        for _ in range(3):
            weights = [*params.values(), *head.values()]
            loss = cross_entropy(linear(head, network.features(shots, params)), labels)
            for weight, grad in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.data -= 0.5 * grad
        statistics = network.freeze_statistics(shots, params)
        answers = linear(head, network.features(queries, params, statistics=statistics)).argmax(1)
        assert share == pytest.approx((answers == torch.arange(3).repeat_interleave(4)).double().mean().item())


def test_the_next_task_is_learned_by_a_copy_of_the_learner_with_all_that_it_replays(small_pool: ClassPool):
    stream = sample_stream(small_pool, StreamSpec(n_tasks=2, n_way=2, n_shot=3, n_query=4), generator(0, "stream"))
    without = [name for task in stream.tasks for name in task.classes]
    spec = SPEC.model_copy(update={"learn": "next_task", "n_episodes": 2, "after": (0, 1)})
    probe = make_probe(small_pool, spec, seed=0, without=without)
    settings = {"steps": 6, "embedding_steps": 6, "learning_rate": 2e-2}
    learner, plain = (make_learner("replay", base(), seed=0, settings=settings) for _ in range(2))
    result = evaluate_stream(learner, stream, small_pool, probes={"novel": probe})
    expected_end = evaluate_stream(plain, stream, small_pool).top1[-1]
    assert (result.top1[-1] == expected_end).all()  # probing changed nothing
    by_hand = make_learner("replay", base(), seed=0, settings=settings)
    by_hand.learn_task(stream.task(small_pool, 0).support)
    classes = probe.problems[0]
    labels = torch.arange(3)
    by_hand.learn_task(Examples(probe.shots[classes].flatten(0, 1), 2 + labels.repeat_interleave(2)))
    answers = by_hand.predict(probe.queries[classes].flatten(0, 1))[:, 2:].argmax(1)  # among the problem's own classes
    expected = (answers == labels.repeat_interleave(4)).double().mean().item()
    assert result.probes["novel"][1][0] == pytest.approx(expected)
