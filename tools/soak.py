"""Breaks processes that change models and runs, over and over, and compares what is left with twins that were never broken.

    python -m tools.soak --minutes 120 --folder /tmp/soak     about two hours; the same command goes on after a stop
    make soak MINUTES=5

Every call is made by a process of its own, which is killed (`kill -9`) at a random moment and before every file that it
opens for writing, flushes, renames or removes, in turn; the power is cut at the same places, and what was not flushed is
dropped; the disk is full after every byte count. The calls are those that change a model (learn, correct, rename, remove,
move, forget, undo, reteach), `train`, `run` with its workers, and requests to the service. What is left must be the twin
before or after the call, bit for bit, or wait to be completed to the twin's bits; then it is brought to the end of the call,
and must be the twin. A reader beside all of it may see such states alone. At the end a table says what was found; the exit
code is 1 where anything was lost.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from fscl import configure_process
from tools.soaking.full import EveryByte
from tools.soaking.models import Round
from tools.soaking.runs import Runs
from tools.soaking.service import ServiceRound
from tools.soaking.tally import Tally

LONGEST, SHORTEST = 120, 12  # seconds of a round
Rounds = Callable[[int, Path, Tally], Round | EveryByte | Runs | ServiceRound]
ORDER: tuple[Rounds, ...] = (
    Round,
    Round,
    Runs,
    Round,
    ServiceRound,
    Round,
    lambda _, place, tally: EveryByte(place, tally),
)


def soak(folder: Path, minutes: float, *, order: tuple[Rounds, ...] = ORDER) -> Tally:
    """Rounds until the time is over; those of an earlier call for the same folder count, too.

    Args:
        folder: where models live while they are broken, and what was found is kept.
        minutes: of this call and those before it.
        order: the kinds of rounds, in turn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "soak.json"
    tally = Tally.read(path)
    seconds_a_round = min(LONGEST, max(SHORTEST, 60 * minutes / (2 * len(order))))
    while tally.seconds < 60 * minutes:
        begin = time.monotonic()
        kind = order[tally.rounds % len(order)]
        number = sum(order[each % len(order)] is kind for each in range(tally.rounds))
        with tempfile.TemporaryDirectory(dir=folder) as place:
            try:
                kind(number, Path(place), tally).run(begin + min(seconds_a_round, 60 * minutes - tally.seconds))
            except Exception:
                tally.problems.append(f"a round failed: {traceback.format_exc()}")
        tally.rounds += 1
        tally.seconds += time.monotonic() - begin
        tally.write(path)
    return tally


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "fscl-soak")
    parser.add_argument("--anew", action="store_true", help="forget what earlier runs in the folder found")
    parser.add_argument("--table", action="store_true", help="show what earlier runs in the folder found, and end")
    given = parser.parse_args()
    if given.anew:
        (given.folder / "soak.json").unlink(missing_ok=True)
    configure_process()
    tally = Tally.read(given.folder / "soak.json") if given.table else soak(given.folder, given.minutes)
    print(tally.table())
    for problem in tally.problems[:20]:
        print(f"- {problem}")
    sys.exit(1 if tally.problems else 0)


if __name__ == "__main__":
    main()
