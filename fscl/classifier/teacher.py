"""What a call makes of a classifier's state: a new one. Whatever fails leaves the old one as it was."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from pydantic import ValidationError
from torch import Tensor

from fscl.classifier.calibrate import base_features, calibrate
from fscl.classifier.knowledge import Calibration, Event, Knowledge, Lesson
from fscl.classifier.labels import WORDS, Label, check_look, plain_labels
from fscl.classifier.settings import ClassifierSettings, first_fault
from fscl.continual.learner import ContinualLearner, LearnerState, renumbered
from fscl.continual.memory import ReplayMemory
from fscl.continual.registry import make_learner, method_for, with_changes
from fscl.data.pool import Examples
from fscl.errors import FsclError, MisuseError, StorageError, suggestion
from fscl.nets.network import Network

FORGED = "Restore the model from a copy."


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """One whole state of a classifier: what is known, and the learner that answers. Neither is changed any more.

    Attributes:
        make: makes the learner when it is first asked for, so that what is only read or taught on costs no learner.
        stored: the learner's state, as a folder holds it; None where the learner is there itself.
    """

    knowledge: Knowledge
    make: Callable[[], ContinualLearner]
    stored: LearnerState | None = None

    @cached_property
    def learner(self) -> ContinualLearner:
        """What answers. It must not be taught: `Teacher` teaches another that is restored from its state."""
        return self.make()

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The learner's numbers of the classes, in the order of their sorted labels."""
        classes = self.knowledge.classes
        return tuple(sorted(range(len(classes)), key=lambda i: classes[i]))

    @property
    def labels(self) -> list[Label]:
        """The labels, sorted."""
        return [self.knowledge.classes[i] for i in self.order]

    def learner_state(self) -> LearnerState | None:
        """What the learner has learned; None where nothing is known."""
        if not self.knowledge.classes:
            return None
        return self.learner.state() if self.stored is None else self.stored

    def learner_or_make(self) -> Callable[[], ContinualLearner]:
        """What makes the same learner, without making a second one where there is one."""
        return _Made(self.learner) if "learner" in vars(self) else self.make

    def __repr__(self) -> str:
        return f"<Snapshot of {self.knowledge!r}>"


