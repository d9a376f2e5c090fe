"""Search the settings of a method on streams of validation classes, by any executor, into a directory.

A level of the search is a run like any other: its methods are the trials, `ewc@trial-007` and so on, and the cells of the
level before are taken over. A search that was killed is continued by the same call and ends with the same trials and the
same winner.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fscl.continual.registry import method_name
from fscl.errors import CellsFailed, ConfigError, Divergence, RunError
from fscl.evaluation.metrics import final_accuracy
from fscl.evaluation.protocol import matrix_from_rows
from fscl.experiment.config import Config, make_config
from fscl.experiment.executors.executor import Executor
from fscl.experiment.plan import Cell
from fscl.experiment.progress import Reporter
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.experiment.search.checks import LONGEST_NAME, test_classes_refused
from fscl.experiment.search.record import SearchRecord, Trial, Trials
from fscl.experiment.search.sampling import Sampler, importances, optuna_version
from fscl.experiment.search.spec import SearchSpec
from fscl.experiment.toml import merged, nested, toml_text
from fscl.experiment.versions import versions
from fscl.storage import leaves, write_bytes

Computed = Callable[[Config, RunRecord, RunRecord | None], bool]
"""Has a level computed, with the cells of the level before; whether there was anything to do."""


def run_search(
    config: Config,
    folder: Path,
    *,
    workers: int | None = None,
    executor: str | Executor = "local",
    reporter: Reporter | None = None,
) -> SearchRecord:
    """Compute what is not yet done of a search, and return its record.

    Args:
        workers: how many cells are computed at a time; without it, the executor decides. It changes no value that is tried.
        executor: where they are computed, as for a run.
    """
    search, reporter = checked_search(config), reporter or Reporter(quiet=True)
    record = SearchRecord(folder)
    about = {
        "config": config.resolved(),
        "search": search.model_dump(mode="json"),
        "versions": versions(config.device),
        "optuna": optuna_version(),  # another one may draw other values
    }
    with record.locked():
        identity = record.begin(about)

        def computed(level: Config, place: RunRecord, before: RunRecord | None) -> bool:
            """Whether anything had to be computed for a level."""
            if _is_finished(level, place):
                return False
            reuse = [] if before is None else [before.folder]
            try:
                run_experiment(level, place.folder, workers=workers, executor=executor, reporter=reporter, reuse=reuse)
            except CellsFailed as error:
                if not all(isinstance(failure, Divergence) for failure in error.failures):
                    raise
            return True

        trials = _Search(config, search, record, reporter).carry_out(computed)
        best = trials.best()
        if best is None:
            raise RunError(
                f"every one of the {len(trials.trials)} trials of {config.name} diverged or was stopped; narrow "
                "[search.space], such as to a lower learning rate."
            )
        trials.winner = best.number
        trials.importance = importances(search, _on_shared_sequences(trials, search.first))
        write_bytes(record.winner_path, winner_toml(config, best, len(trials.trials), identity).encode())
        record.write(trials)
    return record


def checked_search(config: Config) -> SearchSpec:
    """The search of a configuration, if it is one that can be made. It never meets a test class."""
    search = config.search
    if search is None:
        raise ConfigError(f"{config.name} has no table [search], which says what to try; see `fscl search --help`.")
    if config.run.split != "validation":
        raise ConfigError(f"{config.name}: {test_classes_refused(config.run.split)}.")
    if config.base.use is None:
        raise ConfigError(
            f"{config.name} would meta-train a base, but all trials of a search begin with the same one: train it first, "
            "and name it with base.use."
        )
    if len(config.name) > LONGEST_NAME:
        raise ConfigError(f"the name {config.name!r} is too long for a search: it may have {LONGEST_NAME} letters.")
    return search


class _Search:
    """One search at work."""

    def __init__(self, config: Config, search: SearchSpec, record: SearchRecord, reporter: Reporter) -> None:
        self.config, self.search, self.record, self.reporter = config, search, record, reporter
        present = leaves(config.settings_of(search.method).model_dump(mode="json"))
        self.sampler = Sampler(search, present)
        self.trials = Trials(trials=[])

    def carry_out(self, computed: Computed) -> Trials:
        """All trials, batch by batch; within a batch level by level."""
        search, n_drawn = self.search, 0
        while n_drawn < search.trials:
            batch = []
            for _ in range(min(search.at_a_time, search.trials - n_drawn)):
                number, values = self.sampler.draw()
                batch.append(Trial(number=number, values=values))
            self.trials.trials += batch
            self._batch(n_drawn // search.at_a_time, batch, computed)
            n_drawn += len(batch)
        return self.trials

    def _batch(self, number: int, batch: list[Trial], computed: Computed) -> None:
        running, before = batch, None
        for n_sequences in self.search.levels(self.config.run.n_sequences):
            if not running:
                return
            place = self.record.level(number, n_sequences)
            self.reporter.say(f"Trials {', '.join(str(t.number) for t in running)}: {n_sequences} sequences each.")
            is_new = computed(self._level(running, n_sequences), place, before)
            running, before = self._judged(running, n_sequences, place), place
            if is_new:  # else it is only read again, and more may be known already
                self.record.write(self.trials)

    def _level(self, trials: list[Trial], n_sequences: int) -> Config:
        """The run of these trials on so many sequences."""
        content = self.config.resolved()
        method, present = self.search.method, content["settings"][self.search.method]
        names = [_name(method, trial) for trial in trials]
        content["run"] |= {"methods": names, "reference": names[0], "n_sequences": n_sequences}
        content["run"]["resources"] = self.config.run.resources.model_dump()
        content |= {"observe": {}, "probe": None, "probes": {}}
        content["settings"] = {name: _changed(present, trial.values) for name, trial in zip(names, trials, strict=True)}
        return make_config(content, source=f"a level of {self.config.name}")

    def _judged(self, trials: list[Trial], n_sequences: int, place: RunRecord) -> list[Trial]:
        """Note what they have reached, in the order of their numbers; those that go on."""
        cells, is_last = place.cells(), n_sequences == self.config.run.n_sequences
        going_on = []
        for trial in trials:
            mine = [cells.get(Cell(_name(self.search.method, trial), number)) for number in range(n_sequences)]
            trial.accuracy = [_accuracy(cell, self.config) for cell in mine if cell is not None]
            if None in mine:
                trial.state = "diverged"
                self.sampler.failed(trial.number)
            elif is_last:
                trial.state = "complete"
                self.sampler.finished(trial.number, trial.mean)
            elif self.sampler.goes_on(trial.number, trial.mean, n_sequences):
                going_on.append(trial)
            else:
                trial.state = "stopped"
        return going_on


def _name(method: str, trial: Trial) -> str:
    return f"{method_name(method)}@trial-{trial.number:03d}"


def _changed(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return merged(settings, nested(values))


def _accuracy(cell: Mapping[str, Any], config: Config) -> float:
    return 100 * final_accuracy(matrix_from_rows(cell["result"]["top1"]), config.stream.task_sizes)


def _is_finished(config: Config, place: RunRecord) -> bool:
    return place.results_path.exists() and place.about()["config"] == config.resolved()


def _on_shared_sequences(trials: Trials, first: int) -> list[tuple[dict[str, Any], float]]:
    """Values and accuracy of every trial on the sequences that all of them have."""
    found = [(trial.values, trial.accuracy[:first]) for trial in trials.trials if len(trial.accuracy) >= first]
    return [(values, sum(accuracy) / len(accuracy)) for values, accuracy in found]


def winner_toml(config: Config, winner: Trial, n_trials: int, identity: str) -> str:
    """The configuration with the winner's values, every value in force, on the classes that it was chosen on."""
    content = config.resolved()
    method = config.search.method if config.search is not None else ""
    content["settings"][method] = _changed(content["settings"][method], winner.values)
    content["name"] = f"{config.name}-winner"
    content["chosen_by"] = f"{config.name} ({identity}), trial {winner.number} of {n_trials}"
    make_config(content, source="the winner")  # what is written can be read
    values = ", ".join(f"{path} = {value}" for path, value in winner.values.items())
    return (
        f"# Of {method}, `fscl search {config.name}` chose {values}\n"
        f"# on validation classes, which these streams are of. On test classes: fscl run winner.toml run.split=test\n"
        f"{toml_text(content)}"
    )
