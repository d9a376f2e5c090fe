"""Wrong tokens take longer and longer; the right one never waits."""

import time

import anyio
import pytest

from fscl.serve.refusals import Refusal
from fscl.serve.tokens import MAX_SESSIONS, MAX_WAITING, Tokens
from tests.serve.serving import in_a_thread


def test_wrong_tokens_are_slowed_down_and_the_right_one_is_not():
    tokens, right = Tokens.made()
    tokens.first_pause = 0.02

    async def seconds(token: str) -> float:
        started = time.perf_counter()
        await tokens.is_right(token)
        return time.perf_counter() - started

    async def guess() -> None:
        pauses = [await seconds("wrong") for _ in range(4)]
        assert pauses[0] >= 0.02
        assert pauses[3] >= 0.16
        assert await tokens.is_right(right)
        assert tokens.n_wrong == 0

    in_a_thread(guess)


def test_many_wrong_tokens_at_once_are_turned_away():
    tokens, _ = Tokens.made()
    tokens.first_pause = 0.01  # the last of those that wait waits 128 times as long
    refused = []

    async def one() -> None:
        try:
            assert not await tokens.is_right("wrong")
        except Refusal as refusal:
            refused.append(refusal.status)

    async def many() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(MAX_WAITING + 5):
                group.start_soon(one)

    in_a_thread(many)
    assert refused == [429] * 5


def test_sessions_are_bounded_and_the_oldest_go_first():
    tokens, _ = Tokens.made()
    first = tokens.opened()
    assert tokens.is_open(first)
    for _ in range(MAX_SESSIONS):
        last = tokens.opened()
    assert not tokens.is_open(first)
    assert tokens.is_open(last)
    assert len(tokens.sessions) == MAX_SESSIONS


def test_neither_token_nor_session_is_kept_itself():
    tokens, right = Tokens.made()
    session = tokens.opened()
    assert right not in repr(vars(tokens))
    assert session not in repr(vars(tokens))
    with pytest.raises(AttributeError):
        _ = tokens.token  # type: ignore[attr-defined]
