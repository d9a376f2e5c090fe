"""Edits of the source that the tests must notice: `make mutants` applies each to a copy of the tree, and reports survivors.

    python tools/mutants.py                     all of them, two at a time
    python tools/mutants.py --only tagging      those whose name or file has the word

The edits are in tests/mutants/*.toml: a name, a file, a text that occurs once in it, what it becomes, and the tests that
must fail then. The tests are first run on the unchanged tree, where they must pass: one that always fails notices nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("fscl", "tests", "docs", "tools", "pyproject.toml", "README.md", "Makefile", "constraints.txt")
TIMEOUT = 300  # seconds for the tests of one edit; those that hang have noticed it, too
NOTICED = (1, 2)  # exit codes of pytest: a test failed, or the edit broke collecting it


@dataclass(frozen=True)
class Mutant:
    """One edit, and the tests that must notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def read_mutants(folder: Path) -> list[Mutant]:
    """All edits, each checked to apply exactly once."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text("utf-8"))["mutant"]:
            mutant = Mutant(entry["name"], entry["file"], entry["old"], entry["new"], tuple(entry["tests"]))
            source = ROOT / mutant.file
            count = source.read_text("utf-8").count(mutant.old) if source.is_file() else 0
            if count != 1:
                sys.exit(
                    f"{path.name}: {mutant.name!r}: its text occurs {count} times in {mutant.file}, and should once"
                )
            found.append(mutant)
    return found


class Copy:
    """A copy of the tree that edits are applied to, one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source, target = ROOT / name, folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)

    def test(self, tests: Iterable[str]) -> tuple[int, str]:
        """The exit code of the tests, and the end of what they printed."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.setdefault("FSCL_DATA", str(ROOT.parent / "shared" / "data"))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        try:
            ended = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            return NOTICED[0], "timed out"
        return ended.returncode, ended.stdout[-2000:] + ended.stderr[-500:]

    def survives(self, mutant: Mutant) -> bool:
        """Whether the tests do not notice an edit."""
        path = self.folder / mutant.file
        before = path.read_text("utf-8")
        path.write_text(before.replace(mutant.old, mutant.new), "utf-8")
        try:
            code, printed = self.test(mutant.tests)
        finally:
            path.write_text(before, "utf-8")
        if code not in (0, *NOTICED):
            sys.exit(f"{mutant.name!r}: its tests cannot be run (exit code {code}):\n{printed}")
        return code == 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Apply edits that the tests must notice.")
    parser.add_argument("--only", default="", help="a word in the name or the file of the edits to try")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trust", action="store_true", help="do not run the tests on the unchanged tree first")
    options = parser.parse_args()
    mutants = [m for m in read_mutants(ROOT / "tests" / "mutants") if options.only in m.name or options.only in m.file]
    begin, survivors = time.monotonic(), []
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(options.workers) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(options.workers):
            copies.put(Copy(Path(temporary) / str(number)))
        if not options.trust:
            code, printed = (copy := copies.get()).test(sorted({test for mutant in mutants for test in mutant.tests}))
            copies.put(copy)
            if code != 0:
                sys.exit(f"the tests do not pass on the unchanged tree:\n{printed}")

        def attempt(mutant: Mutant) -> tuple[Mutant, bool]:
            copy = copies.get()
            try:
                return mutant, copy.survives(mutant)
            finally:
                copies.put(copy)

        for number, (mutant, survived) in enumerate(pool.map(attempt, mutants), start=1):
            print(f"{number}/{len(mutants)} {'SURVIVED' if survived else 'noticed'}: {mutant.name}", flush=True)
            survivors += [mutant] if survived else []
    minutes = (time.monotonic() - begin) / 60
    print(f"{len(mutants)} edits, {len(survivors)} survived, {minutes:.1f} minutes")
    for mutant in survivors:
        print(f"survived: {mutant.name} ({mutant.file}); no test noticed among {', '.join(mutant.tests)}")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
