"""What a call makes of a classifier's knowledge: a new one. Whatever fails leaves the old one as it was."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from pydantic import ValidationError

from fscl.classifier.judging import fair_features, features_of, judge, moves
from fscl.classifier.knowledge import Event, Judgement, Knowledge, Lesson
from fscl.classifier.labels import WORDS, Label, plain_labels
from fscl.continual.forgetting import renumbered, state_without
from fscl.continual.frozen import FrozenFeatures
from fscl.continual.learner import ContinualLearner
from fscl.continual.memory import ReplayMemory
from fscl.continual.methods import find_method, make_learner
from fscl.data.pool import Examples
from fscl.errors import MisuseError, suggestion
from fscl.nets.network import Network

# 11 views of every picture would cost 11 times the bare network at every prediction, and steps over all stored examples
# would cost the more the more is known (docs/decisions/0007)
QUICK = {"views": 1}
STILL: dict[str, Any] = {
    "embedding_steps": 0,
    "regulariser": "none",
    "accumulate": "sum",
    "views": 1,
    "jitter": 0.0,
    "mirror": False,
    "memory": "shots",
    "start": "base",
}
BATCH = 128  # examples in a step, where the lesson itself is not larger


@dataclass(frozen=True)
class Teacher:
    """How a classifier learns: a base, a method with its settings, a seed, and a bound on what is stored.

    Attributes:
        memory_bytes: of stored examples at most; None for no bound.
    """

    network: Network
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    memory_bytes: int | None = None

    def fresh(self, *, n_new: int = 0) -> ContinualLearner:
        """A learner that has learned nothing; one that can learn `n_new` examples at once."""
        if find_method(self.method).settings is None:
            return make_learner(self.method, self.network, seed=self.seed, settings=dict(self.settings) or None)
        bound = {} if self.memory_bytes is None else {"memory_bytes": self.memory_bytes}
        still = STILL if self.network.picture_shape is None else {}
        quick = {**QUICK, "batch_size": max(BATCH, n_new)}  # room for all of the lesson
        settings = {**quick, **bound, **self.settings, **still}
        try:
            return make_learner(self.method, self.network, seed=self.seed, settings=settings)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise MisuseError(
                f"settings has {where} = {first['input']!r}: {first['msg']}. `fscl show {self.method}` lists them."
            ) from error

    def learner(self, knowledge: Knowledge, *, n_new: int = 0) -> ContinualLearner:
        """A learner that knows what is known; it may be changed, the knowledge stays."""
        learner = self.fresh(n_new=n_new)
        if knowledge.learner is not None:
            learner.restore(knowledge.learner)
        return learner

    def learned(self, before: Knowledge, lesson: Lesson) -> Knowledge:
        """Knowledge with a lesson learned."""
        if lesson.call == "fit":
            before = Knowledge(history=before.history)
        plain_labels(lesson.labels, before.classes)
        new = [label for label in dict.fromkeys(lesson.labels) if label not in before.classes]
        classes = (*before.classes, *new)
        number = {label: position for position, label in enumerate(classes)}
        support = Examples(lesson.examples, torch.tensor([number[label] for label in lesson.labels]))
        learner = self.learner(before, n_new=len(support))
        learner.learn_task(support)
        known = tuple(label for label in dict.fromkeys(lesson.labels) if label not in new)
        after = self._remembering(before, support, lesson.sources, learner)
        after = replace(after, classes=classes, learner=learner.state(), judgement=self._judged(learner, after))
        return _recorded(after, lesson, new=tuple(new), known=known)

    def forgotten(self, before: Knowledge, label: Label, *, when: str) -> Knowledge:
        """Knowledge without a class: no example of it, no row and no sum is left."""
        gone = position_of(before, label)
        classes = tuple(each for each in before.classes if each != label)
        lesson = Lesson(torch.zeros(0), (), (), "forget", when)
        if not classes:
            return _recorded(Knowledge(history=before.history), lesson, known=(label,))
        shots, sources, features, fair = before.shots, before.sources, before.features, before.fair
        if shots is not None:
            stay = shots.labels != gone
            sources = tuple(source for source, kept in zip(sources, stay.tolist(), strict=True) if kept)
            features, fair = features[stay], fair[stay]
            shots = Examples(shots.images[stay], renumbered(shots.labels[stay], gone)) if bool(stay.any()) else None
        learner = self._without(before, gone, shots, n_left=len(classes))
        after = replace(before, classes=classes, shots=shots, sources=sources, features=features, fair=fair)
        after = replace(after, learner=learner.state(), judgement=self._judged(learner, after))
        return _recorded(after, lesson, known=(label,))

    def renamed(self, before: Knowledge, old: Label, new: Label, *, when: str) -> Knowledge:
        """Knowledge with a class under another name."""
        position = position_of(before, old)
        (new,) = plain_labels([new], before.classes)
        if new in before.classes:
            raise MisuseError(f"there is a class {new!r} already; forget one of the two, or choose another name.")
        classes = (*before.classes[:position], new, *before.classes[position + 1 :])
        lesson = Lesson(torch.zeros(0), (), (), "rename", when)
        return _recorded(replace(before, classes=classes), lesson, new=(new,), known=(old,))

    def _without(self, before: Knowledge, gone: int, rest: Examples | None, *, n_left: int) -> ContinualLearner:
        if before.learner is None:
            return self.fresh()
        state = state_without(before.learner, gone)
        learner = self.fresh()
        if state is not None:
            learner.restore(state)
            return learner
        if rest is None or len(torch.unique(rest.labels)) < n_left:
            raise MisuseError(
                f"{self.method} has to learn the other classes again to forget one, but memory_bytes left no example of "
                "some of them. Raise memory_bytes before teaching, or use prototypes."
            )
        learner.learn_task(rest)
        return learner

    def _remembering(
        self, before: Knowledge, support: Examples, sources: tuple[str, ...], learner: ContinualLearner
    ) -> Knowledge:
        """The stored examples with those of one more lesson, within the bound, and what the learner sees in them now."""
        memory = ReplayMemory(n_bytes=self.memory_bytes)
        memory.stored = before.shots
        kept = memory.add(support)
        shots = memory.stored
        if shots is None:
            nothing = torch.zeros(0, self.network.n_features)
            return replace(before, sources=(), features=nothing, fair=nothing)
        everything = (*before.sources, *sources)
        if isinstance(learner, FrozenFeatures) and before.shots is not None:
            features = torch.cat([before.features, features_of(learner, support.images)])[kept]
        else:
            features = features_of(learner, shots.images)
        fair = features
        if moves(learner):
            new = fair_features(self.network, learner, support.images, features_of(learner, support.images))
            fair = new[kept] if before.shots is None else torch.cat([before.fair, new])[kept]
        sources = tuple(everything[i] for i in kept.tolist())
        return replace(before, shots=shots, sources=sources, features=features, fair=fair)

    def _judged(self, learner: ContinualLearner, knowledge: Knowledge) -> Judgement:
        if knowledge.shots is None:
            return Judgement(per_class=(None,) * learner.n_classes)
        return judge(learner, self.fresh, knowledge.features, knowledge.fair, knowledge.shots.labels)


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
        accuracy=after.judgement.accuracy,
    )
    return replace(after, history=(*after.history, event))
