"""What a soak found so far: kept in a file, so that the next one goes on, and shown as a table."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

CALLS = ("learn", "correct", "rename", "remove", "move", "forget", "undo", "reteach", "train", "run", "serve")
BROKEN = {
    "moment": "killed at a random moment",
    "change": "killed before a file change",
    "worker": "worker killed",
    "power": "power cut",
    "full": "disk full",
}
FOUND = {
    "ended": "ended before it broke",
    "before": "found: before the call",
    "waiting": "found: waiting, completed to the bit",
    "after": "found: after the call",
}
WRONG = {"lost": "**lost**", "half": "**half states**", "error": "**tracebacks**"}
KILLS = ("moment", "change", "worker")


@dataclass
class Tally:
    """How often each thing was seen.

    Attributes:
        rounds: that were begun.
        seconds: that they took.
        counts: for each kind of call, how often it was broken in each way, and what was found.
        places: for each kind of call and way to break it, the next place to try; all of them are gone through in turn.
        sweeps: how often all places of one kind were gone through.
        looks: what readers beside writers saw: whole states, and how often.
        problems: a sentence for each thing that is wrong.
    """

    rounds: int = 0
    seconds: float = 0.0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {call: Counter() for call in CALLS})
    places: dict[str, int] = field(default_factory=dict)
    sweeps: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Tally":
        """What an earlier run of the same folder found."""
        if not path.is_file():
            return cls()
        stored = json.loads(path.read_text())
        counts = {call: Counter(stored["counts"].get(call, {})) for call in CALLS}
        sweeps, looks = Counter(stored["sweeps"]), Counter(stored["looks"])
        return cls(stored["rounds"], stored["seconds"], counts, stored["places"], sweeps, looks, stored["problems"])

    def write(self, path: Path) -> None:
        """Keep it; in one piece, since this process may be killed, too."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(vars(self)))
        part.replace(path)

    def wrong(self, kind: str, what: str, sentence: str) -> None:
        """Note something that must not be."""
        self.counts[kind][what] += 1
        self.problems.append(f"{kind}: {sentence}")

    @property
    def total(self) -> Counter[str]:
        """Of all kinds of calls."""
        return sum(self.counts.values(), Counter())

    @property
    def n_kills(self) -> int:
        """Processes that were killed, power cuts and full disks not counted."""
        return sum(self.total[name] for name in KILLS)

    def table(self) -> str:
        """As Markdown."""
        columns = {**BROKEN, **FOUND, **WRONG}
        heads = ["call", *columns.values()]
        rows = [[call, *(str(counts[name]) for name in columns)] for call, counts in self.counts.items()]
        rows.append(["all", *(str(self.total[name]) for name in columns)])
        lines = ["| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows]]
        cuts = sum(n for key, n in self.sweeps.items() if key.startswith("power"))
        total, sweeps, looks = self.total, self.sweeps, self.looks
        said = (
            f"{self.rounds} rounds in {self.seconds / 60:.0f} minutes. There were {self.n_kills:,} kills and "
            f"{total['power']:,} power cuts. The disk was full {total['full']:,} times. The file changes of a call were "
            f"gone through to the last one {sweeps['change']} times with kills and {cuts} times with power cuts. Its byte "
            f"counts were gone through {sweeps['bytes']} times. Readers beside writers looked {looks['looks']:,} times, and "
            f"saw {looks['wrong']} states that never were."
        )
        return "\n".join([said, "", *lines])
