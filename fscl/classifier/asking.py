"""The half of `ContinualClassifier` that asks and changes nothing: each question reads one snapshot, once.

So asking in one thread while another teaches always has an answer from a whole state.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data
from torch import Tensor

from fscl.classifier.assessment import Assessment, ask_for_all
from fscl.classifier.changes import StoredExample, stored_examples
from fscl.classifier.estimate import Estimate, estimate_of
from fscl.classifier.explain import Explanation, explain, far_from_all, probabilities
from fscl.classifier.inputs import (
    Pictures,
    Report,
    are_pictures,
    as_pictures,
    checked_labels,
    files_in,
    is_folder,
    labelled_folder,
    read_files,
    taught_pictures,
    with_labels,
)
from fscl.classifier.knowledge import Event, Knowledge, MemoryUse
from fscl.classifier.labels import Label, as_array, plain_labels
from fscl.classifier.model import Model
from fscl.classifier.suggest import Suggestion, suggest
from fscl.classifier.teacher import Snapshot
from fscl.data.pictures import as_array as as_numbers
from fscl.errors import DataError

MAX_NUMBER = 1e100  # in a row: the squares of many of them still have a sum


class Asking(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What can be asked of a classifier; `ContinualClassifier` adds what changes it."""

    _model: Model

    # questions

    def predict(self, X: Any, *, reject: bool = False) -> NDArray[Any]:
        """The label of each picture; with `reject`, None for those that are too far from every class."""
        model, snapshot = self._taught()
        images = self._examples(model, X)
        features = snapshot.learner.features(images)
        best = snapshot.learner.scores(features).argmax(1).tolist()
        labels = as_array([snapshot.knowledge.classes[i] for i in best])
        if not reject:
            return labels.astype(as_array(snapshot.labels).dtype)
        answers = labels.astype(object)
        answers[far_from_all(model.network, snapshot, images, features).numpy()] = None
        return answers

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities (n, n_classes), in the order of `classes_`, which is sorted and grows."""
        model, snapshot = self._taught()
        scores = snapshot.learner.predict(self._examples(model, X))
        chances: NDArray[np.float64] = probabilities(scores, snapshot.knowledge.calibration.temperature).numpy()
        return chances[:, list(snapshot.order)]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The method's raw scores (n, n_classes), in the order of `classes_`.

        Of two classes, as scikit-learn has it, the second's score minus the first's (n,).
        """
        model, snapshot = self._taught()
        scores = snapshot.learner.predict(self._examples(model, X)).double()
        ordered: NDArray[np.float64] = scores.numpy()[:, list(snapshot.order)]
        return ordered[:, 1] - ordered[:, 0] if ordered.shape[1] == 2 else ordered

    def transform(self, X: Any) -> NDArray[Any]:
        """The features (n, d) that the answers are made from, by the weights of now."""
        model, snapshot = self._taught()
        features: NDArray[Any] = snapshot.learner.features(self._examples(model, X)).numpy()
        return features.copy()

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of right answers, each weighted by its `sample_weight`; a folder brings its own labels."""
        X, y = with_labels(X, y)
        if is_folder(X) and y is None:
            model, _ = self._taught()
            X, y = labelled_folder(Path(X), model.shape)
        if isinstance(y, Tensor):
            y = as_numbers(y, "y")
        if y is not None and not isinstance(y, Iterable):
            raise DataError(f"y holds a label for each example, but it is {y!r:.80}. Give a list.")
        if y is not None and isinstance(next(iter(self.class_accuracy_), None), str):
            y = as_array(plain_labels(y))  # one name written in two ways is one class
        return float(super().score(X, y, sample_weight))

    def test(self, X: Any, y: Any = None, *, skip_bad: bool = False, report: Report | None = None) -> Assessment:
        """How good the answers are: with an interval, by class, what is confused, the worst mistakes, what is unknown.

        Args:
            X: pictures or rows that were not taught; a folder brings its own labels.
            y: their labels. Classes that are not known are counted apart: how many of their pictures are called unknown.
            skip_bad: leave out files of a folder that cannot be read, instead of refusing it.
            report: called with a sentence for each file that is left out.
        """
        model, snapshot = self._taught()
        if is_folder(X) and y is None:
            X, y = labelled_folder(Path(X), model.shape, bad_files="skip" if skip_bad else "refuse", report=report)
        if model.has_rows:
            rows = self._checked_rows(X)
            return ask_for_all(model.network, snapshot, rows, checked_labels(y, len(rows)), ("",) * len(rows))
        pictures, labels = taught_pictures(X, y, model.shape)
        inverted = model.shape.invert
        return ask_for_all(model.network, snapshot, pictures.images, labels, pictures.sources, inverted=inverted)

    def explain(self, image: Any, *, n_nearest: int = 3) -> Explanation:
        """One picture: its classes by probability, the nearest stored examples, and whether it is known at all."""
        model, snapshot = self._taught()
        images = self._examples(model, batch_of_one(model, image))
        (answer,) = explain(model.network, snapshot, images, n_nearest=n_nearest)
        return answer

    def explain_all(self, X: Any, *, n_nearest: int = 3) -> list[Explanation]:
        """`explain` for each of many."""
        model, snapshot = self._taught()
        return explain(model.network, snapshot, self._examples(model, X), n_nearest=n_nearest)

    def answers(
        self, paths: Iterable[str | PathLike[str]], *, skip_bad: bool = False, report: Report | None = None
    ) -> tuple[tuple[str, ...], list[Explanation]]:
        """`explain` for files and folders of files, with the name of each picture.

        Args:
            paths: of pictures, and of folders with pictures in them or one level below.
            skip_bad: leave out files that cannot be read, instead of refusing all; one must be left.
            report: called with a sentence for each file that is left out.
        """
        model, snapshot = self._taught()
        pictures = self._read_files(model, paths, skip_bad=skip_bad, report=report)
        return pictures.sources, explain(model.network, snapshot, pictures.images)

    def suggest(self, X: Any, *, n: int = 10, skip_bad: bool = False, report: Report | None = None) -> list[Suggestion]:
        """Which of many pictures without labels to label next: unsure of, and unlike one another.

        Args:
            X: pictures or rows; a folder gives the pictures that lie in it or one level below.
            n: how many at most.
            skip_bad: leave out files of a folder that cannot be read, instead of refusing it.
            report: called with a sentence for each file that is left out.
        """
        model, snapshot = self._taught()
        if model.has_rows:
            rows = self._checked_rows(X)
            return suggest(snapshot, rows, ("",) * len(rows), n=n)
        if is_folder(X):
            pictures = self._read_files(model, [X], skip_bad=skip_bad, report=report)
        else:
            pictures = as_pictures(X, model.shape)
        return suggest(snapshot, pictures.images, pictures.sources, n=n)

    def read_folder(
        self, folder: str | PathLike[str], *, skip_bad: bool = False, report: Report | None = None
    ) -> tuple[Pictures, list[str]]:
        """The pictures of a folder with one sub-folder per class, ready to be learned, and their labels.

        Args:
            folder: with one sub-folder per class, its name the class's.
            skip_bad: leave out files that cannot be read, instead of refusing the folder.
            report: called with a sentence for each file that is left out.
        """
        model = self._begun("base")
        return labelled_folder(
            Path(folder),
            model.shape,
            bad_files="skip" if skip_bad else "refuse",
            report=report,
            originals=model.keeps_originals,
        )

    # what is known

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted."""
        return as_array(self._begun("classes_").snapshot.labels)

    @property
    def history_(self) -> tuple[Event, ...]:
        """What was learned when, and the accuracy then, estimated by leaving one out."""
        return self._knowledge("history_").history

    @property
    def examples_(self) -> tuple[StoredExample, ...]:
        """The stored examples, numbered; `remove` and `move` take one of them."""
        return stored_examples(self._knowledge("examples_"))

    @property
    def memory_(self) -> MemoryUse:
        """What is stored of the examples, and the bound on it."""
        return self._knowledge("memory_").memory_use(self._begun("memory_").settings.memory_bytes)

    @property
    def estimated_accuracy_(self) -> float | None:
        """By leaving each stored example out; None where no class has two."""
        return self._knowledge("estimated_accuracy_").calibration.accuracy

    @property
    def estimate_(self) -> Estimate:
        """The same with its interval, and what the stored examples look like: repeats, probably wrong labels."""
        return estimate_of(self._knowledge("estimate_"))

    @property
    def class_accuracy_(self) -> dict[Label, float | None]:
        """The same for each class."""
        return self._knowledge("class_accuracy_").class_accuracy

    def waiting(self) -> bool:
        """Whether a lesson that was cut short waits in the folder's journal."""
        return self._begun("waiting").waiting()

    def about(self) -> dict[str, Any]:
        """What is known, as a JSON value: settings, classes with their stored examples and accuracy, bytes, history."""
        return self._begun("about").about()

    # the rest is how

    def _begun(self, name: str) -> Model:
        model: Model | None = vars(self).get("_model")
        if model is None:  # as scikit-learn would have it: no such attribute before fit
            raise AttributeError(f"{type(self).__name__} has no {name} before it has learned; call fit or partial_fit.")
        return model

    def _knowledge(self, name: str) -> Knowledge:
        return self._begun(name).snapshot.knowledge

    def _taught(self) -> tuple[Model, Snapshot]:
        """The model and its state of this moment, to answer from."""
        model: Model | None = vars(self).get("_model")
        snapshot = None if model is None else model.snapshot
        if model is None or snapshot is None or not snapshot.knowledge.classes:
            raise NotFittedError(f"this {type(self).__name__} has learned nothing yet; call fit or partial_fit first.")
        return model, snapshot

    def _examples(self, model: Model, X: Any) -> Tensor:
        """What is asked about, as the learner takes it."""
        if model.network.picture_shape is None:
            return self._checked_rows(X)
        if not are_pictures(X):
            raise DataError(
                "this classifier has learned pictures, and X is none: give an array (n, h, w) or (n, h, w, c), a list of "
                "paths or Pillow images, or a folder."
            )
        return as_pictures(X, model.shape).images

    def _read_files(
        self, model: Model, paths: Iterable[str | PathLike[str]], *, skip_bad: bool, report: Report | None
    ) -> Pictures:
        files = [file for path in paths for file in files_in(Path(path))]
        return read_files(files, model.shape, bad_files="skip" if skip_bad else "refuse", report=report)

    def _checked_rows(self, X: Any) -> Tensor:
        """Rows of numbers as scikit-learn checks them, in double precision, copied."""
        with numbers_of(X) as rows:
            return bounded(np.array(validate_data(self, rows, reset=False, dtype=np.float64)))


def batch_of_one(model: Model, image: Any) -> Any:
    """A picture or a row as X has it."""
    return as_numbers(image, "the row")[None] if model.network.picture_shape is None else [image]


@contextmanager
def numbers_of(X: Any) -> Iterator[Any]:
    """X for scikit-learn to check as rows; what it does not expect is a DataError."""
    if hasattr(X, "__array__"):
        found = as_numbers(X, "X")  # fails in a sentence where it claims to be an array and is none
        X = found if isinstance(X, Tensor) else X
    try:
        yield X
    except (OverflowError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"X is a {type(X).__name__} that holds no rows of numbers ({error}).") from error


def bounded(rows: NDArray[np.float64]) -> Tensor:
    """Rows as a tensor; numbers whose squares could not be added up are refused."""
    largest = float(np.abs(rows).max(initial=0.0))
    if largest > MAX_NUMBER:
        raise DataError(f"rows hold numbers up to {MAX_NUMBER:g}, but one is {largest:g}. Scale them down.")
    return torch.from_numpy(rows)
