"""A thousand lessons: what each costs in time, memory, disk and files, and how all of it grows.

    python benchmarks/lessons.py --lessons 1000 --out docs/benchmarks/lessons.md

One class of two pictures a lesson, into one model; after each tenth of them a row of the table. The last row is the growth
from half of the lessons to all: 2 is linear. Seconds are of the processor, so that other work on the machine does not count.
"""

import argparse
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fscl import ContinualClassifier, configure_process
from fscl.process import peak_memory
from fscl.storage import write_bytes

N_MEASURED = 5
PER_LESSON = 2
SIDE = 32


@dataclass(frozen=True)
class Row:
    """What was measured after so many lessons."""

    lessons: int
    seconds_a_lesson: float
    load_seconds: float
    memory_mb: float
    disk_mb: float
    files: int


HEADS = ("lessons", "CPU seconds a lesson", "CPU seconds to load", "peak memory (MB)", "disk (MB)", "files")


def measure(n_lessons: int, *, base: str, method: str, n_rows: int = 10) -> list[Row]:
    """Teach a model in a folder, and look at it now and then.

    Args:
        n_lessons: of one new class each.
        base: of the model.
        method: of the model.
        n_rows: how often to look.
    """
    chance, rows = np.random.default_rng(0), []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        model = ContinualClassifier(base, method).save(folder)
        marks = {round(n_lessons * (number + 1) / n_rows) for number in range(n_rows)}
        times = []
        for number in range(1, n_lessons + 1):
            drawing = chance.random((SIDE, SIDE)) > 0.7
            noise = chance.random((PER_LESSON, SIDE, SIDE)) > 0.95
            begin = time.process_time()
            model.partial_fit((drawing ^ noise).astype(np.uint8) * 255, [f"class {number}"] * PER_LESSON)
            times.append(time.process_time() - begin)
            if number in marks:
                rows.append(_look(folder, number, times[-N_MEASURED:]))
        shutil.rmtree(folder)
    return rows


def _look(folder: Path, lessons: int, times: list[float]) -> Row:
    begin = time.process_time()
    ContinualClassifier.load(folder).predict(np.zeros((1, SIDE, SIDE), dtype=np.uint8))
    load = time.process_time() - begin
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return Row(lessons, float(np.median(times)), load, peak_memory() / 2**20, sum(sizes) / 2**20, len(sizes))


def table(rows: list[Row]) -> str:
    """As Markdown, with the growth from half of the lessons to all of them."""
    lines = ["| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS)]
    for row in rows:
        lines.append(
            f"| {row.lessons} | {row.seconds_a_lesson:.3f} | {row.load_seconds:.2f} | {row.memory_mb:.0f} | "
            f"{row.disk_mb:.2f} | {row.files} |"
        )
    half = next((row for row in rows if 2 * row.lessons == rows[-1].lessons), None)
    if half is not None:
        last = rows[-1]
        pairs = [
            (last.lessons, half.lessons),
            (last.seconds_a_lesson, half.seconds_a_lesson),
            (last.load_seconds, half.load_seconds),
            (last.memory_mb, half.memory_mb),
            (last.disk_mb, half.disk_mb),
            (last.files, half.files),
        ]
        lines.append("| growth | " + " | ".join(f"{now / then:.1f}×" for now, then in pairs[1:]) + " |")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lessons", type=int, default=1000)
    parser.add_argument("--base", default="omniglot-protonet-conv4")
    parser.add_argument("--method", default="prototypes")
    parser.add_argument("--out", type=Path, help="a page to write")
    given = parser.parse_args()
    configure_process()
    found = table(measure(given.lessons, base=given.base, method=given.method))
    print(found)
    if given.out is not None:
        head = (
            f"# {given.lessons:,} lessons\n\nOne class of {PER_LESSON} pictures a lesson, taught to one model in a folder "
            f"(`{given.method}` on `{given.base}`, every state kept for `undo`). The last row is the growth from half of "
            "the lessons to all: 2× is linear. Seconds are of the processor, the median of five lessons; a lesson estimates "
            "the\naccuracy of every class anew, and so takes longer the more there are. Of five files a lesson, two are "
            f"originals. Made\nby `python benchmarks/lessons.py --lessons {given.lessons}`.\n\n"
        )
        write_bytes(given.out, f"{head}{found}\n".encode())


if __name__ == "__main__":
    main()