@dataclass(frozen=True)
class Teacher:
    """How a classifier learns: a base, and its settings."""

    network: Network
    settings: ClassifierSettings

    def empty(self) -> Snapshot:
        """The state before anything was learned."""
        return self.snapshot(Knowledge(), None)

    def snapshot(self, knowledge: Knowledge, state: LearnerState | None) -> Snapshot:
        """A state that was stored."""
        return Snapshot(knowledge, _Restore(self, knowledge, state), state)

    def fresh(self, *, n_new: int = 0) -> ContinualLearner:
        """A learner that has learned nothing; one that can learn `n_new` examples at once."""
        given = self.settings
        method = method_for(given.method, self.network)
        own = method.settings_in_force().for_classifier(n_new=n_new, memory_bytes=given.memory_bytes)
        try:
            settings = with_changes(own, given.settings)
        except ValidationError as error:
            name, value, rule = first_fault(error)
            raise MisuseError(
                f"settings has {name} = {value!r}: {rule}. `fscl show {method.name}` lists them."
            ) from error
        return make_learner(method.name, self.network, seed=given.seed, settings=settings)

    def restored(self, snapshot: Snapshot, *, n_new: int = 0) -> ContinualLearner:
        """A learner restored from a state; changing it does not affect the state."""
        state, learner = snapshot.learner_state(), self.fresh(n_new=n_new)
        if state is not None:
            self._restore(learner, state, snapshot.knowledge)
        return learner

    def _restore(self, learner: ContinualLearner, state: LearnerState, knowledge: Knowledge) -> None:
        """A state that was read may have been forged: it must fit the learner, and give scores of the right classes."""
        # whole numbers stay whole; how precise the others are depends on what was learned
        whole = {name: not tensor.is_floating_point() for name, tensor in learner.state().tensors.items()}
        for name, tensor in state.tensors.items():
            if name in whole and whole[name] == tensor.is_floating_point():
                raise StorageError(
                    f"{name!r} of {self.settings.method} should hold {'whole ' if whole[name] else ''}numbers, but holds "
                    f"{tensor.dtype}. {FORGED}"
                )
        try:
            learner.restore(state)
            scores = _one_answer(learner, knowledge)
        except FsclError:
            raise
        except Exception as error:  # what a learner raises on tensors of the wrong shape
            raise StorageError(
                f"{self.settings.method} cannot use the state that is stored ({error}). {FORGED}"
            ) from error
        if scores.shape[1:] != (len(knowledge.classes),) or not bool(torch.isfinite(scores.amax(1)).all()):
            raise StorageError(
                f"the state that is stored for {self.settings.method} does not fit its classes. {FORGED}"
            )

    def learned(self, before: Snapshot, lesson: Lesson) -> Snapshot:
        """With a lesson learned."""
        if lesson.call == "fit":
            before = self.snapshot(Knowledge(history=before.knowledge.history), None)
        known = before.knowledge.classes
        plain_labels(lesson.labels, known)
        taught = dict.fromkeys(lesson.labels)
        classes = (*known, *(label for label in taught if label not in known))
        check_look(classes)
        number = {label: position for position, label in enumerate(classes)}
        support = Examples(lesson.examples, torch.tensor([number[label] for label in lesson.labels]))
        learner = self.restored(before, n_new=len(support))
        learner.learn_task(support)
        after = self._storing(replace(before.knowledge, classes=classes), support, lesson.sources, learner)
        new, old = classes[len(known) :], tuple(label for label in taught if label in known)
        return self._taught(after, learner, lesson, new=new, known=old)

    def forgotten(self, before: Snapshot, label: Label, *, when: str) -> Snapshot:
        """Without a class: no example of it, no row and no sum is left."""
        gone, was = position_of(before.knowledge, label), before.knowledge
        lesson = Lesson(torch.zeros(0), (), (), "forget", when)
        if was.classes == (label,):
            return self.snapshot(_recorded(Knowledge(history=was.history), lesson, known=(label,)), None)
        learner = self.restored(before)
        if learner.without_class(gone):
            remembered = learner.remembered()  # the same examples as those below; from now on these very ones
            after = _without(was, gone, None if remembered is None else remembered.examples)
        else:
            learner, after = self._taught_again(_without(was, gone), before.learner_state())
        return self._taught(after, learner, lesson, known=(label,))

    def renamed(self, before: Snapshot, old: Label, new: Label, *, when: str) -> Snapshot:
        """With a class under another name."""
        was = before.knowledge
        position = position_of(was, old)
        (new,) = plain_labels([new], was.classes)
        if new in was.classes:
            raise MisuseError(f"there is a class {new!r} already; forget one of the two, or choose another name.")
        classes = (*was.classes[:position], new, *was.classes[position + 1 :])
        check_look(classes)
        lesson = Lesson(torch.zeros(0), (), (), "rename", when)
        after = _recorded(replace(was, classes=classes), lesson, new=(new,), known=(old,))
        return Snapshot(after, before.learner_or_make(), before.stored)  # a learner knows no names: it is the same one

    def taught_anew(
        self,
        after: Knowledge,
        before: Snapshot,
        lesson: Lesson,
        *,
        new: tuple[Label, ...] = (),
        known: tuple[Label, ...] = (),
    ) -> Snapshot:
        """The state of a learner that learns the stored examples of `after` again, and nothing else.

        Args:
            after: what shall be stored; its features need not fit.
            before: the state of now; what its learner has computed of the examples is not computed again.
            lesson: the call, for the history.
            new, known: the classes that the history names.
        """
        learner, after = self._taught_again(after, before.learner_state())
        return self._taught(after, learner, lesson, new=new, known=known)

    def _taught_again(self, after: Knowledge, earlier: LearnerState | None) -> tuple[ContinualLearner, Knowledge]:
        """A learner that has learned the stored examples, and nothing else."""
        rest = after.examples
        if rest is None or len(torch.unique(rest.labels)) < len(after.classes):
            raise MisuseError(
                f"{self.settings.method} has to learn the stored examples again for this, but memory_bytes left no "
                "example of some classes. Raise memory_bytes before teaching, or use prototypes."
            )
        learner = self.fresh(n_new=len(rest))
        if earlier is not None:
            learner.reuse(earlier)
        learner.learn_task(rest)
        nothing = Knowledge(classes=after.classes, history=after.history)
        return learner, self._storing(nothing, rest, after.sources, learner)

    def _storing(
        self, before: Knowledge, support: Examples, sources: tuple[str, ...], learner: ContinualLearner
    ) -> Knowledge:
        """With the stored examples after one more lesson, and the learner's features of them.

        They are those that the learner replays; where it replays none, as many of each class as the bound allows.
        """
        remembered = learner.remembered()
        if remembered is not None:
            if not before.replayed:
                before = replace(before, examples=None, sources=())
            examples, kept = remembered.examples, remembered.kept
        else:
            memory = ReplayMemory(n_bytes=self.settings.memory_bytes)
            memory.hold(before.examples)
            kept = memory.add(support)
            if memory.stored is None:
                nothing = torch.zeros(0, self.network.n_features)
                return replace(
                    before, examples=None, replayed=False, sources=(), features=nothing, base_features=nothing
                )
            examples = memory.stored
        after = replace(
            before,
            examples=examples,
            replayed=remembered is not None,
            sources=tuple((*before.sources, *sources)[i] for i in kept.tolist()),
        )
        self._check_bound(after)
        if remembered is not None and remembered.features is not None and remembered.base_features is not None:
            return replace(after, features=remembered.features, base_features=remembered.base_features)
        new = learner.features(support.images)
        if new is support.images:  # rows are their own features
            return replace(after, features=examples.images, base_features=examples.images)
        standing = base_features(self.network, learner, support.images, new)
        if before.examples is not None:
            standing = torch.cat([before.base_features, standing])
        standing = standing[kept]
        if not learner.moves_embedding:
            return replace(after, features=standing, base_features=standing)
        return replace(after, features=learner.features(examples.images), base_features=standing)

    def _check_bound(self, after: Knowledge) -> None:
        bound = self.settings.memory_bytes
        if bound is not None and after.n_bytes > bound:
            raise MisuseError(
                f"memory_bytes is {bound:,}, but with these settings {self.settings.method} stores {after.n_bytes:,} bytes "
                "of examples. Leave memory out of settings, or give it a bound."
            )

    def _taught(
        self,
        after: Knowledge,
        learner: ContinualLearner,
        lesson: Lesson,
        *,
        new: tuple[Label, ...] = (),
        known: tuple[Label, ...] = (),
    ) -> Snapshot:
        """The state that a learner leaves, calibrated."""
        calibration = Calibration(per_class=(None,) * learner.n_classes)
        unknown = None
        if after.examples is not None:
            calibration, unknown = calibrate(learner, after.features, after.base_features, after.examples)
        after = replace(after, calibration=calibration).with_unknown(None if unknown is None else unknown.tensors)
        after = _recorded(after, lesson, new=new, known=known)
        return Snapshot(after, _Made(learner))


