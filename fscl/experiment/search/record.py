"""A search directory: what was asked, every trial, and the winner.

search.json       the configuration, the search, versions
levels/000-001/   run directories: the trials of batch 000 on one sequence; 000-003: those that went on, on three; …
trials.json       every trial: its values, how far it came, its accuracy on each sequence; and how much each setting mattered
trials.csv        the same for a spreadsheet
winner.toml       the configuration with the values of the best trial, for `fscl run`
search.html       what mattered, made from the above
"""

import csv
import io
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from fscl.errors import OtherRun, RunError, StorageError
from fscl.experiment.record import RunRecord, first_difference
from fscl.experiment.search.spec import Scalar
from fscl.storage import digest, read_json, write_bytes, write_json

State = Literal["running", "complete", "stopped", "diverged"]


class Trial(BaseModel):
    """One choice of values.

    Attributes:
        values: by path below the settings of the method.
        accuracy: of each sequence that it has learned, after the last task over all classes, in %.
    """

    model_config = ConfigDict(extra="forbid")

    number: int
    values: dict[str, Scalar]
    state: State = "running"
    accuracy: list[float] = []

    @property
    def mean(self) -> float:
        """Over its sequences; NaN where there is none."""
        return fmean(self.accuracy) if self.accuracy else float("nan")


class Trials(BaseModel):
    """All of them, and what came out.

    Attributes:
        importance: the share of each setting in the variance of accuracy, over all trials, on the sequences that all have.
        winner: the number of the best trial of those that learned all sequences; None as long as the search goes on.
    """

    model_config = ConfigDict(extra="forbid")

    trials: list[Trial]
    importance: dict[str, float] = {}
    winner: int | None = None

    def best(self) -> Trial | None:
        """Of those that learned all sequences; of equal ones the first."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return max(complete, key=lambda trial: (trial.mean, -trial.number), default=None)


@dataclass(frozen=True)
class SearchRecord:
    """A search directory."""

    folder: Path

    @property
    def about_path(self) -> Path:
        return self.folder / "search.json"

    @property
    def trials_path(self) -> Path:
        return self.folder / "trials.json"

    @property
    def winner_path(self) -> Path:
        return self.folder / "winner.toml"

    def level(self, batch: int, n_sequences: int) -> RunRecord:
        """The run of the trials of a batch on so many sequences."""
        return RunRecord(self.folder / "levels" / f"{batch:03d}-{n_sequences:03d}")

    def locked(self) -> AbstractContextManager[None]:
        """One writer at a time."""
        return RunRecord(self.folder).locked()

    def begin(self, about: Mapping[str, Any]) -> str:
        """Write what this search is, or check that the one begun here is the same; a fingerprint of it."""
        about = json.loads(json.dumps(about))
        if not self.about_path.exists():
            write_json(self.about_path, "search", about)
        changed = first_difference(read_json(self.about_path, "search"), about)
        if changed is not None:
            key, old, new = changed
            raise OtherRun(
                f"{self.folder} holds a search with {key} = {old!r}, but now it is {new!r}. Use the old value, or another "
                "folder with --out."
            )
        return digest({key: about[key] for key in ("config", "search")})

    def about(self) -> dict[str, Any]:
        """What `begin` wrote."""
        if not self.about_path.exists():
            raise RunError(f"{self.folder} is not a search directory: it has no search.json. `fscl search` makes one.")
        return read_json(self.about_path, "search")

    def write(self, trials: Trials) -> None:
        """Replace what is known of the trials."""
        write_json(self.trials_path, "trials", trials.model_dump(mode="json"))
        paths = list(trials.trials[0].values) if trials.trials else []
        rows: list[list[Any]] = [["trial", *paths, "state", "sequences", "accuracy_percent"]]
        for trial in trials.trials:
            mean = f"{trial.mean:.4f}" if trial.accuracy else ""
            rows.append([trial.number, *trial.values.values(), trial.state, len(trial.accuracy), mean])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        write_bytes(self.folder / "trials.csv", text.getvalue().encode())

    def trials(self) -> Trials:
        """What `write` wrote."""
        try:
            return Trials.model_validate(read_json(self.trials_path, "trials"))
        except ValidationError as error:
            raise StorageError(f"{self.trials_path} is damaged: {error.errors()[0]['msg']}.") from error
