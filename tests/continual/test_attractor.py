"""AAN: its limits, what it takes from the base, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fscl.continual.methods.attractor import Attractor
from fscl.continual.registry import make_learner
from fscl.data.pool import Examples
from fscl.data.stream import StreamSpec
from fscl.errors import ConfigError, MisuseError
from fscl.nets.attractor import init_attention, mean_rows
from fscl.nets.network import Network, named
from fscl.rng import generator
from fscl.testing import POOL, TASKS, noise_pool, small_base, taught


def with_attention() -> Network:
    network = small_base()
    attention = init_attention(
        network.n_features, hidden=4, gamma=0.5, tau=3.0, generator=generator(0, "attention")
    ) | {"temperature": torch.tensor(2.0), "centre": network.extras["mean"]}
    return replace(network, extras=network.extras | named(attractor=attention))


def aan(network: Network, **settings: Any) -> Attractor:
    learner = make_learner("aan", network, settings=settings)
    assert isinstance(learner, Attractor)
    return learner


def after_all(network: Network, **settings: Any) -> Attractor:
    learner = taught(lambda base: aan(base, **settings), network, TASKS)
    assert isinstance(learner, Attractor)
    return learner


def test_held_firmly_to_the_rows_of_means_it_answers_as_class_means_do():
    network = small_base()
    firm = after_all(network, attractor="own", gamma=1e6)
    means = taught(lambda base: make_learner("prototypes", base), network, TASKS)
    assert torch.equal(firm.predict(POOL.images).argmax(1), means.predict(POOL.images).argmax(1))
    assert firm.base.numel() == 0


def test_on_a_base_that_brings_attention_it_is_used_with_what_belongs_to_it():
    network = with_attention()
    own, attended = aan(small_base()), aan(network)
    assert (own.kind, attended.kind) == ("own", "attention")
    assert len(own.in_softmax) == 0
    means = network.extras["class_means"].double() - network.extras["mean"]
    torch.testing.assert_close(attended.in_softmax, torch.cat([2 * means, -(means**2).sum(1, keepdim=True)], 1) / 2)
    torch.testing.assert_close(attended.gamma, torch.full_like(attended.gamma, 0.5))
    assert aan(network, gamma=2.0).gamma.unique().item() == 2.0
    assert own.gamma.unique().item() == 1.0


def test_rows_of_the_base_s_own_classifier_come_before_those_of_means():
    network = small_base()
    rows = {"weight": torch.randn(7, network.n_features), "bias": torch.randn(7)}
    learner = aan(replace(network, extras=network.extras | named(rows=rows)), base_rows=True)
    torch.testing.assert_close(learner.in_softmax[:, :-1].float(), rows["weight"])
    torch.testing.assert_close(learner.in_softmax[:, -1].float(), rows["bias"])


def test_a_centre_changes_no_answer_of_rows_that_are_held_firmly():
    answers = [
        after_all(network, attractor="own", gamma=1e6, base_rows=False).predict(POOL.images[:50])
        for network in (small_base(), with_attention())
    ]
    plain, centred = (scores - scores[:, :1] for scores in answers)
    torch.testing.assert_close(plain, 2 * centred, rtol=1e-3, atol=1e-3)  # at twice the temperature


def test_every_kind_of_attractor_gives_other_rows():
    network = with_attention()
    kinds = [after_all(network, attractor=kind, gamma=0.1).rows for kind in ("attention", "own", "static", "none")]
    kinds += [after_all(network, gamma=0.1, **more).rows for more in ({"tau": 0.0}, {"base_rows": False})]
    for number, one in enumerate(kinds):
        assert not any(torch.allclose(one, other, rtol=1e-4) for other in kinds[:number])


def test_earlier_new_classes_are_attended_to():
    one = aan(with_attention())
    one.learn_task(TASKS[0].support)
    known = one.rows
    one.learn_task(TASKS[1].support)
    other = aan(with_attention())
    other.base = torch.cat([other.base, known])  # as if they were base rows; in the softmax they are already
    other.in_softmax = torch.cat([other.in_softmax, known])
    support = TASKS[1].support
    other.learn_features(other.network.embed(support.images), support.labels - 3)
    torch.testing.assert_close(other.rows, one.rows[3:])


def test_a_learner_with_attention_goes_on_with_the_same_bits_after_it_is_restored():
    learner, again = aan(with_attention()), aan(with_attention())
    for task in TASKS[:2]:
        learner.learn_task(task.support)
    again.restore(learner.state())
    for each in (learner, again):
        each.learn_task(TASKS[2].support)
    assert torch.equal(learner.rows, again.rows)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"attractor": "attention"}, "called \"attention\" needs 'attractor/hidden/weight' from the base"),
        ({"base_rows": True}, "for rows of base classes, needs 'class_means' from the base"),
    ],
)
def test_a_base_without_what_is_asked_for_is_refused_at_once(settings: dict[str, Any], sentence: str):
    with pytest.raises(MisuseError) as caught:
        aan(replace(small_base(), extras={}), **settings)
    assert sentence in str(caught.value)


def test_without_any_extras_it_takes_the_rows_of_means():
    learner = after_all(replace(small_base(), extras={}))
    assert learner.kind == "own"
    assert learner.n_classes == 9


def test_a_base_s_own_classes_may_come_first_and_keep_the_base_s_rows():
    network = with_attention()
    learner = aan(network, knows_base=True)
    n_known = len(network.extras["class_means"])
    shots = noise_pool(n_classes=n_known, n_images=1).images
    learner.learn_task(Examples(shots, torch.arange(n_known)))
    means = network.extras["class_means"].double() - network.extras["mean"]
    assert torch.equal(learner.rows, mean_rows(means, 2.0))
    before = learner.rows.clone()
    new = noise_pool(n_classes=2, n_images=3)
    learner.learn_task(Examples(new.images, torch.arange(n_known, n_known + 2).repeat_interleave(3)))
    assert torch.equal(learner.rows[:n_known], before)
    # solved beside the known rows exactly once: the same as with base rows that are not answered with
    apart = aan(network)
    apart.learn_task(Examples(new.images, torch.arange(2).repeat_interleave(3)))
    assert torch.allclose(learner.rows[n_known:], apart.rows, atol=1e-6)


def test_other_first_classes_are_refused_where_the_base_s_own_are_expected():
    learner = aan(with_attention(), knows_base=True)
    with pytest.raises(ConfigError, match=r"stream\.base_way is 0"):
        learner.check_stream(StreamSpec())
    with pytest.raises(MisuseError, match=r"and it has 2\. Teach those first"):
        learner.learn_task(Examples(noise_pool(n_classes=2, n_images=1).images, torch.arange(2)))
    assert learner.n_classes == 0
