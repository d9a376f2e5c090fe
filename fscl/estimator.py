"""A classifier that goes on learning, as a scikit-learn estimator. "Teach it your own classes" in docs/ shows it in use.

What it does is elsewhere: `fscl/classifier/model.py` teaches and keeps, `explain.py` answers. Here are scikit-learn's
conventions, the checks of what is given, and one rule: a question reads the model's snapshot once, so that asking in one
thread while another teaches always has an answer from a whole state.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from fscl.classifier.explain import Explanation, explain, far_from_all, probabilities
from fscl.classifier.inputs import (
    Pictures,
    Report,
    are_pictures,
    as_pictures,
    is_folder,
    labelled_folder,
    taught_examples,
)
from fscl.classifier.knowledge import CallName, Event, Knowledge, Lesson, MemoryUse
from fscl.classifier.labels import Label, as_array, plain_labels
from fscl.classifier.model import Change, Model
from fscl.classifier.settings import ClassifierSettings
from fscl.classifier.store.lock import TIMEOUT
from fscl.classifier.teacher import Snapshot, Teacher
from fscl.errors import DataError, MisuseError
from fscl.meta.shipped import load_base
from fscl.nets.network import Network
from fscl.nets.precomputed import precomputed_features

if TYPE_CHECKING:
    from fscl.classifier.export import Exported


class ContinualClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns new classes at any time, and more examples of known ones, from a few pictures each.

    X is an array of pictures, a list of paths or Pillow images, or a folder (fscl/classifier/inputs.py); or rows of
    numbers, which are taken as features and learned as they are, without the base. y is any labels of one kind; a folder
    brings its own, the names of its sub-folders.

    A classifier that was saved or loaded has a folder, and every call that changes it is a transaction there.

    >>> model = ContinualClassifier(method="prototypes").partial_fit([[0.0], [1.0]], ["low", "high"])
    >>> model.partial_fit([[9.0]], ["top"]).predict([[8.0]]).tolist()
    ['top']

    Args:
        base: a base that comes with the package by name, a path to one, or a `Network`.
        method: a name from `fscl methods`, or `package.module:Class`.
        settings: settings of the method other than its own, such as {"memory": {"kind": "bounded", "per_class": 3}};
            `fscl show METHOD` lists them.
        memory_bytes: bound on the stored examples; None for none. Each class keeps as many as fit.
        keep_states: how many earlier states `undo` can go back to; None for all.
        invert: exchange light and dark; the shipped bases know light ink on a dark ground.
        random_state: the seed.
    """

    _model: Model
    _begun_with: tuple[Any, Any]

    def __init__(
        self,
        base: str | PathLike[str] | Network = "omniglot-protonet-conv4",
        method: str = "tsc",
        *,
        settings: Mapping[str, Any] | None = None,
        memory_bytes: int | None = None,
        keep_states: int | None = None,
        invert: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.base = base
        self.method = method
        self.settings = settings
        self.memory_bytes = memory_bytes
        self.keep_states = keep_states
        self.invert = invert
        self.random_state = random_state

    # learning

    def fit(self, X: Any, y: Iterable[Any] | None = None) -> Self:
        """Learn from nothing; `undo` brings back what was known before, unless parameters changed meanwhile."""
        rows, y = (None, y) if are_pictures(X) else self._checked_lesson(X, y, reset=True)
        before = vars(self).get("_model")
        model = before if before is not None and before.folder is not None else self._new_model(rows)
        self._learn(model, "fit", X, y, rows)
        if before is not None and before is not model:
            model.follow(before)
        return self._use(model)

    def partial_fit(self, X: Any, y: Iterable[Any] | None = None, classes: Any = None) -> Self:
        """Learn one more lesson, keeping what earlier ones taught.

        Args:
            X: pictures or rows, as everywhere.
            y: their labels, known or new ones.
            classes: accepted for scikit-learn's sake and never required; new classes are the point.
        """
        model = vars(self).get("_model")
        first = model is None or not model.snapshot.knowledge.classes
        rows, y = (None, y) if are_pictures(X) else self._checked_lesson(X, y, reset=first)
        if model is None or model.has_only_rows_of_another_width(rows):
            model = self._new_model(rows)
        self._learn(model, "learn", X, y, rows)
        return self._use(model)

    def correct(self, image: Any, label: Any) -> Self:
        """Teach one example that was misread: a path, a Pillow image, an array, or a row."""
        model, _ = self._taught()
        batch, y = _batch_of_one(model, image), [label]
        rows = None if are_pictures(batch) else self._checked_rows(batch)
        self._learn(model, "correct", batch, y, rows)
        return self

    def forget(self, label: Any) -> Self:
        """Forget a class: no stored example, row or sum of it is left, and `undo` cannot bring it back."""
        (plain,) = plain_labels([label])
        return self._change(lambda teacher, before: teacher.forgotten(before, plain, when=_now()), final=True)

    def rename(self, old: Any, new: Any) -> Self:
        """Give a class another name."""
        was, becomes = plain_labels([old])[0], plain_labels([new])[0]
        return self._change(lambda teacher, before: teacher.renamed(before, was, becomes, when=_now()))

    def undo(self, n_calls: int = 1) -> Self:
        """Go back to the state before the last call, or before the last `n_calls`, bit for bit."""
        self._begun("undo").undo(n_calls)
        return self

    # asking: each reads one snapshot, once

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

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of right answers; a folder brings its own labels."""
        if is_folder(X) and y is None:
            model, _ = self._taught()
            X, y = labelled_folder(Path(X), model.shape)
        return float(super().score(X, y, sample_weight))

    def explain(self, image: Any, *, n_nearest: int = 3) -> Explanation:
        """One picture: its classes by probability, the nearest stored examples, and whether it is known at all."""
        model, snapshot = self._taught()
        images = self._examples(model, _batch_of_one(model, image))
        (answer,) = explain(model.network, snapshot, images, n_nearest=n_nearest)
        return answer

    def explain_all(self, X: Any, *, n_nearest: int = 3) -> list[Explanation]:
        """`explain` for each of many."""
        model, snapshot = self._taught()
        return explain(model.network, snapshot, self._examples(model, X), n_nearest=n_nearest)

    def answers(self, paths: Iterable[str | PathLike[str]]) -> tuple[tuple[str, ...], list[Explanation]]:
        """`explain` for files and folders of files, with the name of each picture."""
        model, snapshot = self._taught()
        read = [as_pictures(path, model.shape) for path in paths]
        names = tuple(source for pictures in read for source in pictures.sources)
        return names, explain(model.network, snapshot, torch.cat([pictures.images for pictures in read]))

    def read_folder(
        self, folder: str | PathLike[str], *, skip_bad: bool = False, report: Report | None = None
    ) -> tuple[Pictures, list[str]]:
        """The pictures of a folder with one sub-folder per class, ready to be learned, and their labels.

        Args:
            folder: with one sub-folder per class, its name the class's.
            skip_bad: leave out files that cannot be read, instead of refusing the folder.
            report: called with a sentence for each file that is left out.
        """
        shape = self._begun("base").shape
        return labelled_folder(Path(folder), shape, bad_files="skip" if skip_bad else "refuse", report=report)

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
    def memory_(self) -> MemoryUse:
        """What is stored of the examples, and the bound on it."""
        return self._knowledge("memory_").memory_use(self.memory_bytes)

    @property
    def estimated_accuracy_(self) -> float | None:
        """By leaving each stored example out; None where no class has two."""
        return self._knowledge("estimated_accuracy_").calibration.accuracy

    @property
    def class_accuracy_(self) -> dict[Label, float | None]:
        """The same for each class."""
        return self._knowledge("class_accuracy_").class_accuracy

    def about(self) -> dict[str, Any]:
        """What is known, as a JSON value: settings, classes with their stored examples and accuracy, bytes, history."""
        return self._begun("about").about()

    # keeping

    def save(self, folder: str | PathLike[str], *, timeout: float = TIMEOUT) -> Self:
        """Write the model as a new folder; from then on every change is a transaction there.

        Args:
            folder: a new one.
            timeout: seconds that a change waits there while another process changes the model.
        """
        model = vars(self).get("_model") or self._new_model(None)
        model.save(Path(folder), timeout=timeout)
        return self._use(model)

    @classmethod
    def load(cls, folder: str | PathLike[str], *, timeout: float = TIMEOUT) -> Self:
        """The model in a folder, which its changes go to; a call that was cut short is completed with the next change.

        Args:
            folder: of a model.
            timeout: seconds that a change waits there while another process changes the model.
        """
        model = Model.load(Path(folder), timeout=timeout)
        parameters = model.settings.model_dump(exclude={"base", "settings", "seed"})
        classifier = cls(
            base=model.settings.base or str(Path(folder) / "base.safetensors"),
            settings=model.settings.settings or None,
            random_state=model.settings.seed,
            **parameters,
        )
        return classifier._use(model)

    def recover(self) -> bool:
        """Complete a lesson that a killed process left in the folder's journal; whether there was one."""
        return self._begun("recover").recover()

    def export(self, path: str | PathLike[str]) -> "Exported":
        """Write extractor and head as one ONNX file, and the labels beside it; needs `fscl[export]`."""
        from fscl.classifier.export import export_onnx  # rarely needed

        model, snapshot = self._taught()
        return export_onnx(Path(path), snapshot, model.shape)

    # the rest is how

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        model = vars(self).get("_model")
        return model is not None and bool(model.snapshot.knowledge.classes)

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

    def _use(self, model: Model) -> Self:
        self._begun_with = self.base, self.random_state
        self._model = model  # one assignment: who asks meanwhile has the old one or the new one
        return self

    def _new_model(self, rows: Tensor | None) -> Model:
        """A model with nothing known; it is used once it has learned something."""
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        return Model(Teacher(self._network_for(rows), self._settings(int(seed))))

    def _network_for(self, rows: Tensor | None) -> Network:
        if rows is not None:
            return precomputed_features(rows.shape[1])
        if isinstance(self.base, Network):
            return self.base
        if not isinstance(self.base, str | PathLike):
            raise MisuseError(f"base is a name, a path or a Network, but it is {self.base!r}.")
        return load_base(Path(self.base))

    def _settings(self, seed: int) -> ClassifierSettings:
        named = self.base if isinstance(self.base, str) and not Path(self.base).suffix else None
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name != "random_state"}
        return ClassifierSettings.checked(
            **{**parameters, "base": named, "settings": self.settings or {}, "seed": seed}
        )

    def _check_unchanged(self, model: Model) -> None:
        """Parameters that changed since it began to learn would be obeyed by halves."""
        for name, before in zip(("base", "random_state"), self._begun_with, strict=True):
            value = getattr(self, name)
            if value is not before and value != before:
                raise MisuseError(
                    f"{name} changed since this classifier began to learn; fit a clone of it, or set it back."
                )
        begun, now = model.settings, self._settings(model.settings.seed)
        changed = [name for name in ClassifierSettings.model_fields if getattr(now, name) != getattr(begun, name)]
        if changed:
            raise MisuseError(
                f"{changed[0]} changed since this classifier began to learn; fit a clone of it, or set it back to "
                f"{getattr(begun, changed[0])!r}."
            )

    def _learn(self, model: Model, call: CallName, X: Any, y: Any, rows: Tensor | None) -> None:
        if model is vars(self).get("_model"):
            self._check_unchanged(model)
        of_pictures = model.network.picture_shape is not None
        if rows is not None and of_pictures:
            raise DataError("this classifier learns pictures, but these are rows of numbers. Use another one.")
        if rows is None and not of_pictures:
            raise DataError("this classifier has learned rows of numbers, but these are pictures. Use another one.")
        shape = model.shape if of_pictures else None
        examples, sources, labels = taught_examples(X if rows is None else rows, y, shape)
        model.learn(Lesson(examples, labels, sources, call, _now()))

    def _change(self, made: Change, *, final: bool = False) -> Self:
        model, _ = self._taught()
        self._check_unchanged(model)
        model.change(made, final=final)
        return self

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

    def _checked_rows(self, X: Any) -> Tensor:
        """Rows of numbers as scikit-learn checks them, in double precision, copied."""
        return torch.from_numpy(np.array(validate_data(self, X, reset=False, dtype=np.float64)))

    def _checked_lesson(self, X: Any, y: Any, *, reset: bool) -> tuple[Tensor, Any]:
        """Rows and labels as scikit-learn checks them."""
        checked, labels = validate_data(self, X, y, reset=reset, dtype=np.float64)
        check_classification_targets(labels)
        return torch.from_numpy(np.array(checked)), labels


def _batch_of_one(model: Model, image: Any) -> Any:
    return np.asarray(image)[None] if model.network.picture_shape is None else [image]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
