"""A classifier that goes on learning, as a scikit-learn estimator. "Teach it your own classes" in docs/ shows it in use."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from fscl.classifier.explaining import Explanation, explain, far_from_all, probabilities
from fscl.classifier.judging import fair_features, features_of, scores_of
from fscl.classifier.knowledge import CallName, Event, Knowledge, Lesson
from fscl.classifier.labels import Label, as_array, plain_labels
from fscl.classifier.manifest import Settings
from fscl.classifier.pictures import Pictures, Report, are_pictures, as_pictures, is_folder, labelled_folder
from fscl.classifier.session import Session
from fscl.continual.learner import ContinualLearner
from fscl.errors import DataError, MisuseError
from fscl.meta.shipped import load_base
from fscl.nets.network import Network
from fscl.nets.precomputed import precomputed_features

if TYPE_CHECKING:
    from fscl.classifier.export import Exported


@dataclass(frozen=True)
class MemoryUse:
    """The stored examples: how many of each class, their bytes, and the bound on them (None for no bound)."""

    n_examples: int
    per_class: dict[Label, int]
    n_bytes: int
    max_bytes: int | None


class ContinualClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns new classes at any time, and more examples of known ones, from a few pictures each.

    X is an array of pictures, a list of paths or Pillow images, or a folder (fscl/classifier/pictures.py); or rows of
    numbers, which are taken as features and learned as they are, without the base. y is any labels of one kind; a folder
    brings its own, the names of its sub-folders.

    A classifier that was saved or loaded has a folder, and every call that changes it is a transaction there.

    Args:
        base: a base that comes with the package by name, a path to one, or a `Network`.
        method: a name from `fscl methods`.
        settings: settings of the method other than its own; for `tsc` and its family alone.
        memory_bytes: bound on the stored examples; None for none. Each class keeps as many as fit.
        keep_states: how many earlier states `undo` can go back to; None for all.
        invert: exchange light and dark; the shipped bases know light ink on a dark ground.
        random_state: the seed.
    """

    _session: Session
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
        with self._as_before_if_it_fails():
            before = self._session if self._has_begun else None
            if before is None or before.folder is None:
                self._begin(self._network_for(rows))
            self._learn("fit", X, y, rows)
            if before is not None and before.folder is None:
                self._session.follow(before)
            return self

    def partial_fit(self, X: Any, y: Iterable[Any] | None = None, classes: Any = None) -> Self:
        """Learn one more lesson, keeping what earlier ones taught.

        Args:
            X: pictures or rows, as everywhere.
            y: their labels, known or new ones.
            classes: accepted for scikit-learn's sake and never required; new classes are the point.
        """
        first = not self._has_begun or self._is_empty
        rows, y = (None, y) if are_pictures(X) else self._checked_lesson(X, y, reset=first)
        with self._as_before_if_it_fails():
            if not self._has_begun or self._has_rows_of_another_width(rows):
                self._begin(self._network_for(rows))
            return self._learn("learn", X, y, rows)

    def correct(self, image: Any, label: Any) -> Self:
        """Teach one example that was misread: a path, a Pillow image, an array, or a row."""
        check_is_fitted(self)
        batch, y = self._batch_of_one(image), [label]
        rows = None if are_pictures(batch) else self._checked_rows(batch)
        return self._learn("correct", batch, y, rows)

    def forget(self, label: Any) -> Self:
        """Forget a class: no stored example, row or sum of it is left, and `undo` cannot bring it back."""
        check_is_fitted(self)
        (plain,) = plain_labels([label])
        self._check_settings()
        self._session.change(lambda teacher, before: teacher.forgotten(before, plain, when=_now()), final=True)
        return self

    def rename(self, old: Any, new: Any) -> Self:
        """Give a class another name."""
        check_is_fitted(self)
        was, becomes = plain_labels([old])[0], plain_labels([new])[0]
        self._check_settings()
        self._session.change(lambda teacher, before: teacher.renamed(before, was, becomes, when=_now()))
        return self

    def undo(self, n_calls: int = 1) -> Self:
        """Go back to the state before the last call, or before the last `n_calls`, bit for bit."""
        self._need("undo")
        self._session.undo(n_calls)
        return self

    # asking

    def predict(self, X: Any, *, reject: bool = False) -> NDArray[Any]:
        """The label of each picture; with `reject`, None for those that are too far from every class."""
        check_is_fitted(self)
        examples = self._examples(X)
        features = features_of(self._learner, examples)
        best = scores_of(self._learner, features).argmax(1).tolist()
        labels = as_array([self._knowledge.classes[i] for i in best])
        if not reject:
            return labels.astype(self.classes_.dtype)
        answers = labels.astype(object)
        fair = fair_features(self._session.teacher.network, self._learner, examples, features)
        answers[far_from_all(self._learner, self._knowledge, fair).numpy()] = None
        return answers

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities (n, n_classes), in the order of `classes_`, which is sorted and grows."""
        check_is_fitted(self)
        scores = scores_of(self._learner, features_of(self._learner, self._examples(X)))
        found: NDArray[np.float64] = probabilities(scores, self._knowledge.judgement.temperature).numpy()
        return found[:, self._session.order]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of right answers; a folder brings its own labels."""
        if is_folder(X) and y is None:
            check_is_fitted(self)
            pictures, y = labelled_folder(Path(X), self._session.shape)
            X = pictures
        return float(super().score(X, y, sample_weight))

    def explain(self, image: Any, *, n_nearest: int = 3) -> Explanation:
        """One picture: its classes by probability, the nearest stored examples, and whether it is known at all."""
        check_is_fitted(self)
        (found,) = self.explain_all(self._batch_of_one(image), n_nearest=n_nearest)
        return found

    def explain_all(self, X: Any, *, n_nearest: int = 3) -> list[Explanation]:
        """`explain` for each of many."""
        check_is_fitted(self)
        base = self._session.teacher.network
        return explain(base, self._learner, self._knowledge, self._examples(X), n_nearest=n_nearest)

    def answers(self, paths: Iterable[str | PathLike[str]]) -> tuple[tuple[str, ...], list[Explanation]]:
        """`explain` for files and folders of files, with the name of each picture."""
        check_is_fitted(self)
        found = [as_pictures(path, self._session.shape) for path in paths]
        images = torch.cat([pictures.images for pictures in found])
        names = tuple(source for pictures in found for source in pictures.sources)
        return names, explain(self._session.teacher.network, self._learner, self._knowledge, images)

    def read_folder(
        self, folder: str | PathLike[str], *, skip_bad: bool = False, report: Report | None = None
    ) -> tuple[Pictures, list[str]]:
        """The pictures of a folder with one sub-folder per class, ready to be learned, and their labels."""
        self._need("base")
        return labelled_folder(
            Path(folder), self._session.shape, bad_files="skip" if skip_bad else "refuse", report=report
        )

    # what is known

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted."""
        self._need("classes_")
        return as_array([self._knowledge.classes[i] for i in self._session.order])

    @property
    def history_(self) -> tuple[Event, ...]:
        """What was learned when, and the accuracy then, estimated by leaving one out."""
        self._need("history_")
        return self._knowledge.history

    @property
    def memory_(self) -> MemoryUse:
        """What is stored of the examples, and the bound on it."""
        self._need("memory_")
        counts, shots = self._knowledge.counts, self._knowledge.shots
        per_class = dict(zip(self._knowledge.classes, counts, strict=True))
        stored = 0 if shots is None else shots.images.nbytes + shots.labels.nbytes
        return MemoryUse(sum(counts), per_class, stored, self.memory_bytes)

    @property
    def estimated_accuracy_(self) -> float | None:
        """By leaving each stored example out; None where no class has two."""
        self._need("estimated_accuracy_")
        return self._knowledge.judgement.accuracy

    @property
    def class_accuracy_(self) -> dict[Label, float | None]:
        """The same for each class."""
        self._need("class_accuracy_")
        return dict(zip(self._knowledge.classes, self._knowledge.judgement.per_class, strict=True))

    def about(self) -> dict[str, Any]:
        """What is known, as a JSON value: settings, classes with their stored examples and accuracy, bytes, history."""
        self._need("about")
        memory, folder = self.memory_, self._session.folder
        classes = [
            {"label": label, "examples": memory.per_class[label], "accuracy": accuracy}
            for label, accuracy in self.class_accuracy_.items()
        ]
        return {
            "settings": self._session.settings.model_dump(mode="json"),
            "classes": classes,
            "accuracy": self.estimated_accuracy_,
            "memory": {"examples": memory.n_examples, "bytes": memory.n_bytes, "bound": memory.max_bytes},
            "learner_bytes": self._learner.stored_bytes(),
            "folder_bytes": None if folder is None else folder.n_bytes(),
            "waiting": folder is not None and folder.waiting(),
            "history": [vars(event) for event in self.history_],
        }

    # keeping

    def save(self, folder: str | PathLike[str]) -> Self:
        """Write the model as a new folder; from then on every change is a transaction there."""
        if not self._has_begun:
            self._begin(self._network_for(None))
        self._session.save(Path(folder))
        return self

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """The model in a folder, which its changes go to; a call that was cut short is completed with the next change."""
        session = Session.load(Path(folder))
        settings = session.settings
        model = cls(
            base=settings.base or str(Path(folder) / "base.safetensors"),
            method=settings.method,
            settings=settings.settings or None,
            memory_bytes=settings.memory_bytes,
            keep_states=settings.keep_states,
            invert=settings.invert,
            random_state=settings.seed,
        )
        model._session, model._begun_with = session, (model.base, model.random_state)
        return model

    def recover(self) -> bool:
        """Complete a lesson that a killed process left in the folder's journal; whether there was one."""
        self._need("recover")
        return self._session.recover()

    def export(self, path: str | PathLike[str]) -> "Exported":
        """Write extractor and head as one ONNX file, and the labels beside it; needs `fscl[export]`."""
        check_is_fitted(self)
        from fscl.classifier.export import export_onnx  # rarely needed

        return export_onnx(Path(path), self._learner, self._knowledge, self._session.order, self._session.shape)

    # the rest is how

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return self._has_begun and not self._is_empty

    @property
    def _has_begun(self) -> bool:
        return "_session" in vars(self)

    @property
    def _knowledge(self) -> Knowledge:
        return self._session.knowledge

    @property
    def _learner(self) -> ContinualLearner:
        return self._session.learner

    def _need(self, name: str) -> None:
        if not self._has_begun:  # as scikit-learn would have it: no such attribute before fit
            raise AttributeError(f"{type(self).__name__} has no {name} before it has learned; call fit or partial_fit.")

    @property
    def _is_empty(self) -> bool:
        return not self._knowledge.classes

    def _has_rows_of_another_width(self, rows: Tensor | None) -> bool:
        """Whether it had learned rows of another width, and all of that was undone or forgotten."""
        network = self._session.teacher.network
        if rows is None or network.picture_shape is not None or not self._is_empty or self._session.folder is not None:
            return False
        return network.n_features != rows.shape[1]

    @contextmanager
    def _as_before_if_it_fails(self) -> Iterator[None]:
        """A call that fails must not leave it begun, or begun anew."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _begin(self, network: Network) -> None:
        """Start with nothing known."""
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        self._session = Session(network, self._settings(int(seed)))
        self._begun_with = self.base, self.random_state

    def _network_for(self, rows: Tensor | None) -> Network:
        if rows is not None:
            return precomputed_features(rows.shape[1])
        if isinstance(self.base, Network):
            return self.base
        if not isinstance(self.base, str | PathLike):
            raise MisuseError(f"base is a name, a path or a Network, but it is {self.base!r}.")
        return load_base(Path(self.base))

    def _settings(self, seed: int) -> Settings:
        named = self.base if isinstance(self.base, str) and not Path(self.base).suffix else None
        try:
            return Settings(
                base=named,
                method=self.method,
                settings=dict(self.settings or {}),
                memory_bytes=self.memory_bytes,
                keep_states=self.keep_states,
                invert=self.invert,
                seed=seed,
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise MisuseError(f"{first['loc'][0]} cannot be {first['input']!r}: {first['msg']}.") from error

    def _check_settings(self) -> None:
        """Parameters that changed since it began to learn would be obeyed by halves."""
        begun = self._session.settings
        now = self._settings(begun.seed)
        for name, value, before in zip(
            ("base", "random_state"), (self.base, self.random_state), self._begun_with, strict=True
        ):
            if value is not before and value != before:
                raise MisuseError(
                    f"{name} changed since this classifier began to learn; fit a clone of it, or set it back."
                )
        changed = [name for name in Settings.model_fields if getattr(now, name) != getattr(begun, name)]
        if changed:
            raise MisuseError(
                f"{changed[0]} changed since this classifier began to learn; fit a clone of it, or set it back to "
                f"{getattr(begun, changed[0])!r}."
            )

    def _learn(self, call: CallName, X: Any, y: Any, rows: Tensor | None) -> Self:
        self._check_settings()
        if rows is not None:
            if self._session.teacher.network.picture_shape is not None:
                raise DataError("this classifier learns pictures, but these are rows of numbers. Use another one.")
            examples, sources = rows, ("",) * len(rows)
        else:
            if self._session.teacher.network.picture_shape is None:
                raise DataError("this classifier has learned rows of numbers, but these are pictures. Use another one.")
            if is_folder(X) and y is None:
                pictures, y = labelled_folder(Path(X), self._session.shape)
            else:
                pictures = as_pictures(X, self._session.shape)
            examples, sources = pictures.images, pictures.sources
        if y is None:
            raise DataError("the labels y are missing; only a folder with one sub-folder per class brings its own.")
        if not isinstance(y, Iterable) or isinstance(y, str):
            raise DataError(f"y holds a label for each example, but it is {y!r}. Give a list.")
        labels = tuple(plain_labels(column_or_1d(y) if isinstance(y, np.ndarray) else y))
        if len(labels) != len(examples) or not labels:
            raise DataError(f"there are {len(examples)} examples and {len(labels)} labels; each needs one of its own.")
        self._session.learn(Lesson(examples, labels, sources, call, _now()))
        return self

    def _examples(self, X: Any) -> Tensor:
        """What is asked about, as the learner takes it."""
        if self._session.teacher.network.picture_shape is None:
            return self._checked_rows(X)
        if not are_pictures(X):
            raise DataError(
                "this classifier has learned pictures, and X is none: give an array (n, h, w) or (n, h, w, c), a list of "
                "paths or Pillow images, or a folder."
            )
        return as_pictures(X, self._session.shape).images

    def _batch_of_one(self, image: Any) -> Any:
        if self._session.teacher.network.picture_shape is None:
            return np.asarray(image)[None]
        return [image]

    def _checked_rows(self, X: Any) -> Tensor:
        """Rows of numbers as scikit-learn checks them, in double precision, copied."""
        return torch.from_numpy(np.array(validate_data(self, X, reset=False, dtype=np.float64)))

    def _checked_lesson(self, X: Any, y: Any, *, reset: bool) -> tuple[Tensor, Any]:
        """Rows and labels as scikit-learn checks them."""
        checked, labels = validate_data(self, X, y, reset=reset, dtype=np.float64)
        check_classification_targets(labels)
        return torch.from_numpy(np.array(checked)), labels


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
