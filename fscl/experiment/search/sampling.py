"""Which values are tried and which trials go on: Optuna decides, from what it has been told in a fixed order.

Nothing of it is stored. A search that goes on asks and tells all over again from the seed; what has been computed is read
from the disk, so it comes back to where it was in no time, and to nowhere else.
"""

import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import ModuleType
from typing import Any

from fscl.errors import MisuseError
from fscl.experiment.search.spec import Dimension, Scalar, SearchSpec

FEWEST_FOR_IMPORTANCE = 4  # trials


def load_optuna() -> ModuleType:
    """The package, or the sentence that says how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise MisuseError("a search needs Optuna: python -m pip install 'fscl[search]'.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Sampler:
    """Draws values for trials, and says after each level which of them go on."""

    def __init__(self, search: SearchSpec, present: Mapping[str, Any]) -> None:
        """`present`: the values that the method has now, by path; they are the first trial if the space holds them."""
        self._optuna = optuna = load_optuna()
        self._space = {path: distribution(dimension) for path, dimension in search.space.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study = optuna.create_study(
                direction="maximize",
                sampler=optuna.samplers.TPESampler(seed=search.seed, constant_liar=True),
                pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=search.first, reduction_factor=search.keep),
            )
        self._running: dict[int, Any] = {}
        if all(dimension.holds(present.get(path)) for path, dimension in search.space.items()):
            self._study.enqueue_trial({path: present[path] for path in search.space})

    def draw(self) -> tuple[int, dict[str, Scalar]]:
        """The number of the next trial, and its values by path."""
        trial = self._study.ask(self._space)
        self._running[trial.number] = trial
        return trial.number, {path: trial.params[path] for path in self._space}

    def goes_on(self, number: int, accuracy: float, n_sequences: int) -> bool:
        """Tell what a trial has reached on its sequences so far; whether it gets more of them."""
        trial = self._running[number]
        trial.report(accuracy, n_sequences)
        if not trial.should_prune():
            return True
        self._study.tell(self._running.pop(number), state=self._optuna.trial.TrialState.PRUNED)
        return False

    def finished(self, number: int, accuracy: float) -> None:
        """Tell what a trial has reached on all sequences."""
        self._study.tell(self._running.pop(number), accuracy)

    def failed(self, number: int) -> None:
        """Tell that nothing is known of a trial."""
        self._study.tell(self._running.pop(number), state=self._optuna.trial.TrialState.FAIL)


def distribution(dimension: Dimension) -> Any:
    """The same in Optuna's words."""
    known = load_optuna().distributions
    if dimension.values is not None:
        return known.CategoricalDistribution(dimension.values)
    if dimension.is_whole:
        step = {} if dimension.step is None else {"step": dimension.step}
        return known.IntDistribution(dimension.low, dimension.high, log=dimension.log, **step)
    return known.FloatDistribution(dimension.low, dimension.high, log=dimension.log, step=dimension.step)


def importances(search: SearchSpec, trials: Sequence[tuple[Mapping[str, Scalar], float]]) -> dict[str, float]:
    """How much of the variance of accuracy each setting explains, by fANOVA (Hutter et al., 2014); they sum to 1.

    Nothing where there are too few trials, or all are equal.
    """
    if len(trials) < FEWEST_FOR_IMPORTANCE or len({accuracy for _, accuracy in trials}) < 2:
        return {}
    optuna = load_optuna()
    space = {path: distribution(dimension) for path, dimension in search.space.items()}
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        [
            optuna.trial.create_trial(params=dict(values), distributions=space, value=accuracy)
            for values, accuracy in trials
        ]
    )
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=search.seed)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {path: round(float(found[path]), 4) for path in search.space}


def optuna_version() -> str:
    """Another version may draw other values."""
    load_optuna()
    return version("optuna")
