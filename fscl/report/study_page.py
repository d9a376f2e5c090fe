"""The index of a study: its reports, one table over all runs, and differences between runs that met the same streams."""

import shlex
from pathlib import Path
from typing import Any

from fscl.evaluation.verdicts import LEVEL_MARGIN
from fscl.experiment.study.driver import StudyRecord
from fscl.experiment.study.spec import Study, StudyRun
from fscl.meta.shipped import load_base_with_details
from fscl.report.commands import shown_path
from fscl.report.compare import Comparison, Difference, against_run, of_run, p_text
from fscl.report.results import PRELIMINARY_BELOW, Results, read_results
from fscl.report.shell import render_in_shell
from fscl.report.table import MISSING, describe_run, show
from fscl.report.values import accuracy_at
from fscl.storage import write_bytes


def write_index(study: Study, record: StudyRecord, file: str) -> Path:
    """Write the page from what is there of a study, and return its path.

    Args:
        file: what the command on the page calls the file of the study.
    """
    found = {run.name: _results(record, run.name) for run in study.runs}
    begun = {name: results for name, results in found.items() if results is not None}
    groups = stream_groups(begun)
    comparisons = [each for names in groups for each in _comparisons([begun[name] for name in names])]
    page = record.folder / "index.html"
    finished = [name for name, results in begun.items() if not results.unfinished]
    text = render_in_shell(
        "study.html.j2",
        title=f"{study.name}: a study",
        name=study.name,
        n_unfinished=len(study.runs) - len(finished),
        sentence=_sentence(study, groups),
        runs=[_run_row(record, run, found[run.name], groups) for run in study.runs],
        finished=list(begun),
        accuracy=_accuracy_rows(begun),
        preliminary=PRELIMINARY_BELOW if any(results.preliminary for results in begun.values()) else None,
        comparisons=[_shown(comparison) for comparison in comparisons],
        unpaired=unpaired_sentences(groups),
        margin=f"{LEVEL_MARGIN:g}",
        bases=[{"name": base.name, "summary": _summary(record, base.name)} for base in study.bases],
        command=shlex.join(["fscl", "study", shown_path(file), "--out", shown_path(str(record.folder))]),
    )
    write_bytes(page, text.encode())
    return page


def stream_groups(begun: dict[str, Results]) -> list[list[str]]:
    """The names of runs, together where they meet the same sequences of tasks; of different numbers the shared ones."""
    groups: list[list[str]] = []
    for name, results in begun.items():
        for group in groups:
            if _same_streams(results, begun[group[0]]):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _same_streams(one: Results, two: Results) -> bool:
    pairs = list(zip(one.about["streams"], two.about["streams"], strict=False))
    return bool(pairs) and all(mine == theirs for mine, theirs in pairs)


def unpaired_sentences(groups: list[list[str]]) -> list[str]:
    """What is not compared, and why."""
    return [
        f"{', '.join(names)}: no difference to {groups[0][0]}, whose streams are others, so that nothing could be paired."
        for names in groups[1:]
    ]


def _comparisons(runs: list[Results]) -> list[Comparison]:
    """Each run minus the first of its group, for the methods that both have."""
    first, *others = [of_run(results) for results in runs]
    return [against_run(other, first) for other in others if first.methods.keys() & other.methods.keys()]


def _shown(comparison: Comparison) -> dict[str, Any]:
    return {"title": comparison.title, "rows": [_difference(each) for each in comparison.differences]}


def _difference(each: Difference) -> dict[str, Any]:
    return {
        "method": each.method,
        "n_classes": each.n_classes,
        "number": None if each.interval is None else repr(each.interval.mean),
        "difference": show(each.interval, signed=True, digits=2),
        "p": MISSING if each.verdict is None else p_text(each.verdict.corrected),
        "verdict": "" if each.verdict is None else each.verdict.word,
        "n": 0 if each.interval is None else each.interval.n,
    }


def _accuracy_rows(begun: dict[str, Results]) -> list[dict[str, Any]]:
    methods = dict.fromkeys(method for results in begun.values() for method in results.methods)
    rows = []
    for method in methods:
        cells = []
        for results in begun.values():
            value = accuracy_at()(results, method) if results.outcomes.get(method) else None
            cells.append({"number": None if value is None else repr(value.mean), "text": show(value)})
        rows.append({"method": method, "cells": cells})
    return rows


def _run_row(record: StudyRecord, run: StudyRun, results: Results | None, groups: list[list[str]]) -> dict[str, Any]:
    name, data = run.name, run.config.data.name
    has_report = (record.run(name).folder / "report.html").exists()
    letter = next((_letter(place) for place, group in enumerate(groups) if name in group), MISSING)
    return {
        "name": name,
        "link": f"runs/{name}/report.html" if has_report else None,
        "data": data if results is None else f"{data}: {describe_run(results)}",
        "base": shown_path(run.config.base.use or "trained for this run"),
        "n_sequences": MISSING if results is None else results.n_sequences,
        "cells": "not begun" if results is None else f"{results.n_done} of {results.n_cells}",
        "group": letter,
    }


def _letter(place: int) -> str:
    return chr(ord("A") + place) if place < 26 else str(place + 1)


def _sentence(study: Study, groups: list[list[str]]) -> str:
    n_bases = "no base" if not study.bases else "1 base" if len(study.bases) == 1 else f"{len(study.bases)} bases"
    runs = "1 run" if len(study.runs) == 1 else f"{len(study.runs)} runs"
    together = [group for group in groups if len(group) > 1]
    paired = (
        f"Differences are taken within {len(together)} group{'s' if len(together) > 1 else ''} of runs that meet the same "
        "sequences of tasks."
        if together
        else "No two runs meet the same sequences of tasks, so no differences are taken."
    )
    return f"{runs}, {n_bases} trained for it. {paired}"


def _results(record: StudyRecord, name: str) -> Results | None:
    run = record.run(name)
    return read_results(run) if run.about_path.exists() else None


def _summary(record: StudyRecord, name: str) -> str:
    path = record.network_path(name)
    return str(load_base_with_details(str(path))[1].get("summary", "")) if path.exists() else "not trained yet"
