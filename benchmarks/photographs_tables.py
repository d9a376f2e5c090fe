"""What `photographs.py` measured, read from its files and written as tables.

A record is what one draw of one set with one number of shots gave:

    set, shots, draw
    accuracy                 of each rival by its name, and of "ours"
    lesson_seconds           of the processor, one figure a lesson
    predict_seconds, bare_seconds   a picture, by the classifier and by its network alone, several in turn
    estimated                accuracy as the classifier estimates it; None where it cannot
    calibration_error        of its probabilities
    auroc                    of unknown, by "ours" and by each simple score
    false_alarms, caught     shares of known and of never taught pictures above the default threshold; None without one
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fscl.evaluation.metrics import Interval, mean_interval, paired_difference
from fscl.storage import read_json

KIND = "photographs benchmark"
SETS = ("birds", "cars", "drawings")
OURS = "ours"
RIVALS = ("LogisticRegression", "Ridge", "LDA", "1-NN")
SIMPLE = ("own probability", "class mean", "nearest example")
N_BINS = 15
DASH = "–"

Record = dict[str, Any]
Row = list[str]


def calibration_error(confidence: NDArray[np.float64], right: NDArray[np.bool_], n_bins: int = N_BINS) -> float:
    """Expected calibration error: |accuracy - confidence| in bins of equal width, weighted by how many are in each."""
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    gaps = (abs((right[bins == b] - confidence[bins == b]).sum()) for b in range(n_bins))
    return float(sum(gaps) / len(confidence))


def read_records(files: Iterable[Path]) -> tuple[dict[str, int], list[Record]]:
    """The common setting of some files, and all of their records, none twice."""
    setting: dict[str, int] | None = None
    records: dict[tuple[str, int, int], Record] = {}
    for file in files:
        content = read_json(file, KIND)
        if setting is not None and content["setting"] != setting:
            raise SystemExit(f"{file} has the setting {content['setting']}, not {setting}; show it alone.")
        setting = content["setting"]
        for record in content["records"]:
            key = (record["set"], record["shots"], record["draw"])
            if key in records:
                raise SystemExit(
                    f"{file} has {key[0]}, {key[1]} shots, draw {key[2]} a second time; show one of the files."
                )
            records[key] = record
    if setting is None or not records:
        raise SystemExit("no draw is finished yet.")
    return setting, list(records.values())


def tables(setting: dict[str, int], records: Sequence[Record], *, markdown: bool = False) -> str:
    """Three tables: accuracy; time and estimates; unknown."""
    cells: dict[tuple[str, int], list[Record]] = {}
    for record in sorted(records, key=lambda record: (SETS.index(record["set"]), record["shots"], record["draw"])):
        cells.setdefault((record["set"], record["shots"]), []).append(record)
    n_classes, n_lessons = setting["classes"], setting["lessons"]
    parts = (
        (
            f"Accuracy over all {n_classes} classes after {n_lessons} lessons, {setting['queries']} queries a class, in "
            "percent: mean ± 95 % interval over draws. The best rival is the best by the mean; the last column takes the "
            "best of each draw.",
            ["set", "shots", "draws", *RIVALS, OURS, "ours minus the best", "the best", "ours minus each draw's best"],
            _accuracy_row,
        ),
        (
            "Time of the processor, one thread, and what the classifier says about itself. Relative is a prediction's time "
            "divided by the bare network's. The error of the estimate is the mean absolute difference, in points.",
            [
                *("set", "shots", "s a lesson", "longest", "ms a picture", "relative"),
                *("estimated %", "true %", "error of the estimate", "calibration error"),
            ],
            _trust_row,
        ),
        (
            f"Unknown, after {n_lessons // 2} of {n_lessons} lessons: AUROC of queries of taught classes against queries of "
            "the others, and the default threshold's false alarms and share caught, in percent.",
            ["set", "shots", f"AUROC {OURS}", *SIMPLE, "ours minus the best", "false alarms", "caught"],
            _unknown_row,
        ),
    )
    return "\n\n".join(_table(title, heading, map(row, cells.values()), markdown) for title, heading, row in parts)


def _accuracy_row(cell: list[Record]) -> Row:
    def of(name: str) -> list[float]:
        return [100 * record["accuracy"][name] for record in cell]

    names = [name for name in RIVALS if all(name in record["accuracy"] for record in cell)]
    best = max(names, key=lambda name: fmean(of(name)))
    each_best = [max(values) for values in zip(*map(of, names), strict=True)]
    return [
        *_head(cell),
        str(len(cell)),
        *(_interval(mean_interval(of(name))) if name in names else DASH for name in RIVALS),
        _interval(mean_interval(of(OURS))),
        _interval(paired_difference(of(OURS), of(best)), sign="+"),
        best,
        _interval(paired_difference(of(OURS), each_best), sign="+"),
    ]


def _trust_row(cell: list[Record]) -> Row:
    lessons = [seconds for record in cell for seconds in record["lesson_seconds"]]
    ratios = [
        whole / bare
        for record in cell
        for whole, bare in zip(record["predict_seconds"], record["bare_seconds"], strict=True)
    ]
    estimated = [(record["estimated"], record["accuracy"][OURS]) for record in cell if record["estimated"] is not None]
    return [
        *_head(cell),
        f"{fmean(lessons):.1f}",
        f"{max(lessons):.1f}",
        f"{1000 * median(seconds for record in cell for seconds in record['predict_seconds']):.1f}",
        f"× {median(ratios):.3f}",
        f"{100 * fmean(guess for guess, _ in estimated):.1f}" if estimated else DASH,
        f"{100 * fmean(record['accuracy'][OURS] for record in cell):.1f}",
        f"{100 * fmean(abs(guess - truth) for guess, truth in estimated):.1f}" if estimated else DASH,
        _interval(mean_interval([record["calibration_error"] for record in cell]), digits=3),
    ]


def _unknown_row(cell: list[Record]) -> Row:
    def of(name: str) -> list[float]:
        return [record["auroc"][name] for record in cell]

    best = max(SIMPLE, key=lambda name: fmean(of(name)))
    return [
        *_head(cell),
        *(_interval(mean_interval(of(name)), digits=3) for name in (OURS, *SIMPLE)),
        _interval(paired_difference(of(OURS), of(best)), sign="+", digits=3),
        *(_share([record[name] for record in cell]) for name in ("false_alarms", "caught")),
    ]


def _head(cell: list[Record]) -> Row:
    return [cell[0]["set"], str(cell[0]["shots"])]


def _share(values: Sequence[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    return _interval(mean_interval(known)) if known else DASH


def _interval(interval: Interval, *, sign: str = "", digits: int = 1) -> str:
    mean = f"{interval.mean:{sign}.{digits}f}"
    return mean if interval.n < 2 else f"{mean} ± {interval.half_width:.{digits}f}"


def _table(title: str, heading: Row, rows: Iterable[Row], markdown: bool) -> str:
    lines = [heading, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if markdown:
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        text = [f"| {' | '.join(_padded(line, widths))} |" for line in (heading, rule, *lines[1:])]
    else:
        text = ["  ".join(_padded(line, widths)) for line in lines]
    return "\n".join([title, "", *text])


def _padded(line: Row, widths: list[int]) -> Row:
    """The first column at the left, the others at the right."""
    return [
        f"{text:{'>' if place else '<'}{width}}" for place, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
