"""Something that changes files and may be broken: how it is done, what may be found then, how it comes to its end."""

import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from tools.soaking.breaking import BROKEN, ENDED, REFUSED, Breaking, in_child
from tools.soaking.tally import Tally

Place = Literal["before", "waiting", "after"]
LOCKS = ("lock", "writer")


class Wrong(Exception):
    """What must not be found."""

    def __init__(self, what: Literal["lost", "half", "error"], sentence: str) -> None:
        super().__init__(sentence)
        self.what = what


@dataclass(frozen=True)
class Task:
    """One call.

    Attributes:
        kind: its row of the table.
        name: of what it is done to, for people.
        call: does it, in a folder.
        look: where the folder is: before the call, waiting to be completed by the next writer, or after it. It raises
            `Wrong` where it is anything else.
        finish: brings a folder from any of these to after the call.
        acknowledged: whether a call that has returned is on disk for good, so that no power cut takes it back.
    """

    kind: str
    name: str
    call: Callable[[Path], object]
    look: Callable[[Path], Place]
    finish: Callable[[Path, Place], object]
    acknowledged: bool = True


def attempt(task: Task, root: Path, breaking: Breaking, tally: Tally) -> bool:
    """Do a task that is broken, look at what is left, and bring it to its end; whether it was broken in time."""
    return judge(task, root, breaking, in_child(partial(task.call, root), breaking), tally)


def judge(task: Task, root: Path, breaking: Breaking, code: int, tally: Tally) -> bool:
    """Look at what a broken call has left, and bring it to its end; whether it was broken in time."""
    counts = tally.counts[task.kind]
    broken = code in BROKEN or (breaking.column == "full" and code == REFUSED) or breaking.struck
    counts[breaking.column if broken else "ended"] += 1
    try:
        if code != ENDED and (breaking.struck or not broken):
            raise Wrong("error", f"the call ended with {code}")
        found = task.look(root)
        if code == REFUSED and found == "waiting":
            raise Wrong("lost", "a call that was refused waits to be completed")
        if code == ENDED and found != "after" and task.acknowledged:
            raise Wrong("lost", f"a call that was done is not: {found}")
        counts[found] += 1
        task.finish(root, found)
        if task.look(root) != "after":
            raise Wrong("lost", "it cannot be brought to where the twin is")
    except Wrong as wrong:
        tally.wrong(task.kind, wrong.what, f"{task.name}, {breaking}: {wrong}")
    except Exception:
        tally.wrong(task.kind, "error", f"{task.name}, {breaking}: {traceback.format_exc()}")
    return broken


def attempt_on_copy(task: Task, root: Path, breaking: Callable[[Path], Breaking], tally: Tally) -> bool:
    """The same, on a copy of a folder, which is then thrown away."""
    copy = Path(shutil.copytree(root, root.with_name(f"{root.name}-copy")))
    try:
        made = breaking(copy)
        code = in_child(partial(task.call, copy), made)
        if code in BROKEN and files_in(copy) == files_in(
            root
        ):  # nothing has happened: there is nothing to bring to its end
            tally.counts[task.kind].update({made.column: 1, "before": 1})
            return True
        return judge(task, copy, made, code, tally)
    finally:
        shutil.rmtree(copy)


def files_in(root: Path) -> dict[str, bytes | None]:
    """Every file and folder below a folder, but those of locks."""
    found = [path for path in root.rglob("*") if path.name not in LOCKS]
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in found}


def next_place(task: Task, root: Path, key: str, make: Callable[[Path, int], Breaking], tally: Tally) -> None:
    """Break a task at the next place of its kind; after the last one it begins again with the first."""
    name = f"{task.name} {task.kind} {key}"
    number = tally.places.get(name, 0)
    if attempt_on_copy(task, root, lambda copy: make(copy, number), tally):
        tally.places[name] = number + 1
    else:
        tally.places[name] = 0
        tally.sweeps[key] += 1