@dataclass(frozen=True, eq=False)
class _Restore:
    """Makes the learner of a stored state."""

    teacher: Teacher
    knowledge: Knowledge
    state: LearnerState | None

    def __call__(self) -> ContinualLearner:
        return self.teacher.restored(Snapshot(self.knowledge, self, self.state))


@dataclass(frozen=True, eq=False)
class _Made:
    """A learner that is there already."""

    learner: ContinualLearner

    def __call__(self) -> ContinualLearner:
        return self.learner


def _one_answer(learner: ContinualLearner, knowledge: Knowledge) -> Tensor:
    """Scores of a stored example, if there is one: all the way from the picture where the embedding was learned, too."""
    if len(knowledge.features) == 0 or knowledge.examples is None:
        return torch.zeros(0, learner.n_classes)
    if learner.moves_embedding:
        return learner.scores(learner.features(knowledge.examples.images[:1]))
    return learner.scores(knowledge.features[:1])


def position_of(knowledge: Knowledge, label: object) -> int:
    """The number of a class, or an error with the nearest name."""
    if label not in knowledge.classes:
        names = [str(each) for each in knowledge.classes]
        shown = ", ".join(names[:10]) + (f", … ({len(names)} in all)" if len(names) > 10 else "")
        kind = f" Labels here are {WORDS[type(knowledge.classes[0])]}." if knowledge.classes else ""
        raise MisuseError(
            f"no class {label!r} was learned.{suggestion(str(label), names)}{kind} Known: {shown or 'none'}."
        )
    return knowledge.classes.index(label)


def _without(knowledge: Knowledge, gone: int, left: Examples | None = None) -> Knowledge:
    """Without a class and its stored examples; classes above it move down by one. `left` are the others, if at hand."""
    classes = (*knowledge.classes[:gone], *knowledge.classes[gone + 1 :])
    if knowledge.examples is None:
        return replace(knowledge, classes=classes)
    images, stay = knowledge.examples.images, knowledge.examples.labels != gone
    if not bool(stay.any()):
        return Knowledge(classes, history=knowledge.history)
    if left is None:
        left = Examples(images[stay], renumbered(knowledge.examples.labels[stay], gone))
    standing = left.images if knowledge.base_features is images else knowledge.base_features[stay]
    return replace(
        knowledge,
        classes=classes,
        examples=left,
        sources=tuple(source for source, stays in zip(knowledge.sources, stay.tolist(), strict=True) if stays),
        features=standing if knowledge.features is knowledge.base_features else knowledge.features[stay],
        base_features=standing,
    )


def _recorded(
    after: Knowledge, lesson: Lesson, *, new: tuple[Label, ...] = (), known: tuple[Label, ...] = ()
) -> Knowledge:
    """With one more line of history."""
    event = Event(
        number=after.history[-1].number + 1 if after.history else 1,
        call=lesson.call,
        when=lesson.when,
        new=new,
        known=known,
        n_examples=len(lesson.labels),
        n_classes=len(after.classes),
        accuracy=after.calibration.accuracy,
        lesson=lesson.id,
    )
    return replace(after, history=(*after.history, event))
