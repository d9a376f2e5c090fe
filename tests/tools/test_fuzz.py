"""Every parser of bytes from outside refuses what is damaged in a sentence; `make fuzz` looks for more."""

import importlib.util
import random
from pathlib import Path

import pytest

from fscl import configure_process
from tools.fuzz import CODE, Ran, fuzz, table
from tools.fuzzing.targets import TARGETS, Target

N_INPUTS = {"state": 25, "tensors": 20, "journal": 30, "http": 60, "config": 60, "network": 60}
KINDS = ("flip", "cut", "repeat", "number", "word")
WORDS = (b"null", b"-1", b"1e999", b"[]", b"{}", b'"\\ud800"', b"\x00", b"\xff\xff\xff\xff", b"9" * 30, b"true", b"NaN")


def changed(seed: bytes, chance: random.Random) -> bytes:
    """Some bytes with a few of them altered."""
    content = bytearray(seed)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, kind = chance.randrange(len(content) + 1), chance.choice(KINDS)
        end = at + chance.choice((1, 2, 4, 8, 64))
        if kind == "flip":
            content[at:end] = bytes(chance.randrange(256) for _ in range(end - at))
        elif kind == "cut":
            del content[at:end]
        elif kind == "repeat":
            content[at:at] = content[at:end]
        elif kind == "number":
            digits = [place for place, each in enumerate(content) if chr(each).isdigit()]
            at = chance.choice(digits) if digits else at
            content[at : at + 1] = chance.choice((b"0", b"-1", b"4294967296", b"9" * 20, b"1e308", b"0.5"))
        else:
            content[at:end] = chance.choice(WORDS)
    return bytes(content)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_damaged_is_refused_in_a_sentence(name: str, tmp_path: Path):
    configure_process()
    target, chance = TARGETS[name](tmp_path), random.Random(f"fuzz {name}")
    with target.closing:
        taken = [target.try_bytes(seed) for seed in target.seeds]
        assert any(taken), "no seed is taken: only the first checks are reached"
        for _ in range(N_INPUTS.get(name, 150)):
            target.try_bytes(changed(chance.choice(target.seeds), chance))
        target.try_bytes(b"")


def test_every_target_has_its_code_and_errors_that_are_no_sentences_are_raised():
    assert CODE.keys() == TARGETS.keys()
    broken = Target([b""], lambda content: 1 // len(content))
    assert broken.try_bytes(b"x")
    with pytest.raises(ZeroDivisionError):
        broken.try_bytes(b"")
    assert "| zip | 1,234 | 5 | nothing |" in table([Ran("zip", 1234, 5, None)])


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs the extra 'fuzz'")
def test_coverage_guides_the_fuzzing_and_what_was_found_is_told(tmp_path: Path):
    ran = fuzz("tar", tmp_path, 2)
    assert ran.crash is None
    assert ran.n_inputs > 10
    assert ran.coverage > 10
    assert (tmp_path / "tar" / "corpus" / "seed-0").exists()
