"""Pretrained features: any module serves as a base, and what its weights have seen is said."""

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fscl
from fscl.continual.learner import ContinualLearner
from fscl.continual.registry import make_learner, methods
from fscl.data.pool import ClassPool
from fscl.data.stream import StreamSpec, Task, sample_stream
from fscl.errors import ConfigError, DataError, MisuseError, StorageError, UnknownName
from fscl.evaluation.contamination import SeenBefore, has_seen_classes, seen_before
from fscl.evaluation.protocol import evaluate_stream
from fscl.experiment.base import describe_base, train_base
from fscl.experiment.pretrained import check_pretrained
from fscl.experiment.progress import Reporter
from fscl.experiment.run import run_experiment
from fscl.meta.shipped import load_base_with_details
from fscl.nets.network import Network
from fscl.nets.pretrained import PretrainedNetwork, pretrained_base
from fscl.nets.sources import load_network, named_base
from fscl.nets.trained import TrainedNetwork
from fscl.nets.work import counted_work
from fscl.report.page import write_report
from fscl.rng import generator
from fscl.testing import (
    CONTRACT,
    POOL,
    TASKS,
    Check,
    a_saved_learner_learns_the_next_task_identically,
    noise_pool,
    predictions_ignore_the_order_and_the_batch_of_the_test_images,
    the_base_network_is_untouched,
)
from fscl.testing import taught as taught_by
from tests.continual.quick import fresh
from tests.experiment.tiny import tiny


def taught(method: str, network: Network, tasks: list[Task]) -> ContinualLearner:
    return taught_by(partial(fresh, method=method), network, tasks)


def by_heart(check: Check) -> dict[str, float]:
    """Settings with which an example is learned by heart, for the check that asks for it."""
    return {"steps": 60, "learning_rate": 2e-2} if "once_it_is_learned" in check.__name__ else {}


NEEDS_STATISTICS = ("slda", "teen")  # of base classes, which nobody has of a network that was trained elsewhere
ON_FEATURES = [method for method in methods() if method not in ("naive", *NEEDS_STATISTICS)]


def small_module() -> nn.Module:
    """Three channels of 24×24 to 64 features, with BatchNorm that has seen something."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.AvgPool2d(6), nn.Flatten()
        )
        module(torch.rand(8, 3, 24, 24))
    return module


def small_base(*, trainable: bool = False, seen: bool = False) -> PretrainedNetwork:
    return pretrained_base(
        small_module(),
        image_size=24,
        mean=(0.4, 0.5, 0.6),
        std=0.2,
        trainable=trainable,
        seen="imagenet" if seen else None,
    )


@pytest.mark.parametrize("method", ON_FEATURES)
def test_every_method_learns_from_frozen_features(method: str):
    for check in (
        predictions_ignore_the_order_and_the_batch_of_the_test_images,
        the_base_network_is_untouched,
        a_saved_learner_learns_the_next_task_identically,
    ):
        check(partial(fresh, method=method), small_base())


@pytest.mark.parametrize("method", NEEDS_STATISTICS)
def test_a_method_that_needs_statistics_of_base_classes_refuses_a_network_without(method: str):
    with pytest.raises(MisuseError, match=r"needs '(within|class_means)' from the base, and this one carries nothing"):
        taught(method, small_base(), TASKS[:1])


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", ["tsc", "ewc"])
def test_methods_keep_the_whole_contract(method: str, check: Callable[[str, Network], None], trainable: bool):
    check(partial(fresh, method=method, **by_heart(check)), small_base(trainable=trainable))


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_class_means_keep_the_whole_contract(check: Callable[[str, Network], None]):
    check(partial(fresh, method="prototypes"), small_base())


def test_features_are_those_of_the_module_on_resized_and_normalised_images():
    base, module, images = small_base(), small_module().eval(), noise_pool(channels=3).images[:5]
    resized = nn.functional.interpolate(images / 255, size=(24, 24), mode="bilinear", antialias=True)
    scaled = (resized - torch.tensor([0.4, 0.5, 0.6])[:, None, None]) / 0.2
    with torch.no_grad():
        torch.testing.assert_close(base.embed(images), module(scaled))
    assert base.n_features == 64
    assert base.embed(images[:0]).shape == (0, 64)


def test_grey_images_are_given_to_all_channels():
    grey, base = POOL.images[:4], small_base()
    assert torch.equal(base.embed(grey), base.embed(grey.repeat(1, 3, 1, 1)))
    for wrong in (grey.float(), grey[0], grey.repeat(1, 2, 1, 1)):
        with pytest.raises(DataError, match=r"uint8 images \(n, channels, height, width\) of 3 channel"):
            base.embed(wrong)


def test_the_module_is_copied_and_left_as_it_was():
    module = small_module()
    base = pretrained_base(module, image_size=24)
    before = base.embed(POOL.images[:4])
    assert module.training
    assert all(weights.requires_grad for weights in module.parameters())
    with torch.no_grad():
        module[0].weight.zero_()
    assert torch.equal(base.embed(POOL.images[:4]), before)


def test_many_images_pass_through_the_module_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch):
    base, images = small_base(), POOL.images[:40]
    whole = base.embed(images)
    monkeypatch.setattr("fscl.nets.pretrained.BATCH_PIXELS", 3 * 24 * 24)
    torch.testing.assert_close(base.embed(images), whole)


class LooksAround(nn.Module):
    """Subtracts the mean of the batch, and so judges no image alone."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(0)).flatten(1)


