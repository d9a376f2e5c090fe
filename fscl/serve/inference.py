"""One thread that answers: it takes all that waits, up to 64 pictures, without a timer.

Under load many questions are one pass through the network; a lone question never waits for company. Each batch is answered
from one state, which is read once.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fscl.classifier.explain import Explanation, explain
from fscl.process import configure_process
from fscl.serve.present import Present
from fscl.serve.refusals import Refusal

MAX_BATCH = 64  # pictures
MAX_WAITING = 1024

Answered = tuple[Present, list[Explanation]]
Asked = Tensor | Callable[[Present], Tensor]


@dataclass(eq=False)
class Question:
    """Pictures as the base takes them, or one that is yet to be read, and where the answer goes."""

    asked: Asked
    n_nearest: int
    present: Present | None
    answer: "Future[Answered]" = field(default_factory=Future)

    @property
    def n(self) -> int:
        """How many pictures."""
        return len(self.asked) if isinstance(self.asked, Tensor) else 1

    def images(self, present: Present) -> Tensor:
        """The pictures, as the base of that state takes them."""
        return self.asked if isinstance(self.asked, Tensor) else self.asked(present)


class Inference:
    """Answers from what `present` returns at that moment, unless a question names its state."""

    def __init__(self, present: Callable[[], Present]) -> None:
        self._present = present
        self._waiting: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.n_waiting = 0
        self.n_answered = 0
        self.n_batches = 0
        self._thread = threading.Thread(target=self._run, name="fscl-inference", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, then end."""
        self._waiting.put(None)
        self._thread.join(timeout=10)

    def ask(self, asked: Asked, *, n_nearest: int = 3, present: Present | None = None) -> "Future[Answered]":
        """Ask about at most 64 pictures; the answer comes with the state that it is from.

        Args:
            asked: pictures as the base takes them; or what reads one small picture, which is then done by the thread that
                answers: what is quickly read need not go through another thread first, and more wait for one pass.
            n_nearest: stored examples with each answer.
            present: a state to answer from; that of the moment unless given.
        """
        question = Question(asked, n_nearest, present)
        if question.n > MAX_BATCH:
            raise ValueError(f"{question.n} pictures in one question; at most {MAX_BATCH}")
        with self._lock:
            if self.n_waiting + question.n > MAX_WAITING:
                raise Refusal("busy", "too many questions are waiting; ask again in a second.", {"Retry-After": "1"})
            self.n_waiting += question.n
        self._waiting.put(question)
        return question.answer

    def _run(self) -> None:
        configure_process()
        left: deque[Question] = deque()
        while True:
            if not left:
                first = self._waiting.get()
                if first is None:
                    return
                left.append(first)
            batch, stopping = self._taken(left)
            with self._lock:
                self.n_waiting -= sum(each.n for each in batch)
                self.n_batches += 1
                self.n_answered += sum(each.n for each in batch)
            self._answer(batch)
            if stopping:
                return

    def _taken(self, left: deque[Question]) -> tuple[list[Question], bool]:
        """As many questions of what waits as fit one batch, in order."""
        batch: list[Question] = []
        n = 0
        while True:
            if not left:
                try:
                    following = self._waiting.get_nowait()
                except queue.Empty:
                    return batch, False
                if following is None:
                    return batch, True
                left.append(following)
            if n + left[0].n > MAX_BATCH:
                return batch, False
            n += left[0].n
            batch.append(left.popleft())

    def _answer(self, batch: list[Question]) -> None:
        groups: dict[int, tuple[Present, list[Read]]] = {}
        now: Present | None = None
        for question in batch:
            if not question.answer.set_running_or_notify_cancel():
                continue
            try:
                now = now or self._present()
                present = question.present or now
                images = question.images(present)
            except Exception as error:  # whoever asked hears of it, and the thread lives on
                question.answer.set_exception(error)
                continue
            groups.setdefault(id(present), (present, []))[1].append((question, images))
        for present, questions in groups.values():
            try:
                answer_together(present, questions)
            except BaseException as error:  # the thread outlives whatever happens to one batch
                for question, _ in questions:
                    if not question.answer.done():
                        question.answer.set_exception(error)


Read = tuple[Question, Tensor]


def answer_together(present: Present, questions: list[Read]) -> None:
    """One pass through the network for all of them."""
    if not present.knowledge.classes:
        raise Refusal("untaught", "nothing is learned yet; teach a class first.")
    n_nearest = max(question.n_nearest for question, _ in questions)
    together = torch.cat([images for _, images in questions])
    found = explain(present.model.network, present.snapshot, together, n_nearest=n_nearest)
    start = 0
    for question, images in questions:
        end = start + len(images)
        question.answer.set_result((present, found[start:end]))
        start = end
