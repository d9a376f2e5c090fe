"""A classifier that goes on learning, as a scikit-learn estimator. "Teach it your own classes" in docs/ shows it in use.

What it does is elsewhere: `fscl/classifier/model.py` teaches and keeps, `asking.py` answers. Here are the calls that change
a classifier, scikit-learn's conventions, and the checks of what is given.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import TransformerTags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from fscl.classifier.asking import Asking, batch_of_one, bounded, numbers_of
from fscl.classifier.base_choice import default_base
from fscl.classifier.changes import check_known, merged, moved, removed
from fscl.classifier.inputs import are_pictures, checked_labels, taught_pictures, with_labels
from fscl.classifier.knowledge import CallName, Lesson
from fscl.classifier.labels import plain_labels
from fscl.classifier.model import Change, Model
from fscl.classifier.reteach import stored_lesson
from fscl.classifier.settings import ClassifierSettings
from fscl.classifier.store.creating import check_free
from fscl.classifier.store.lock import TIMEOUT
from fscl.classifier.teacher import Teacher
from fscl.classifier.trial import Trial, on_trial
from fscl.data.pictures import as_array
from fscl.errors import DataError, MisuseError
from fscl.meta.shipped import load_base
from fscl.nets.network import Network
from fscl.nets.precomputed import precomputed_features

if TYPE_CHECKING:
    from fscl.classifier.export import Exported


class ContinualClassifier(Asking):
    """Learns new classes at any time, and more examples of known ones, from a few pictures each.

    X is an array of pictures, a list of paths or Pillow images, or a folder (fscl/classifier/inputs.py); or rows of
    numbers, which are taken as features and learned as they are, without the base. y is any labels of one kind; a folder
    brings its own, the names of its sub-folders.

    A classifier that was saved or loaded has a folder, and every call that changes it is a transaction there.

    Examples:
        >>> model = ContinualClassifier(method="prototypes").partial_fit([[0.0], [1.0]], ["low", "high"])
        >>> model.partial_fit([[9.0]], ["top"]).predict([[8.0]]).tolist()
        ['top']

    Args:
        base: a base that comes with the package by name, a path to one, or a `Network`; None for features of photographs
            where `fscl[photos]` is installed. Rows of numbers need none.
        method: a name from `fscl methods`, or `package.module:Class`.
        settings: settings of the method other than its own, such as {"memory": {"kind": "bounded", "per_class": 3}};
            `fscl show METHOD` lists them.
        memory_bytes: bound on the stored examples; None for none. Each class keeps as many as fit.
        keep_states: how many earlier states `undo` can go back to; None for all.
        invert: exchange light and dark; the shipped bases know light ink on a dark ground.
        originals: whether a model in a folder keeps what it is taught as it was given, at most 512 pixels a side, so that
            `reteach` can change the base later.
        random_state: the seed.
    """

    _begun_with: tuple[Any, Any]

    def __init__(
        self,
        base: str | PathLike[str] | Network | None = None,
        method: str = "tsc",
        *,
        settings: Mapping[str, Any] | None = None,
        memory_bytes: int | None = None,
        keep_states: int | None = None,
        invert: bool = False,
        originals: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.base = base
        self.method = method
        self.settings = settings
        self.memory_bytes = memory_bytes
        self.keep_states = keep_states
        self.invert = invert
        self.originals = originals
        self.random_state = random_state

    # learning

    def fit(self, X: Any, y: Iterable[Any] | None = None) -> Self:
        """Learn from nothing; `undo` brings back what was known before, unless parameters changed meanwhile."""
        X, y = with_labels(X, y)
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
        X, y = with_labels(X, y)
        model = vars(self).get("_model")
        first = model is None or not model.snapshot.knowledge.classes
        rows, y = (None, y) if are_pictures(X) else self._checked_lesson(X, y, reset=first)
        if model is None or model.has_only_rows_of_another_width(rows):
            model = self._new_model(rows)
        self._learn(model, "learn", X, y, rows)
        return self._use(model)

    def fit_transform(self, X: Any, y: Iterable[Any] | None = None) -> NDArray[Any]:
        """Learn from nothing, and the features of X."""
        return self.fit(X, y).transform(X)

    def correct(self, image: Any, label: Any, *, new: bool = False) -> Self:
        """Teach one example that was misread.

        Args:
            image: a path, a Pillow image, an array, or a row.
            label: what it is; a class that is known, unless `new`.
            new: whether a label that is not known makes a class, instead of being refused as misspelt.
        """
        self._begun("correct").refresh()  # the class may be one that another process has brought
        model, snapshot = self._taught()
        check_known(snapshot.knowledge, plain_labels([label], snapshot.knowledge.classes)[0], new=new)
        batch, y = batch_of_one(model, image), [label]
        rows = self._checked_rows(batch) if model.has_rows else None
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

    def merge(self, label: Any, into: Any) -> Self:
        """Give all stored examples of a class to another one, and have one class less; `undo` parts them again."""
        was, becomes = plain_labels([label])[0], plain_labels([into])[0]
        return self._change(lambda teacher, before: merged(teacher, before, was, becomes, when=_now()))

    def remove(self, example: int | str) -> Self:
        """Take one stored example out, by its number in `examples_` or by where it came from; `undo` brings it back."""
        return self._change(lambda teacher, before: removed(teacher, before, example, when=_now()))

    def move(self, example: int | str, label: Any, *, new: bool = False) -> Self:
        """Give one stored example to another class.

        Args:
            example: its number in `examples_`, or where it came from.
            label: of the class; one that is known, unless `new`.
            new: whether a label that is not known makes a class.
        """
        (plain,) = plain_labels([label])
        return self._change(lambda teacher, before: moved(teacher, before, example, plain, new=new, when=_now()))

    def dry_run(self, X: Any, y: Iterable[Any] | None = None) -> Trial:
        """What `partial_fit` would do to the estimated accuracy of each class; nothing is learned or written."""
        X, y = with_labels(X, y)
        model = vars(self).get("_model")
        rows, y = (None, y) if are_pictures(X) else self._checked_lesson(X, y, reset=model is None)
        if model is None:
            model = self._new_model(rows)
        return on_trial(model.teacher, model.snapshot, self._lesson(model, "learn", X, y, rows))

    def undo(self, n_calls: int = 1) -> Self:
        """Go back to the state before the last call, or before the last `n_calls`, bit for bit."""
        self._begun("undo").undo(n_calls)
        return self

    def redo(self, n_calls: int = 1) -> Self:
        """Bring back the last call that was undone, or the last `n_calls`, unless something changed since."""
        self._begun("redo").redo(n_calls)
        return self

    def refresh(self) -> bool:
        """See what another process has changed in the folder; whether there was something."""
        return self._begun("refresh").refresh()

    # keeping

    def save(self, folder: str | PathLike[str], *, timeout: float = TIMEOUT) -> Self:
        """Write the model as a new folder; from then on every change is a transaction there.

        Args:
            folder: a new one.
            timeout: seconds that a change waits there while another process changes the model.
        """
        model = vars(self).get("_model") or self._new_model(None)
        model.save(_path(folder), timeout=timeout)
        return self._use(model)

    @classmethod
    def load(cls, folder: str | PathLike[str], *, timeout: float = TIMEOUT) -> Self:
        """The model in a folder, which its changes go to; a call that was cut short is completed with the next change.

        Args:
            folder: of a model.
            timeout: seconds that a change waits there while another process changes the model.
        """
        model = Model.load(_path(folder), timeout=timeout)
        parameters = model.settings.model_dump(exclude={"base", "settings", "seed"})
        classifier = cls(
            base=model.settings.base or (None if model.has_rows else str(Path(folder) / "base.safetensors")),
            settings=model.settings.settings or None,
            random_state=model.settings.seed,
            **parameters,
        )
        return classifier._use(model)

    def reteach(
        self,
        folder: str | PathLike[str],
        *,
        base: str | PathLike[str] | Network | None = None,
        method: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Teach everything that is stored to a new model in a new folder; this one stays as it is.

        Args:
            folder: a new one.
            base: of the new model; the same unless given.
            method: of the new model; the same unless given.
            settings: of the method; the same unless given, or its own where the method is another.
        """
        model, _ = self._taught()
        check_free(Path(folder))  # before the work
        parameters = self.get_params(deep=False)
        if base is None:
            base = self.base if _name_of(self.base) is not None else model.network
        parameters |= {"base": base, "random_state": model.settings.seed}
        if settings is not None or method not in (None, self.method):
            parameters["settings"] = settings
        parameters["method"] = method or self.method
        again = type(self)(**parameters)
        rows = torch.zeros(0, model.network.n_features) if model.has_rows else None
        new = again._new_model(rows)
        lesson, originals = stored_lesson(model, new.shape, when=_now())
        new.learn(lesson)
        new.save(Path(folder), originals=originals)
        return again._use(new)

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
        tags.transformer_tags = TransformerTags(preserves_dtype=[])  # features of rows are in double precision
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        model = vars(self).get("_model")
        return model is not None and bool(model.snapshot.knowledge.classes)

    def _use(self, model: Model) -> Self:
        self._begun_with = self.base, self.random_state
        self._model = model  # one assignment: who asks meanwhile has the old one or the new one
        return self

    def _new_model(self, rows: Tensor | None) -> Model:
        """A model with nothing known; it is used once it has learned something."""
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        base = default_base() if self.base is None and rows is None else self.base
        settings = self._settings(int(seed), _name_of(base))
        return Model(Teacher(_network_for(base, rows), settings))

    def _settings(self, seed: int, base: str | None) -> ClassifierSettings:
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name != "random_state"}
        return ClassifierSettings.checked(
            **{**parameters, "base": base, "settings": {} if self.settings is None else self.settings, "seed": seed}
        )

    def _check_unchanged(self, model: Model) -> None:
        """Parameters that changed since it began to learn would be obeyed by halves."""
        for name, before in zip(("base", "random_state"), self._begun_with, strict=True):
            value = getattr(self, name)
            if value is not before and value != before:
                raise MisuseError(
                    f"{name} changed since this classifier began to learn; fit a clone of it, or set it back."
                )
        begun = model.settings
        now = self._settings(begun.seed, begun.base if self.base is None else _name_of(self.base))
        changed = [name for name in ClassifierSettings.model_fields if getattr(now, name) != getattr(begun, name)]
        if changed:
            raise MisuseError(
                f"{changed[0]} changed since this classifier began to learn; fit a clone of it, or set it back to "
                f"{getattr(begun, changed[0])!r}."
            )

    def _learn(self, model: Model, call: CallName, X: Any, y: Any, rows: Tensor | None) -> None:
        model.learn(self._lesson(model, call, X, y, rows))

    def _lesson(self, model: Model, call: CallName, X: Any, y: Any, rows: Tensor | None) -> Lesson:
        if model is vars(self).get("_model"):
            self._check_unchanged(model)
        of_pictures = model.network.picture_shape is not None
        if rows is not None and of_pictures:
            raise DataError("this classifier learns pictures, but these are rows of numbers. Use another one.")
        if rows is None and not of_pictures:
            raise DataError("this classifier has learned rows of numbers, but these are pictures. Use another one.")
        if rows is not None:
            return Lesson(rows, checked_labels(y, len(rows)), ("",) * len(rows), call, _now())
        pictures, labels = taught_pictures(X, y, model.shape, originals=model.keeps_originals)
        kept = pictures.originals if model.keeps_originals else ()
        return Lesson(pictures.images, labels, pictures.sources, call, _now(), kept)

    def _change(self, made: Change, *, final: bool = False) -> Self:
        model, _ = self._taught()
        self._check_unchanged(model)
        model.change(made, final=final)
        return self

    def _checked_lesson(self, X: Any, y: Any, *, reset: bool) -> tuple[Tensor, Any]:
        """Rows and labels as scikit-learn checks them."""
        y = as_array(y, "y") if isinstance(y, Tensor) else y
        with numbers_of(X) as rows:
            checked, labels = validate_data(self, rows, y, reset=reset, dtype=np.float64)
        check_classification_targets(labels)
        return bounded(np.array(checked)), labels


def _name_of(base: object) -> str | None:
    """The name of a base that comes with the package; None for one of the user's own."""
    return base if isinstance(base, str) and not Path(base).suffix else None


def _network_for(base: object, rows: Tensor | None) -> Network:
    if rows is not None:
        return precomputed_features(rows.shape[1])
    if isinstance(base, Network):
        return base
    if not isinstance(base, str | PathLike):
        raise MisuseError(f"base is a name, a path or a Network, but it is {base!r}.")
    return load_base(Path(base))


def _path(folder: object) -> Path:
    if not isinstance(folder, str | PathLike) or "\0" in str(folder):
        raise MisuseError(f"the folder of a model is a path, but this is {folder!r:.80}.")
    return Path(folder)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
