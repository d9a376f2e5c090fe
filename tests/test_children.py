"""The helper that starts processes for other tests: failures show all there is to know, nothing is left behind."""

import os
import signal
import sys
import time

import pytest

from tests.children import run_child, started_child


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_child_that_fails_shows_its_command_its_code_and_both_streams():
    code = "import sys; print('as far as here'); sys.exit('the reason')"
    with pytest.raises(AssertionError) as raised:
        run_child(python(code))
    message = str(raised.value)
    assert "exited with 1, not 0" in message
    assert code in message
    assert "--- its stdout\nas far as here" in message
    assert "--- its stderr\nthe reason" in message


def test_a_child_that_exits_as_expected_hands_over_what_it_wrote():
    ended = run_child(python("import sys; print('yes'); print('no', file=sys.stderr); sys.exit(3)"), expect=3)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "yes\n", "no\n")


def test_a_child_that_takes_too_long_is_killed_and_shows_what_it_wrote():
    with pytest.raises(AssertionError, match=r"still ran after 2 s.*\n.*\n.*\n--- its stderr\nat work"):
        run_child(python("import sys, time; print('at work', file=sys.stderr, flush=True); time.sleep(60)"), timeout=2)


def test_a_child_that_ends_before_the_awaited_event_shows_its_stderr():
    with (
        started_child(python("raise SystemExit('too few files')")) as child,
        pytest.raises(AssertionError, match=r"ended too early[\s\S]*--- its stderr\ntoo few files"),
    ):
        child.wait_until(lambda: False)


def test_a_failed_assertion_about_a_child_at_work_shows_its_stderr():
    def look_at_one() -> None:
        with started_child(python("import sys; sys.exit('of the child')")) as child:
            assert child.process.wait() == 7

    with pytest.raises(AssertionError) as raised:
        look_at_one()
    assert "--- its stderr\nof the child" in raised.value.__notes__[0]


def test_neither_a_child_nor_its_children_outlive_the_block():
    inner = "import time; time.sleep(60)"
    code = (
        f"import subprocess, sys, time; one = subprocess.Popen([sys.executable, '-c', {inner!r}]); "
        "print(one.pid, flush=True); time.sleep(60)"
    )
    with started_child(python(code)) as child:
        child.wait_until(lambda: "\n" in child.written()[0])
        grandchild = int(child.written()[0])
        assert is_running(grandchild)
    deadline = time.monotonic() + 10
    while is_running(grandchild) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(grandchild)
    assert child.process.returncode == -signal.SIGKILL
