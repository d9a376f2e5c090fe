"""What a report knows of a run: the run directory, read once. No data set and no network is needed."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fscl.data.stream import StreamSpec
from fscl.errors import MisuseError, StorageError
from fscl.evaluation.asking import IN_WORDS
from fscl.evaluation.findings import load_finding
from fscl.evaluation.metrics import Matrix
from fscl.evaluation.observer import Finding, find_observer
from fscl.evaluation.protocol import matrix_from_rows
from fscl.experiment.config import Config
from fscl.experiment.confused import CONFUSIONS, MOST_PAIRS, Confusion, load_confusions
from fscl.experiment.plan import Cell
from fscl.experiment.record import OBSERVED, RunRecord
from fscl.experiment.watch import TrainingCourse
from fscl.nets.sources import ANY_SPEC
from fscl.plugins import is_reference

PNG = b"\x89PNG\r\n\x1a\n"
MAX_PICTURE_BYTES = 4 * 2**20
PRELIMINARY_BELOW = 10  # sequences: with fewer, every table, page and sentence says that it is preliminary


@dataclass(frozen=True)
class Outcome:
    """One finished cell: what one method did on one sequence."""

    top1: Matrix
    top5: Matrix
    restricted: Matrix
    confusion: Matrix
    learn_seconds: tuple[float, ...]
    predict_seconds: tuple[float, ...]
    peak_memory_bytes: int
    before: tuple[float | None, ...] = ()
    probes: dict[str, dict[int, tuple[float, ...]]] = field(default_factory=dict)
    probe_seconds: float = 0.0
    multiply_adds: tuple[int, ...] | None = None
    stored_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """A run directory as read: what was asked, and for each method the outcome of each finished sequence."""

    about: dict[str, Any]
    name: str
    stream: StreamSpec
    methods: tuple[str, ...]
    reference: str
    n_sequences: int
    outcomes: dict[str, dict[int, Outcome]]
    pictures: dict[str, dict[str, bytes]] = field(
        default_factory=dict
    )  # PNG files that a method left, by method and name
    confusions: dict[str, list[Confusion]] = field(default_factory=dict)  # the worst of all sequences, by method
    findings: dict[str, dict[str, Finding]] = field(default_factory=dict)  # of each observer, by method
    training: dict[str, tuple[dict[str, Any], ...]] = field(
        default_factory=dict
    )  # of each observer, along meta-training

    @property
    def n_done(self) -> int:
        """Finished cells."""
        return sum(len(finished) for finished in self.outcomes.values())

    @property
    def n_cells(self) -> int:
        """Planned cells."""
        return len(self.methods) * self.n_sequences

    @property
    def prediction(self) -> str:
        """How test images were asked, in words: "inductive", unless the run asks otherwise."""
        return IN_WORDS[self.about["config"]["run"].get("prediction", "inductive")]

    @property
    def unfinished(self) -> bool:
        """Whether cells are missing."""
        return self.n_done < self.n_cells

    @property
    def finished_methods(self) -> tuple[str, ...]:
        """Those that have finished at least one sequence."""
        return tuple(method for method in self.methods if self.outcomes[method])

    @property
    def preliminary(self) -> bool:
        """Whether any method has finished fewer sequences than a result needs."""
        return min(map(len, self.outcomes.values()), default=0) < PRELIMINARY_BELOW

    @property
    def has_reference(self) -> bool:
        """Whether there is something to take differences to."""
        return bool(self.outcomes.get(self.reference))

    @property
    def at_classes(self) -> tuple[int, ...]:
        """The numbers of classes to show accuracy at besides the end: of those asked for, those that the stream has."""
        asked = map(int, self.about["config"]["run"]["at_classes"])
        return tuple(n for n in asked if n < self.stream.n_labels and n in self.stream.classes_after)


def read_results(record: RunRecord) -> Results:
    """What a run directory holds, or an error that says which part of it cannot be read."""
    about, cells = record.about(), record.cells()
    try:
        about["config"] = config = _checked(about["config"])
        ANY_SPEC.validate_python(about["base"]["spec"])
        methods, n_sequences = tuple(map(str, config["run"]["methods"])), int(config["run"]["n_sequences"])
        outcomes = {
            method: {
                number: _outcome(cells[cell])
                for number in range(n_sequences)
                if (cell := Cell(method, number)) in cells
            }
            for method in methods
        }
        stream, reference = StreamSpec.model_validate(config["stream"]), str(config["run"]["reference"])
        pictures = {method: files for method in methods if (files := _pictures(record, method))}
        confusions = {method: worst for method in methods if (worst := _worst(record, method, outcomes[method]))}
        return Results(
            about,
            str(config["name"]),
            stream,
            methods,
            reference,
            n_sequences,
            outcomes,
            pictures,
            confusions,
            findings={name: _findings(record, name, methods) for name in config["observe"]},
            training={
                name: load_finding(path, TrainingCourse).points
                for name in config["observe"]
                if (path := record.observed_path(name)).exists()
            },
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{record.folder} cannot be reported: a value is missing or of another kind ({error}). "
            "Use the fscl that ran it."
        ) from error


def _checked(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a run. One that names things of other packages is taken as it is: reading a run imports nothing
    that it names."""
    named = [*config["run"]["methods"], *config["settings"], *config["observe"], config["data"]["name"]]
    named += [(config["base_data"] or {}).get("name", ""), config["base"].get("learner", {}).get("method", "")]
    if any(":" in str(name) for name in named):
        return config
    return Config.model_validate(config).resolved()


