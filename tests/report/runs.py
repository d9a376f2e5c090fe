"""Small hand-made run directories, and their tables and pages."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from fscl.evaluation.metrics import Interval
from fscl.experiment.config import make_config
from fscl.experiment.plan import Cell, Finished
from fscl.experiment.record import RunRecord
from fscl.report.contents import TABLES
from fscl.report.page import write_report
from fscl.report.results import read_results
from fscl.report.table import Table, make_table
from fscl.report.writers.terminal import print_table

Rows = list[list[float]]
T3 = 4.302653  # Student's t, 97.5 %, for three values

# Two tasks. A_T = (R[1,0] + R[1,1]) / 2; forgetting = R[0,0] - R[1,0]; average = (R[0,0] + A_T) / 2.
GOOD: list[Rows] = [[[1.0], [0.8, 0.8]], [[1.0], [0.9, 0.9]], [[1.0], [1.0, 1.0]]]  # A_T 80, 90, 100; forgets 20, 10, 0
FAIR: list[Rows] = [[[0.9], [0.5, 0.9]], [[0.9], [0.7, 0.9]], [[0.9], [0.8, 1.0]]]  # A_T 70, 80, 90; forgets 40, 20, 10
POOR: list[Rows] = [[[0.9], [0.6, 0.8]], [[0.9], [0.8, 0.8]], [[0.9], [0.8, 0.9]]]  # A_T 70, 80, 85


def make_run(folder: Path, matrices: Mapping[str, list[Rows]], **changes: Any) -> RunRecord:
    """A run directory with these top-1 matrices, one a sequence; those left out are not finished."""
    n_tasks = max(len(rows) for sequences in matrices.values() for rows in sequences) if any(matrices.values()) else 2
    content: dict[str, Any] = {
        "name": "toy",
        "stream": {"n_tasks": n_tasks, "n_way": 2, "n_query": 5, **changes.pop("stream", {})},
        "run": {"methods": list(matrices), "n_sequences": 3, **changes.pop("run", {})},
        **changes,
    }
    config = make_config(content)
    record = RunRecord(folder)
    record.begin(about(config.resolved()))
    for method, sequences in matrices.items():
        for number, rows in enumerate(sequences):
            append(record, Cell(method, number), rows, config.stream.n_labels)
    return record


def about(config: dict[str, Any]) -> dict[str, Any]:
    spec = {"backbone": "conv4", "width": 16, "norm": "group", "channels": 1, "image_size": 32}
    return {
        "config": config,
        "versions": {"fscl": "0.1.0", "torch": "2.4"},
        "data": {"pool": "glyphs (test)", "hash": "d" * 32, "classes": 240},
        "base": {"hash": "b" * 32, "spec": spec, "origin": "o" * 16, "summary": "protonet on glyphs"},
        "streams": ["a" * 16] * config["run"]["n_sequences"],
    }


def append(record: RunRecord, cell: Cell, rows: Rows, n_labels: int, **more: Any) -> None:
    """A finished cell; `more` of its result, and of its cost under "cost"."""
    confusion = [[5 if true == answer else 1 for answer in range(n_labels)] for true in range(n_labels)]
    result = {"top1": rows, "top5": [[1.0] * len(row) for row in rows], "confusion": confusion}
    result["restricted"] = [[1.0] * len(row) for row in rows]
    result["diagnostics"] = [{"embedding_steps": 5.0}, {"embedding_steps": 10.0}][: len(rows)]
    seconds = [0.5 + number for number in range(len(rows))]  # 0.5, 1.5: a mean of 1
    cost = {"learn_seconds": seconds, "predict_seconds": seconds, "peak_memory_bytes": 2**20, **more.pop("cost", {})}
    record.append(cell, Finished({**result, **more}, cost))


def table_of(record: RunRecord, name: str = "table") -> Table:
    """One of the tables of a run, by name."""
    spec = next(spec for spec in TABLES if spec.name == name)
    return make_table(spec, read_results(record))


def interval_of(table: Table, method: str, key: str) -> Interval:
    """A value of the table that is a mean with its interval."""
    value = table.cell(method, key).value
    assert isinstance(value, Interval)
    return value


def text_of(record: RunRecord, **options: Any) -> str:
    """The table as a terminal shows it."""
    file = io.StringIO()
    print_table(table_of(record), Console(file=file, **options))
    return file.getvalue()


def page_of(record: RunRecord) -> str:
    """The page of a run."""
    return write_report(record).read_text("utf-8")


PROBE = {"after": [0, 1, 2], "n_episodes": 2, "n_way": 2, "n_shot": 3}
# the novel side after 0, 1 and 2 tasks, two problems each; rises by 10, 20 and 30 points over the three sequences
RISING = [
    [[0.5, 0.7], [0.6, 0.6], [0.6, 0.8]],
    [[0.4, 0.6], [0.5, 0.5], [0.7, 0.7]],
    [[0.5, 0.5], [0.6, 0.6], [0.8, 0.8]],
]
STILL = [[[0.5, 0.7]] * 3] * 3


def probed_run(folder: Path, sequences: int = 3, **changes: Any) -> RunRecord:
    """Two methods with probes, counted work and stored bytes."""
    record = make_run(folder, {"tsc": [], "prototypes": []}, probe=PROBE, run={"n_sequences": sequences}, **changes)
    for method, matrices, shares in (("tsc", GOOD, RISING), ("prototypes", FAIR, STILL)):
        for number in range(sequences):
            points = {str(after): shares[number][after] for after in (0, 1, 2)}
            more: dict[str, Any] = {"probes": {"novel": points, "base": {str(after): [0.9, 0.9] for after in range(3)}}}
            seconds = [0.5, 1.5] if method == "tsc" else [0.05, 0.05]
            counts = [4_000_000, 8_000_000] if method == "tsc" else [1_000_000, None]
            kept = {"weights": 2048, "memory": 1024 * (1 + number)}
            cost = {"learn_seconds": seconds, "multiply_adds": counts, "stored_bytes": kept, "probe_seconds": 0.7}
            append(record, Cell(method, number), matrices[number], 4, cost=cost, **more)
    return record
