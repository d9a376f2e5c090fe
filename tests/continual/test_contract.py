"""What every continual method promises (fscl/testing.py), checked on each of them."""

from functools import partial
from pathlib import Path

import pytest
import torch

from fscl.continual.frozen import FrozenFeatures
from fscl.continual.learner import LearnerState
from fscl.continual.methods.prototypes import Prototypes
from fscl.continual.registry import find_method, make_learner, methods
from fscl.data.pool import Examples
from fscl.evaluation.probe import ProbeSpec, make_probe
from fscl.storage import load_tensors, save_tensors
from fscl.testing import CONTRACT, POOL, TASKS, Check, check_learner, small_base, taught
from fscl.testing import predicting_twice_gives_one_answer as one_answer
from fscl.testing import same_seed_same_bits as same_bits
from fscl.testing import the_base_network_is_untouched as untouched
from tests.continual.quick import SMALL_GENERATOR, fresh

METHODS = list(methods())


def is_frozen(method: str) -> bool:
    return issubclass(find_method(method).learner, FrozenFeatures)


# a learner on frozen features meets the norm in `Network.embed` alone
NORMS = {method: ["batch"] if is_frozen(method) else ["group", "batch"] for method in METHODS}


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("method", "norm"), [(method, norm) for method in METHODS for norm in NORMS[method]])
def test_contract(method: str, check: Check, norm: str):
    by_heart = {"steps": 60, "learning_rate": 2e-2} if "once_it_is_learned" in check.__name__ else {}
    check(partial(fresh, method=method, **by_heart), small_base(norm))  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("method", ["tsc", "head", "prototypes"])
@pytest.mark.parametrize("check", [untouched, one_answer, same_bits])
def test_contract_with_a_resnet(method: str, check: Check, norm: str):
    check(partial(fresh, method=method), small_base(norm, "resnet18"))  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_probing_reads_the_learner_and_changes_nothing(method: str):
    spec = ProbeSpec(n_episodes=2, n_way=2, n_shot=2, n_query=3, n_classes=4)
    learner = taught(partial(fresh, method=method), small_base(), TASKS[:2])
    before = learner.state()
    make_probe(POOL, spec, seed=0).accuracies(learner.starting_point())
    after = learner.state()
    assert before.details == after.details
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)


BOUNDED = [method for method in METHODS if "memory" in find_method(method).settings_in_force().model_dump()]


@pytest.mark.parametrize("method", BOUNDED)
@pytest.mark.parametrize(
    ("bound", "held"),  # after one, two and three tasks of three classes
    [
        ({"per_class": 1}, [3, 6, 9]),
        ({"images": 5}, [5, 5, 5]),
        ({"bytes": 4 * (POOL.images[0].nbytes + 8) + 1}, [4, 4, 4]),  # an image and its label
    ],
)
def test_memory_never_exceeds_its_bound(method: str, bound: dict[str, int], held: list[int]):
    generates = "generator" in find_method(method).settings_in_force().model_dump()["memory"]
    kind = {"generator": {**SMALL_GENERATOR, "images_per_class": 4}} if generates else {"kind": "bounded"}
    learner = make_learner(method, small_base(), seed=0, settings={"steps": 2, "memory": {**kind, **bound}})
    for task, expected in zip(TASKS, held, strict=True):
        learner.learn_task(task.support)
        state = learner.state()
        assert len(state.tensors["memory/images"] if state.examples is None else state.examples) == expected


NODE_IMAGES = {"topic"}  # keeps the image of each node by definition, as examples that count as memory


@pytest.mark.parametrize("method", [method for method in METHODS if method not in {*BOUNDED, *NODE_IMAGES}])
def test_other_methods_keep_no_image(method: str):
    learner = taught(partial(fresh, method=method), small_base(), TASKS)
    assert all("images" not in name for name in learner.state().tensors)
    assert learner.state().examples is None


@pytest.mark.parametrize("method", METHODS)
def test_a_learner_survives_a_file(method: str, tmp_path: Path):
    learner = taught(partial(fresh, method=method), small_base("batch"), TASKS[:2])
    state = learner.state()
    save_tensors(tmp_path / "learner.safetensors", "learner", state.tensors, state.details)
    again = fresh(small_base("batch"), method)
    again.restore(LearnerState(*load_tensors(tmp_path / "learner.safetensors", "learner"), state.examples))
    for each in (learner, again):
        each.learn_task(TASKS[2].support)
    assert torch.equal(again.predict(POOL.images[:20]), learner.predict(POOL.images[:20]))


@pytest.mark.parametrize("method", METHODS)
def test_a_learner_is_shown_in_one_line(method: str):
    learner = taught(partial(fresh, method=method), small_base(), TASKS)
    assert repr(learner) == f"<{type(learner).__name__} {method!r}: 9 classes learned>"
    assert len(repr(learner.state())) < 80


def test_checking_a_learner_names_the_promise_that_is_broken():
    class Keeps(Prototypes):
        """Forgets to refuse a label that leaves a gap."""

        def check_support(self, support: Examples) -> None:
            return

    with pytest.raises(AssertionError, match="tasks that cannot be learned are refused"):
        check_learner(lambda network: Keeps(network, Keeps.Settings(), seed=0))


@pytest.mark.parametrize("method", ["cbcl", "gemcl", "slda", "fecam", "teen", "nc_fscil", "online", "aan", "apl"])
def test_answers_on_frozen_features_are_one_graph_for_any_number_of_pictures(method: str):
    learner = taught(partial(fresh, method=method), small_base(), TASKS)

    class Scores(torch.nn.Module):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return learner.scores(features)

    features = learner.features(POOL.images[:7])
    graph = torch.export.export(Scores(), (features,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},)).module()
    for n in (7, 3):
        torch.testing.assert_close(graph(features[:n]), learner.scores(features[:n]), rtol=1e-4, atol=1e-4)