def _pictures(record: RunRecord, method: str) -> dict[str, bytes]:
    """The pictures of a method, by name; a page does not carry what is no PNG, or very large."""
    paths = sorted(record.file_path(Cell(method, 0), "").glob("*.png"))
    small = [path for path in paths if path.is_file() and path.stat().st_size <= MAX_PICTURE_BYTES]
    return {path.name: content for path in small if (content := path.read_bytes()).startswith(PNG)}


def _findings(record: RunRecord, observer: str, methods: Sequence[str]) -> dict[str, Finding]:
    """What an observer found in each method; nothing of one that is not installed here."""
    if is_reference(observer):  # its class would have to be imported
        return {}
    try:
        kind = find_observer(observer).finding
    except MisuseError:
        return {}
    paths = {method: record.file_path(Cell(method, 0), f"{OBSERVED}/{observer}.json") for method in methods}
    return {method: load_finding(path, kind) for method, path in paths.items() if path.exists()}


def _worst(record: RunRecord, method: str, sequences: Iterable[int]) -> list[Confusion]:
    paths = [record.file_path(Cell(method, number), CONFUSIONS) for number in sequences]
    found = [pair for path in paths if path.is_file() for pair in load_confusions(path)]
    return sorted(found, key=lambda pair: -pair.count / max(pair.of, 1))[:MOST_PAIRS]


def _outcome(entry: dict[str, Any]) -> Outcome:
    result, cost = entry["result"], entry["cost"]
    return Outcome(
        top1=matrix_from_rows(result["top1"]),
        top5=matrix_from_rows(result["top5"]),
        restricted=matrix_from_rows(result["restricted"]),
        confusion=np.array(result["confusion"], dtype=np.float64),
        learn_seconds=tuple(float(seconds) for seconds in cost["learn_seconds"]),
        predict_seconds=tuple(float(seconds) for seconds in cost["predict_seconds"]),
        peak_memory_bytes=int(cost["peak_memory_bytes"]),
        before=tuple(None if accuracy is None else float(accuracy) for accuracy in result.get("before", ())),
        probes={
            str(side): {int(after): tuple(map(float, shares)) for after, shares in points.items()}
            for side, points in result.get("probes", {}).items()
        },
        probe_seconds=float(cost.get("probe_seconds", 0)),
        multiply_adds=_counted(cost.get("multiply_adds")),
        stored_bytes={str(kind): int(count) for kind, count in cost.get("stored_bytes", {}).items()},
    )


def _counted(multiply_adds: list[int | None] | None) -> tuple[int, ...] | None:
    """For each task; None where one of them was not counted."""
    if not multiply_adds or None in multiply_adds:
        return None
    return tuple(int(count) for count in multiply_adds if count is not None)


def typical_seconds(seconds: Sequence[Sequence[float]]) -> list[float]:
    """The median over sequences of the time for each task: a process that slept for an hour in one of them tells nothing."""
    return [statistics.median(of_task) for of_task in zip(*seconds, strict=True)]