class GivesTwo(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (LooksAround(), "change with the other images in its batch"),
        (nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten()), "running statistics"),
        (GivesTwo(), "for 3 images it gives tuple"),
        (nn.Flatten(0), r"for 3 images it gives shape \(5184,\)"),
        (nn.Conv2d(5, 2, 1), r"cannot take images of shape \(3, 24, 24\)"),
        (nn.Sequential(nn.Flatten(), nn.Threshold(2, float("nan"))), "not finite"),
    ],
)
def test_a_module_that_cannot_serve_is_refused(module: nn.Module, reason: str):
    with pytest.raises(MisuseError, match=reason):
        pretrained_base(module, image_size=24)


def test_a_wrong_scale_is_refused():
    with pytest.raises(MisuseError, match="mean has 2 numbers, but there are 3 channels"):
        pretrained_base(small_module(), image_size=24, mean=(0.5, 0.5))
    with pytest.raises(MisuseError, match="std divides"):
        pretrained_base(small_module(), image_size=24, std=0.0)


@pytest.mark.parametrize(
    ("one", "other"), [("ewc", "replay"), ("fsw", "head"), ("constant", "head"), ("stc", "replay")]
)
def test_on_frozen_features_methods_that_move_the_embedding_learn_as_the_head_does(one: str, other: str):
    base = small_base()
    learners = [taught(method, base, TASKS) for method in (one, other)]
    assert torch.equal(*(learner.predict(POOL.images[:20]) for learner in learners))
    assert learners[0].diagnostics()["embedding_steps"] == 0


def test_weights_move_only_where_they_may():
    moved = taught("replay", small_base(trainable=True), TASKS).starting_point()
    start = small_base(trainable=True)
    assert not torch.equal(moved.embed(POOL.images[:4]), start.embed(POOL.images[:4]))
    assert torch.equal(moved.tensors()["module/1.running_mean"], start.tensors()["module/1.running_mean"])
    still = taught("replay", small_base(), TASKS).starting_point()
    assert torch.equal(still.embed(POOL.images[:4]), small_base().embed(POOL.images[:4]))


def test_a_start_from_random_weights_is_refused():
    with pytest.raises(MisuseError, match="cannot start from random weights"):
        make_learner("naive", small_base(), seed=0)


def test_work_and_storage_of_the_module_are_counted():
    base = small_base()
    with counted_work() as work:
        base.embed(POOL.images[:7])
    assert work.multiply_adds == 7 * 4 * 3 * 9 * 24 * 24  # images, filters, channels, kernel, pixels
    held = sum(tensor.nbytes for tensor in small_module().state_dict().values())
    for method in ("prototypes", "head"):
        assert held < taught(method, base, TASKS).stored_bytes()["weights"] < held + 20_000


