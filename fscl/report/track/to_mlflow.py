"""MLflow: an experiment for each configuration by name, and in it a run for each cell, found again by a tag."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fscl.errors import MisuseError, RunError
from fscl.report.track.cells import TrackedCell, TrackedRun

METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100  # that MLflow takes in one call
LONGEST_VALUE = 500  # letters of a parameter
CELL, RUN, WHOLE = "fscl.cell", "fscl.run", "fscl.whole"

T = TypeVar("T")


def to_mlflow(run: TrackedRun, store: str | None, usual: Path) -> tuple[int, str]:
    """Log the cells that the store has not; how many were new, and the address of the store."""
    client_class = _client_class()
    address, artefacts = _address(store, usual)
    with _faults_of(address):
        client = client_class(tracking_uri=address)
        known = client.get_experiment_by_name(run.name)
        experiment = (
            known.experiment_id
            if known is not None
            else client.create_experiment(run.name, artifact_location=artefacts)
        )
        there = _there(client, experiment, run.key)
        n_new = 0
        for cell in run.cells:
            if cell.key not in there:
                _log(client, experiment, run, cell)
                n_new += 1
    return n_new, address


def _client_class() -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # an export tells nobody but the store
    try:
        from mlflow.entities import Metric, Param, RunTag  # noqa: F401  (all of them are needed)
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise MisuseError("--to mlflow needs its package: python -m pip install mlflow.") from error
    return MlflowClient


def _address(store: str | None, usual: Path) -> tuple[str, str | None]:
    """Of the store, and where MLflow shall keep files of its runs, where that is ours to say."""
    if store is not None and "://" in store:
        return store, None
    folder = (usual if store is None else Path(store)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder}/mlflow.db", (folder / "artefacts").as_uri()


@contextmanager
def _faults_of(address: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        first = str(error).strip().splitlines()[0]
        raise RunError(f"the MLflow store {address} refused: {first}") from error


def _there(client: Any, experiment: str, run: str) -> set[str]:
    """The cells that the store has whole; parts of one that an export has left are taken away."""
    found: set[str] = set()
    token = None
    while True:
        page = client.search_runs([experiment], f"tags.`{RUN}` = '{run}'", max_results=1000, page_token=token)
        for each in page:
            if each.data.tags.get(WHOLE) == "yes":
                found.add(each.data.tags[CELL])
            else:
                client.delete_run(each.info.run_id)
        token = page.token
        if not token:
            return found


def _log(client: Any, experiment: str, run: TrackedRun, cell: TrackedCell) -> None:
    from mlflow.entities import Metric, Param, RunTag

    now = int(1000 * time.time())
    tags = {CELL: cell.key, RUN: run.key, "method": cell.method, "sequence": str(cell.sequence), **run.about}
    made = client.create_run(experiment, run_name=cell.name, tags=tags)
    number = made.info.run_id
    metrics = [Metric(name, value, now, step) for name, points in cell.curves.items() for step, value in points.items()]
    metrics += [Metric(name, value, now, 0) for name, value in cell.figures.items()]
    values = {**run.config, **{f"settings.{path}": value for path, value in cell.settings.items()}}
    params = [Param(path, str(value)[:LONGEST_VALUE]) for path, value in values.items()]
    for some in _parts(metrics, METRICS_AT_ONCE):
        client.log_batch(number, metrics=some)
    for part in _parts(params, PARAMS_AT_ONCE):
        client.log_batch(number, params=part)
    client.set_terminated(number)
    client.log_batch(number, tags=[RunTag(WHOLE, "yes")])


def _parts(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
