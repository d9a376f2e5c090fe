"""APL: what is written, what is dropped, and how the nearest keys answer."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fscl.continual.methods.surprise import Surprise
from fscl.continual.registry import make_learner
from fscl.errors import MisuseError
from fscl.nets.decoders import init_decoder
from fscl.nets.network import Network, named
from fscl.nets.precomputed import precomputed_features
from fscl.rng import generator
from fscl.testing import CONTRACT, POOL, TASKS, Check, small_base, taught


def on_rows(width: int = 1, **settings: Any) -> Surprise:
    """On features given by hand."""
    return Surprise(precomputed_features(width), Surprise.Settings.model_validate(settings), seed=0)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def with_decoder(n_labels: int | None = None) -> Network:
    network = small_base()
    weights = init_decoder(
        network.n_features, hidden=32, blocks=1, n_labels=n_labels, generator=generator(0, "decoder")
    )
    return replace(network, extras=network.extras | named(decoder=weights))


def test_a_shot_is_written_if_its_label_was_a_surprise():
    learner = on_rows()
    learner.learn_features(column(0.0, 2.0), torch.tensor([0, 1]))  # the first of each class always
    assert learner.keys[:, 0].tolist() == [0.0, 2.0]
    # -log p of class 0 at x is log(1 + exp(x² - (2 - x)²)) = log(1 + exp(4x - 4)), and the limit is 0.75 ln 2
    limit = 1 + math.log(math.exp(0.75 * math.log(2)) - 1) / 4
    learner.learn_features(column(limit - 0.01), torch.tensor([0]))
    assert learner.keys[:, 0].tolist() == [0.0, 2.0]
    learner.learn_features(column(limit + 0.01), torch.tensor([0]))
    assert learner.keys[:, 0].tolist() == pytest.approx([0.0, 2.0, limit + 0.01])
    assert learner.labels.tolist() == [0, 1, 0]
    assert learner.diagnostics() == {"keys stored": 3.0, "written": 0.75}


def test_a_shot_is_predicted_with_the_shots_before_it():
    learner = on_rows()
    learner.learn_features(column(0.0, 5.0, 5.1, 9.0), torch.tensor([0, 1, 1, 0]))
    assert learner.keys[:, 0].tolist() == [0.0, 5.0, 9.0]  # 5.1 is no surprise beside 5, and 9 is no class 0 so far


def test_all_shots_are_written_where_that_is_asked_for():
    learner = on_rows(write="all")
    learner.learn_features(column(0.0, 0.1, 5.0, 5.1), torch.tensor([0, 0, 1, 1]))
    assert len(learner.keys) == 4


def test_a_full_memory_drops_its_oldest_keys_and_never_holds_more():
    learner = on_rows(write="all", capacity=3)
    learner.learn_features(column(0.0, 1.0), torch.tensor([0, 1]))
    learner.learn_features(column(2.0, 3.0), torch.tensor([2, 3]))
    assert learner.keys[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert learner.labels.tolist() == [1, 2, 3]
    assert learner.n_classes == 4
    assert learner.diagnostics() == {"keys stored": 3.0, "written": 1.0}
    learner.learn_features(column(4.0), torch.tensor([0]))
    assert learner.labels.tolist() == [2, 3, 0]
    assert learner.scores(column(1.0)).argmax().item() == 2  # the key of class 1 is gone


def test_only_the_nearest_keys_are_asked():
    learner = on_rows(write="all", neighbours=2)
    learner.learn_features(column(1.0, -1.2, -1.2), torch.tensor([0, 1, 1]))
    assert learner.scores(column(0.0)).argmax().item() == 0
    everyone = on_rows(write="all", neighbours=3)
    everyone.learn_features(column(1.0, -1.2, -1.2), torch.tensor([0, 1, 1]))
    assert everyone.scores(column(0.0)).argmax().item() == 1


def test_storing_everything_and_asking_the_nearest_is_nearest_neighbour():
    network = small_base()
    answers = [
        taught(lambda base, name=name, given=given: make_learner(name, base, settings=given), network, TASKS)  # type: ignore[misc]
        .predict(POOL.images)
        .argmax(1)
        for name, given in (("apl", {"decoder": "nearest", "write": "all"}), ("neighbour", {}))
    ]
    assert torch.equal(*answers)


def test_a_trained_decoder_is_used_where_the_base_brings_one():
    network = with_decoder()
    voting = taught(lambda base: make_learner("apl", base), small_base(), TASKS)
    decoding = taught(lambda base: make_learner("apl", base), network, TASKS)
    torch.testing.assert_close(decoding.predict(POOL.images), voting.predict(POOL.images))  # untrained, it is the vote
    weights = network.extras | {"decoder/out/weight": torch.randn(1, 32)}
    other = taught(lambda base: make_learner("apl", base), replace(network, extras=weights), TASKS)
    assert not torch.allclose(other.predict(POOL.images), voting.predict(POOL.images))
    with pytest.raises(MisuseError, match="called \"trained\" needs 'decoder/out/weight' from the base"):
        make_learner("apl", small_base(), settings={"decoder": "trained"})


def test_more_classes_than_the_decoder_has_labels_are_refused_and_nothing_changes():
    learner = taught(lambda base: make_learner("apl", base), with_decoder(n_labels=7), TASKS[:2])
    before = learner.state().tensors
    with pytest.raises(
        MisuseError, match=r"trained with n_labels = 7, and 9 classes are more\. .*base\.learner\.n_labels"
    ):
        learner.learn_task(TASKS[2].support)
    assert all(torch.equal(tensor, learner.state().tensors[name]) for name, tensor in before.items())
    assert learner.predict(POOL.images[:3]).shape == (3, 6)


@pytest.mark.parametrize(
    "check",
    [
        check
        for check in CONTRACT
        if check.__name__
        in (
            "a_saved_learner_learns_the_next_task_identically",
            "predictions_ignore_the_order_and_the_batch_of_the_test_images",
            "only_seen_classes_can_be_predicted",
            "answers_stay_finite",
        )
    ],
    ids=lambda check: check.__name__,
)
@pytest.mark.parametrize("n_labels", [None, 16])
def test_the_contract_holds_with_a_trained_decoder(check: Check, n_labels: int | None):
    check(lambda base: make_learner("apl", base), with_decoder(n_labels))


@pytest.mark.parametrize("network", [with_decoder(), with_decoder(16)], ids=["neighbours", "labels"])
def test_answers_can_be_one_graph_for_any_number_of_pictures(network: Network):
    learner = taught(lambda base: make_learner("apl", base), network, TASKS)

    class Scores(torch.nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return learner.scores(features)

    features = learner.features(POOL.images[:20])
    any_number = ({0: torch.export.Dim("n", min=2)},)
    graph = torch.export.export(Scores(), (features,), dynamic_shapes=any_number).module()
    torch.testing.assert_close(graph(features[:3]), learner.scores(features[:3]), rtol=1e-4, atol=1e-4)