def test_a_frozen_base_has_no_fisher_information_and_its_embedding_does_not_drift():
    learner = taught("ewc", small_base(), TASKS[:2])
    assert not learner.moves_embedding
    assert list(learner.course(TASKS[0].support, [0, 1])) == []
    assert learner.held_weights() is None


def test_a_module_of_your_own_is_not_saved(tmp_path: Path):
    with pytest.raises(MisuseError, match="nobody else can build it again"):
        small_base().save(tmp_path / "base.safetensors")


def test_names_that_are_no_pretrained_base_are_answered_with_what_there_is():
    with pytest.raises(UnknownName, match="efficientnet_lite2 or timm:<model name>"):
        fscl.load_base("efficientnet_lite0@big")
    with pytest.raises(UnknownName, match=r"Did you mean 'efficientnet_lite[012]'"):
        fscl.load_base("efficientnet_lite")


# timm, by a stand-in with the four functions that are used of it


@pytest.fixture
def timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that other processes find as well."""
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "data.py").write_text(
        "def resolve_model_data_config(module):\n"
        "    return {'input_size': (3, 24, 24), 'mean': (0.4, 0.5, 0.6), 'std': (0.2, 0.2, 0.2)}\n"
    )
    (tmp_path / "timm" / "__init__.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "from timm import data\n"
        "__version__ = 'stand-in'\n"
        "def is_model(name):\n"
        "    return name in list_models()\n"
        "def list_models():\n"
        "    return ['small', 'unpublished']\n"
        "def create_model(name, *, pretrained, num_classes):\n"
        "    if pretrained and name == 'unpublished':\n"
        "        raise RuntimeError('no weights of it')\n"
        "    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()\n"
        "    module = nn.Sequential(*layers)\n"
        "    module.pretrained_cfg = {'license': 'mit'}\n"
        "    if pretrained:\n"
        "        with torch.random.fork_rng():\n"
        "            torch.manual_seed(0)\n"
        "            nn.init.normal_(module[0].weight)\n"
        "            nn.init.normal_(module[0].bias)\n"
        "    return module\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("timm", "timm.data"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("timm")
def test_a_model_of_timm_is_a_base_by_its_name():
    base, about = load_base_with_details("timm:small")
    assert isinstance(base, PretrainedNetwork)
    assert (base.spec.image_size, base.spec.mean, base.spec.seen) == (24, (0.4, 0.5, 0.6), "imagenet")
    assert "have seen ImageNet" in about["summary"]
    assert fscl.load_base("timm:small@32").spec.image_size == 32
    with pytest.raises(UnknownName, match=r"no model named 'smal'\. Did you mean 'small'"):
        fscl.load_base("timm:smal")
    with pytest.raises(MisuseError, match="could not give 'unpublished' its weights: no weights of it"):
        fscl.load_base("timm:unpublished")


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize("trainable", [False, True])
def test_a_base_by_name_survives_a_file(tmp_path: Path, trainable: bool):
    base, about = named_base("timm:small", trainable=trainable)
    moved = replace(base, params={name: tensor + 0.1 for name, tensor in base.params.items()})
    moved.save(tmp_path / "base.safetensors", about)
    again, details = load_network(tmp_path / "base.safetensors")
    assert torch.equal(again.embed(POOL.images[:9]), moved.embed(POOL.images[:9]))
    assert (again.spec, details, len(again.params)) == (base.spec, about, 4 if trainable else 0)
    with pytest.raises(StorageError, match="does not say which network it holds"):
        TrainedNetwork.load(tmp_path / "base.safetensors")


@pytest.mark.usefixtures("timm")
def test_a_run_on_a_named_base_is_rebuilt_by_its_workers_and_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = tiny(base={"use": "timm:small"}, run__n_sequences=1)
    record = run_experiment(config, tmp_path / "run", workers=2)
    about = record.about()["base"]
    assert about["summary"].startswith("timm:small: frozen features that have seen ImageNet")
    assert len(about["spec"]["weights"]) == 32
    assert {cell.method for cell in record.cells()} == {"tsc", "replay", "prototypes"}
    assert "The base is frozen, so methods that would move the embedding learn their heads alone" in " ".join(
        capsys.readouterr().err.split()
    )
    assert "frozen features that have seen ImageNet" in write_report(record).read_text()
    before = record.results_path.read_bytes()
    run_experiment(config, tmp_path / "run", workers=1)
    assert record.results_path.read_bytes() == before


def test_a_missing_timm_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MisuseError, match=r"needs timm, and timm is not installed: .* -c constraints.txt timm"):
        fscl.load_base("timm:resnet18")


def test_a_timm_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(MisuseError, match=r"cannot be imported \(operator torchvision::nms does not exist\)"):
        fscl.load_base("timm:resnet18")


# what the weights have seen


def test_figures_on_classes_that_the_weights_have_seen_carry_a_warning():
    seen, other = small_base(seen=True), small_base()
    assert "every class of mini-imagenet" in (seen_before(seen, "mini-imagenet (test)") or "")
    for name in ("mini-imagenet", "mini-fscil", "mini-imagenet-star", "tiered-imagenet"):
        assert f"every class of {name}, " in (seen_before(seen, name) or "")
    assert "CUB" in (seen_before(seen, "cub (test)") or "")
    assert seen_before(seen, "omniglot (test)") is None
    assert seen_before(other, "mini-imagenet (test)") is None
    assert has_seen_classes(seen, "mini-imagenet")
    assert not has_seen_classes(seen, "cub")


def test_evaluation_warns_when_such_a_base_meets_such_data():
    stream = sample_stream(POOL, StreamSpec(n_tasks=2, n_way=2, n_shot=2, n_query=2), generator(0, "stream"))
    renamed = ClassPool("mini-imagenet (test)", POOL.images, POOL.class_names, POOL.counts)
    with pytest.warns(SeenBefore, match="every class of mini-imagenet, test classes included"):
        evaluate_stream(make_learner("prototypes", small_base(seen=True), seed=0), stream, renamed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_stream(make_learner("prototypes", small_base(), seed=0), stream, renamed)


def test_a_run_on_such_data_warns_and_its_record_says_so(capsys: pytest.CaptureFixture[str]):
    config = tiny(base={"use": "efficientnet_lite0"}, data={"name": "mini-imagenet"})
    base = small_base(seen=True)
    check_pretrained(config, base, Reporter(quiet=True))
    told = " ".join(capsys.readouterr().err.split())
    assert "every class of mini-imagenet" in told
    line = describe_base(config, base, {"summary": "frozen features that have seen ImageNet"})
    assert line == (
        "efficientnet_lite0: frozen features that have seen ImageNet "
        "(all classes of mini-imagenet are among what they have seen)"
    )


def test_what_a_pretrained_base_cannot_serve_is_refused_before_anything_runs():
    with pytest.raises(MisuseError, match="cannot start from random weights"):
        check_pretrained(tiny(run__methods=["naive", "replay"]), small_base(), Reporter(quiet=True))
    with pytest.raises(ConfigError, match="those of a pretrained base are not at hand"):
        check_pretrained(tiny(probe={"after": [0]}), small_base(), Reporter(quiet=True))


@pytest.mark.usefixtures("timm")
def test_meta_training_does_not_start_from_a_pretrained_base(tmp_path: Path):
    config = tiny(base={"start": "timm:small"})
    with pytest.raises(ConfigError, match="was not meta-trained here, so no training starts from it"):
        train_base(config, fscl.load_glyphs(), tmp_path / "checkpoint", Reporter(quiet=True))


@pytest.mark.parametrize(
    ("size", "n", "sizes"),
    [(224, 40, [20, 20]), (224, 31, [31]), (224, 5, [5]), (260, 48, [16, 16, 16]), (2048, 3, [1, 1, 1]), (224, 0, [0])],
)
def test_pieces_are_neither_small_nor_large(size: int, n: int, sizes: list[int]):
    """A CPU runs 16 photographs or more at a time faster than fewer; larger ones are limited by memory."""
    base = pretrained_base(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), image_size=size)
    assert [len(piece) for piece in base.pieces(torch.zeros(n, 3, 8, 8, dtype=torch.uint8))] == sizes
