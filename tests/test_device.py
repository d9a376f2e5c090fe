"""Everything follows the device: shown on one that is pretended (pretend.py), since the machine that tests may have none."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from fscl.analysis.drift import Drift, DriftObserver
from fscl.analysis.fisher import FisherCourse, FisherObserver, fisher_over_episodes
from fscl.analysis.penalties import Penalties, PenaltiesObserver
from fscl.continual.learner import ContinualLearner
from fscl.continual.registry import make_learner, methods
from fscl.data.augment import Variation, varied
from fscl.data.episode import sample_episode
from fscl.data.pool import ClassPool, Examples, split_classes
from fscl.data.stream import StreamSpec, sample_stream
from fscl.device import find_device
from fscl.errors import MisuseError, RunError
from fscl.evaluation.observer import Observer
from fscl.evaluation.probe import Probe, ProbeSpec, make_probe
from fscl.evaluation.protocol import StreamResult, evaluate_stream
from fscl.meta.base import BaseLearner
from fscl.meta.maml import Maml
from fscl.meta.mamlpp import MamlPlusPlus
from fscl.meta.protonet import ProtoNet
from fscl.meta.statistics import statistics_of
from fscl.meta.supervised import Supervised
from fscl.meta.team import Team, join_team
from fscl.meta.train import TrainedBase, TrainSpec, episode_accuracy, meta_train
from fscl.nets.network import Network
from fscl.nets.params import placed, trainable_copy
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import generator
from fscl.storage import load_tensors, save_tensors
from fscl.testing import noise_pool
from tests.children import FSCL, run_child
from tests.continual.quick import quick
from tests.experiment.tiny import TINY, toml
from tests.pretend import Mixed, Pretend, pretended

POOL = noise_pool(n_classes=12, n_images=8)
STREAM = sample_stream(POOL, StreamSpec(n_tasks=2, n_way=2, n_shot=2, n_query=3), generator(0, "stream"))
SPLITS = split_classes(noise_pool(), train=range(10), validation=range(10, 15), test=range(15, 20))
PLAN = TrainSpec(
    steps=2,
    n_way=3,
    n_shot=2,
    n_query=2,
    validate_every=1,
    validation_episodes=2,
    validation_way=3,
    validation_query=2,
    jitter=1.0,
    weight_decay=0.01,
)
DEVICES = ("cuda", "mps")


def base(norm: str = "batch", channels: int = 1, **shape: object) -> Network:
    spec = NetworkSpec.model_validate({"norm": norm, "width": 4, "image_size": 16, "channels": channels, **shape})
    network = init_network(spec, generator(0, "base"))
    images = noise_pool(n_classes=4, n_images=8, channels=channels).images
    ready = replace(network, statistics=network.freeze_statistics(network.to_input(images)))
    return replace(ready, extras=statistics_of(ready.embed(images), torch.arange(4).repeat_interleave(8)))


FEW = {"learning_rate": 5e-4, "embedding_steps": 2, "views": 2, "steps": 3}


def learner_of(method: str, network: Network, **settings: object) -> ContinualLearner:
    return make_learner(
        method,
        network,
        seed=0,
        settings=quick(method, **{"learning_rate": 5e-4, "embedding_steps": 2, "views": 2, "steps": 3, **settings}),
    )


def same(there: Tensor, here: Tensor) -> None:
    """Equal up to rounding: torch takes other routes for the pretended device now and then."""
    assert isinstance(there, Pretend)
    torch.testing.assert_close(there.cpu(), here, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", methods())
def test_every_method_learns_and_answers_on_the_device_as_it_does_on_the_cpu(method: str, device: str):
    network, asked = base(), POOL.images[:6]
    here = learner_of(method, network)
    for number in range(2):
        here.learn_task(STREAM.task(POOL, number).support)
    with pretended(device) as place:
        there = learner_of(method, network.to(place))
        there.learn_task(STREAM.task(POOL, 0).support)  # images of the CPU …
        there.learn_task(STREAM.task(POOL.to(place), 1).support.to(place))  # … and of the device
        same(there.predict(asked), here.predict(asked))
        same(there.predict(asked.to(place)), here.predict(asked))
        assert there.starting_point().device.type == device
        assert there.stored_bytes() == here.stored_bytes()


@pytest.mark.parametrize("method", methods())
def test_what_was_learned_on_a_device_is_saved_for_any_device(method: str, tmp_path: Path):
    network, asked = base(), POOL.images[:6]
    with pretended("mps") as place:
        there = learner_of(method, network.to(place))
        there.learn_task(STREAM.task(POOL, 0).support)
        state = there.state()
        save_tensors(tmp_path / "state.safetensors", "learner", state.tensors, state.details)
        there.learn_task(STREAM.task(POOL, 1).support)
        expected = there.predict(asked)
        again = learner_of(method, network.to(place))
        tensors, _ = load_tensors(tmp_path / "state.safetensors", "learner")
        again.restore(replace(state, tensors=tensors))
        again.learn_task(STREAM.task(POOL, 1).support)
        same(again.predict(asked), expected.cpu())
    assert not any(isinstance(tensor, Pretend) for tensor in tensors.values())
    home = learner_of(method, network)
    home.restore(replace(state, tensors=tensors))
    home.learn_task(STREAM.task(POOL, 1).support)
    same(expected, home.predict(asked))


SETTINGS = {
    "batches of classes": ("replay", {"batch_size": 4}),
    "batches of a large task": ("tsc_gated", {"batch_size": 3}),
    "a small memory": ("tsc", {"memory": {"kind": "bounded", "per_class": 1}}),
    "a head that starts from means": ("replay", {"objective": {"head_start": "means"}}),
    "mirrored photographs": ("tsc", {"mirror": True}),
    "a term for each task": ("ewc", {"regulariser": {"accumulate": "each"}}),
    "all labels": ("ewc", {"regulariser": {"labels": "all"}}),
}


@pytest.mark.parametrize(("method", "settings"), SETTINGS.values(), ids=SETTINGS)
def test_settings_that_no_method_sets_keep_to_the_device_too(method: str, settings: dict[str, object]):
    network, answers = base("group"), []
    for device in ("cpu", "cuda"):
        with pretended("cuda"):
            learner = learner_of(method, network.to(device), **settings)
            for number in range(2):
                learner.learn_task(STREAM.task(POOL, number).support)
            answers.append(learner.predict(POOL.images[:6]))
    same(answers[1], answers[0])


@pytest.mark.parametrize("backbone", ["resnet12", "resnet18"])
def test_other_backbones_and_photographs_keep_to_the_device(backbone: str):
    pool = noise_pool(n_classes=4, n_images=4, channels=3)
    network = base(channels=3, backbone=backbone, width=8, scaling="imagenet")
    change = Variation(flip=True, crop=0.2, colour=0.3)
    here = network.embed(varied(pool.images, change, generator(0, "variation")))
    with pretended("cuda") as place:
        images = varied(pool.to(place).images, change, generator(0, "variation"))
        same(network.to(place).embed(images), here)


Observed = tuple[Drift, FisherCourse, Penalties]


def observed(network: Network, pool: ClassPool, probes: dict[str, Probe]) -> tuple[StreamResult, Observed]:
    task, learner = STREAM.task(POOL, 0), learner_of("tsc_gated", network)
    drift = DriftObserver(DriftObserver.Settings(after=(0, 1)), task)
    fisher = FisherObserver(FisherObserver.Settings(steps=(0, 1)), task)
    penalties = PenaltiesObserver(PenaltiesObserver.Settings(after=2), task)
    observers: tuple[Observer, ...] = (drift, fisher, penalties)

    def look(n_tasks: int, learner: ContinualLearner) -> None:
        for observer in observers:
            observer.look(n_tasks, learner)

    result = evaluate_stream(learner, STREAM, pool, probes=probes, on_learned=look)
    found = drift.found(learner), fisher.found(learner), penalties.found(learner)
    assert found[0] is not None and found[1] is not None and found[2] is not None  # noqa: PT018 - mypy narrows it so
    return result, (found[0], found[1], found[2])


@pytest.mark.parametrize("device", DEVICES)
def test_the_protocol_with_its_probes_and_observers_gives_the_figures_of_the_cpu(
    device: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fscl.evaluation.probe.PROBE_SETTINGS", learner_of("fsw", base()).settings)  # fewer steps
    asked = {"after": (0, 2), "n_episodes": 2, "n_way": 2, "n_shot": 2, "n_query": 2}
    probes = {
        how: make_probe(POOL, ProbeSpec.model_validate({**asked, "learn": how}), seed=0)
        for how in ("means", "head", "network")
    }
    network = base()
    here, (drift, fisher, _) = observed(network, POOL, probes)
    with pretended(device) as place:
        moved = {name: probe.to(place) for name, probe in probes.items()}
        there, (drift_there, fisher_there, _) = observed(network.to(place), POOL.to(place), moved)
    assert json.dumps(there.result()["top1"]) == json.dumps(here.result()["top1"])
    assert there.probes == here.probes
    assert there.answers == here.answers
    assert there.multiply_adds == here.multiply_adds
    assert drift_there.moved == pytest.approx(drift.moved, rel=1e-3)
    assert [point.step for point in fisher_there.points] == [point.step for point in fisher.points]
    assert fisher_there.points[-1].test.trace == pytest.approx(fisher.points[-1].test.trace, rel=1e-3)


LEARNERS: dict[str, BaseLearner] = {
    "protonet": ProtoNet(both_ways=True),
    "supervised, cosine": Supervised(),
    "supervised, linear": Supervised(classifier="linear"),
    "maml": Maml(inner_steps=2),
    "maml, first order": Maml(inner_steps=2, first_order=True, transductive=True),
    "anil": Maml(inner_steps=2, adapt="head"),
    "maml++": MamlPlusPlus(inner_steps=2),
    "maml++, one set of statistics": MamlPlusPlus(inner_steps=2, per_step_statistics=False, first_order_until=1.0),
}


def trained(
    learner: BaseLearner, folder: Path, device: str, *, norm: str = "batch", autocast: bool = False
) -> TrainedBase:
    spec = NetworkSpec.model_validate({"width": 4, "image_size": 16, "norm": norm})
    return meta_train(
        learner,
        spec,
        SPLITS.train,
        SPLITS.validation,
        PLAN,
        seed=0,
        checkpoint=folder / "checkpoint.safetensors",
        device=device,
        autocast=autocast,
    )


def gradients(learner: BaseLearner, norm: str, device: str) -> list[Tensor]:
    """The loss and its gradients; not weights, for Adam makes whole steps of gradients that are nothing but rounding."""
    spec = NetworkSpec.model_validate({"width": 4, "image_size": 16, "norm": norm})
    meta = learner.init(spec, n_way=3, n_classes=10, generator=generator(0, "init"))
    episode = sample_episode(SPLITS.train, n_way=3, n_shot=2, n_query=2, generator=generator(0, "episode"))
    place = torch.device(device)
    loss, grads = learner.gradients(spec, trainable_copy(placed(meta, place)), episode.to(place))
    return [loss, *grads]


@pytest.mark.parametrize(("norm", "device"), [("batch", "cuda"), ("group", "mps")])
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_every_base_learner_trains_and_validates_on_the_device_as_on_the_cpu(
    learner: BaseLearner, norm: str, device: str, tmp_path: Path
):
    here = trained(learner, tmp_path / "cpu", "cpu", norm=norm)
    with pretended(device):
        there = trained(learner, tmp_path / device, device, norm=norm)
        for found, expected in zip(gradients(learner, norm, device), gradients(learner, norm, "cpu"), strict=True):
            same(found, expected)
        tested = episode_accuracy(
            learner, there.network, there.meta, SPLITS.test, n_episodes=2, n_way=3, n_shot=2, n_query=2, seed=0
        )
        again = trained(learner, tmp_path / device, device, norm=norm)  # from the checkpoint
        assert again.network.device.type == device
    assert there.history == here.history
    assert len(tested) == 2


def test_meta_training_goes_on_from_its_checkpoint_on_the_same_device_alone(tmp_path: Path):
    with pretended("cuda"):
        trained(ProtoNet(), tmp_path, "cuda")
    with pytest.raises(RunError, match=r"device\.type = 'cuda', but now it is None"):
        trained(ProtoNet(), tmp_path, "cpu")


def test_meta_training_is_watched_on_the_device():
    network = base()
    episodes = [sample_episode(POOL, n_way=2, n_shot=2, n_query=2, generator=generator(0, "watch"))]
    here = fisher_over_episodes(network, episodes, 0)
    with pretended("mps") as place:
        there = fisher_over_episodes(network.to(place), episodes, 0)
    assert here is not None
    assert there is not None
    assert there.test.trace == pytest.approx(here.test.trace, rel=1e-3)


def test_the_check_fails_where_a_tensor_stays_on_the_cpu(monkeypatch: pytest.MonkeyPatch):
    def pinned(head: dict[str, Tensor], features: Tensor) -> Tensor:
        return features @ torch.ones(features.shape[1], len(head["bias"]))

    monkeypatch.setattr("fscl.continual.consolidation.linear", pinned)
    with pretended("cuda") as place:
        learner = learner_of("replay", base().to(place))
        with pytest.raises(Mixed, match=r"aten\.mm\.default expects all tensors on one device"):
            learner.learn_task(STREAM.task(POOL, 0).support)


def test_the_pretended_device_is_as_strict_as_a_real_one():
    with pretended("cuda") as place:
        there, here = torch.arange(3.0).to(place), torch.arange(3.0)
        assert (there + torch.tensor(1.0)).tolist() == [1, 2, 3]  # a CPU scalar may join in
        assert there[torch.tensor([0, 2])].tolist() == [0, 2]  # and CPU indices may point
        with pytest.raises(Mixed):
            here[torch.tensor([0]).to(place)]  # but not the other way round
        with pytest.raises(Mixed):
            torch.stack([there[0], here[0]])  # nor do scalars join everywhere
        with pytest.raises(Mixed):
            there.add_(here)
        with pytest.raises(Mixed):
            torch.rand(3, device=place, generator=generator(0, "draw"))
        with pytest.raises(TypeError):
            there.numpy()
    with pretended("mps") as place, pytest.raises(TypeError):
        torch.arange(3.0).to(place).double()


def test_a_pool_that_is_too_large_for_the_device_stays_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("fscl.data.pool.MOST_BYTES_HELD", 1)
    here = trained(ProtoNet(), tmp_path / "cpu", "cpu")
    with pretended("cuda") as place:
        assert POOL.to(place) is POOL
        there = trained(ProtoNet(), tmp_path / "cuda", "cuda")
        outcome = evaluate_stream(learner_of("tsc", base().to(place)), STREAM, POOL)
    assert there.history == here.history
    assert outcome.answers == evaluate_stream(learner_of("tsc", base()), STREAM, POOL).answers


@pytest.mark.parametrize("command", ["run", "train"])
@pytest.mark.parametrize(
    ("device", "sentence"), [("cuda", "device 'cuda' was asked for"), ("cdua", "Did you mean 'cuda'?")]
)
def test_a_device_that_is_not_there_is_misuse_and_nothing_is_written(
    command: str, device: str, sentence: str, tmp_path: Path
):
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    config = toml(tmp_path / "tiny.toml", TINY)
    ended = run_child([*FSCL, command, str(config), "--out", str(tmp_path / "out"), "--device", device], expect=2)
    assert sentence in ended.stderr
    assert not (tmp_path / "out").exists()


def test_devices_are_found_by_name():
    assert find_device("cpu") == torch.device("cpu")
    with pretended("mps"):
        assert find_device("mps") == torch.device("mps")
        with pytest.raises(MisuseError, match=r"one of those that are here \(cpu, mps\)"):
            find_device("cuda")


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_every_base_learner_trains_under_autocast(learner: BaseLearner, norm: str, tmp_path: Path):
    plain, lowered = (trained(learner, tmp_path / str(on), "cpu", norm=norm, autocast=on) for on in (False, True))
    for name, tensor in plain.meta.items():
        assert torch.isfinite(lowered.meta[name]).all()
        assert lowered.meta[name].dtype == tensor.dtype
        torch.testing.assert_close(lowered.meta[name], tensor, rtol=0.05, atol=5e-3)
    assert any(not torch.equal(lowered.meta[name], tensor) for name, tensor in plain.meta.items())


def test_autocast_moves_the_embedding_a_little_otherwise_and_answers_in_full_precision():
    task = STREAM.task(POOL, 0)
    plain, lowered = (learner_of("replay", base("group"), autocast=on) for on in (False, True))
    for learner in (plain, lowered):
        learner.learn_task(task.support)
    expected, found = plain.predict(task.query.images), lowered.predict(task.query.images)
    assert found.dtype == torch.float32
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)


def test_examples_that_are_on_the_device_are_not_copied():
    support = Examples(POOL.images[:2], torch.tensor([0, 1]))
    assert support.to("cpu").images is support.images
    assert POOL.to(torch.device("cpu")) is POOL
    network = base()
    assert all(network.to("cpu").params[name] is tensor for name, tensor in network.params.items())


@pytest.mark.parametrize(
    ("n_gpus", "n_here", "rank", "has_nccl", "backend", "gpu", "talks_on"),
    [
        (2, 2, 1, True, "nccl", 1, "cuda:1"),
        (8, 2, 1, True, "nccl", 1, "cuda:1"),
        (1, 2, 1, True, "gloo", 0, "cpu"),  # nccl refuses two processes on one GPU
        (2, 2, 1, False, "gloo", 1, "cpu"),
    ],
)
def test_a_team_on_gpus_takes_one_each_and_talks_over_nccl(
    monkeypatch: pytest.MonkeyPatch,
    n_gpus: int, n_here: int, rank: int, has_nccl: bool, backend: str, gpu: int, talks_on: str,
):  # fmt: skip
    asked: dict[str, object] = {}
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(n_here))
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: asked.update(gpu=number))
    monkeypatch.setattr(dist, "is_nccl_available", lambda: has_nccl)
    monkeypatch.setattr(dist, "init_process_group", lambda name: asked.update(backend=name))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: asked.update(left=True))
    monkeypatch.setattr(dist, "get_rank", lambda: 3)
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    with join_team(torch.device("cuda")) as team:
        assert team == Team(3, 4, torch.device(talks_on))
    assert asked == {"gpu": gpu, "backend": backend, "left": True}
