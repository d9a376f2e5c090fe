"""Asking in one thread while another teaches: never an exception, and every answer is that of a whole state."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fscl import ContinualClassifier
from fscl.classifier.calibrate import calibrate
from fscl.process import configure_process
from fscl.testing import POOL
from tests.classifier.models import classifier, examples

PROBE = POOL.images[:12, 0].numpy()


def lessons(model: ContinualClassifier) -> list[Callable[[], object]]:
    """Ten lessons with undone, renamed and forgotten ones among them; something is known at any time."""
    calls: list[Callable[[], object]] = [lambda n=n: model.partial_fit(*examples(n, n + 1, n=2)) for n in range(1, 11)]
    calls[2:2] = [model.undo, lambda: model.rename("class-1", "renamed")]
    calls[6:6] = [lambda: model.forget("renamed"), lambda: model.correct(POOL.of_class(0)[5, 0].numpy(), "class-0")]
    calls.append(lambda: model.fit(*examples(0, 3)))
    calls.append(model.undo)
    return calls


@pytest.mark.parametrize("where", ["in memory", "in a folder"])
def test_who_asks_while_another_teaches_has_whole_answers(where: str, tmp_path: Path):
    model = classifier("tsc").partial_fit(*examples(0, 12))
    if where == "in a folder":
        model.save(tmp_path / "model")
    whole = {_answer(model)}
    failures: list[BaseException] = []
    seen: set[tuple[int, bytes]] = set()
    shapes: set[int] = set()
    done = threading.Event()

    def ask(questions: Callable[[], None]) -> None:
        configure_process()
        try:
            while not done.is_set():
                questions()
        except BaseException as error:
            failures.append(error)

    def probabilities() -> None:
        seen.add(_answer(model))

    def other_questions() -> None:
        assert len(model.predict(PROBE)) == len(PROBE)
        answer = model.explain(PROBE[0])
        assert sum(chance for _, chance in answer.ranked) == pytest.approx(1)
        assert answer.nearest
        shapes.add(len(answer.ranked))
        shapes.add(len(model.classes_))
        model.about()

    threads = [threading.Thread(target=ask, args=(questions,)) for questions in (probabilities, other_questions)]
    for thread in threads:
        thread.start()
    try:
        for call in lessons(model):
            call()
            whole.add(_answer(model))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[0]
    assert seen <= whole
    assert shapes <= {count for count, _ in whole}
    assert len(seen) > 2, "the questions met hardly any state: they were asked too seldom"


def _answer(model: ContinualClassifier) -> tuple[int, bytes]:
    chances = model.predict_proba(PROBE)
    assert chances.sum(1) == pytest.approx(np.ones(len(PROBE)))
    return chances.shape[1], chances.tobytes()


def test_threads_that_teach_at_once_take_turns_and_lose_nothing():
    model = classifier().partial_fit(*examples(0))
    threads = [threading.Thread(target=model.partial_fit, args=examples(n)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(model.classes_) == 7
    assert [event.number for event in model.history_] == list(range(1, 8))


@pytest.mark.parametrize("call", ["fit", "learn", "forget"])
def test_who_asks_in_the_middle_of_a_call_is_answered_from_the_state_before(call: str, monkeypatch: pytest.MonkeyPatch):
    model = classifier().partial_fit(*examples(0, 1))
    before, answers = _answer(model), []
    calls = {
        "fit": lambda: model.fit(*examples(2, 3)),
        "learn": lambda: model.partial_fit(*examples(2)),
        "forget": lambda: model.forget("class-1"),
    }

    def ask_meanwhile(*arguments: Any, **named: Any) -> Any:
        calibration = calibrate(*arguments, **named)
        answers.append(_answer(model))
        return calibration

    monkeypatch.setattr("fscl.classifier.teacher.calibrate", ask_meanwhile)
    calls[call]()
    assert answers == [before]
    assert _answer(model) != before
