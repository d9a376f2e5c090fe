"""A run as one HTML file that needs nothing else: no network, no script, no font.

Same run directory, same bytes: the page carries no time and no path of the machine that wrote it.
"""

import base64
import json
import re
import shlex
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from fscl.continual.methods import METHODS
from fscl.errors import ConfigError
from fscl.experiment.config import load_config, load_plan, shipped_configs
from fscl.experiment.record import RunRecord
from fscl.report.figures import accuracy_svg, bands_shown, confusion_svg, seconds_svg
from fscl.report.interference import interference_figures, write_interference
from fscl.report.results import Results, read_results
from fscl.report.tables import ACCURACY, Row, SummaryTable, show, show_seconds, summarise, what_intervals, write_csv
from fscl.storage import write_bytes

MOST_IN_WORDS = 6  # methods whose figures are told in a sentence


@dataclass(frozen=True)
class MethodNote:
    """A method in words: what it is, where it comes from, and the dials that differ from its row of the table."""

    name: str
    summary: str
    source: str
    dials: str


def write_report(record: RunRecord, out: Path | None = None) -> Path:
    """Write `report.html` and `table.csv` into `out`, or into the run directory, and return the path of the page."""
    results = read_results(record)
    table = summarise(results)
    folder = record.folder if out is None else out
    page = folder / "report.html"
    write_csv(table, folder / "table.csv")
    write_interference(results, folder)
    write_bytes(page, render_page(results, table, shown_path(str(record.folder))).encode())
    return page


def render_page(results: Results, table: SummaryTable, folder: str) -> str:
    """The page as text; `folder` is what the commands in it call the run directory."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["interval"] = lambda value: _typeset(show(value))
    environment.filters["signed"] = lambda value: _typeset(show(value, signed=True))
    environment.filters["seconds"] = lambda value: _typeset(show_seconds(value))
    environment.filters["mebibytes"] = lambda value: "–" if value is None else f"{value / 2**20:,.0f}"
    template = environment.from_string((files("fscl.report") / "page.html.j2").read_text("utf-8"))
    figures = {"accuracy": accuracy_svg, "confusion": confusion_svg, "seconds": seconds_svg}
    return template.render(
        table=table,
        about=results.about,
        config=results.about["config"],
        accuracy=ACCURACY,
        intervals=what_intervals(table),
        sentences=sentences(table, results.about["data"]["pool"]),
        figures={name: Markup(draw(results)) for name, draw in figures.items()} if results.n_done else {},
        bands=bands_shown(results),
        interference={name: Markup(svg) for name, svg in interference_figures(results).items()},
        watched=bool(results.watched),
        sheets={method: base64.b64encode(sheet).decode() for method, sheet in results.sheets.items()},
        methods=[_note(results, method) for method in results.methods],
        setting=_setting(table),
        command=run_command(results.about["config"], folder),
        listed_command=shlex.join(["fscl", "run", f"{table.name}.toml", "--out", folder]),
        report_command=shlex.join(["fscl", "report", folder]),
        listing=toml_listing(results.about["config"]),
    )


def sentences(table: SummaryTable, pool: str) -> list[str]:
    """What was run and what came out, in words. A difference is claimed only where its paired interval excludes zero."""
    n_methods, n_sequences = len(table.rows), table.n_sequences
    asked = (
        f"{_count(n_methods, 'method')} learned {_setting(table)}, and had to tell all classes apart without being told "
        f"the task: {_count(n_sequences, 'sequence')} of tasks from {pool}."
    )
    measured = [row for row in table.rows if row.n_sequences]
    if not measured:
        return [asked, "No cell has finished yet, so there is nothing to compare."]
    first, *others = measured
    stream = table.stream
    when = f"{stream.n_labels} classes" if stream.interval == 1 and not stream.overwrite else f"{stream.n_tasks} tasks"
    if len(measured) > MOST_IN_WORDS:
        return [asked, f"After {when}, {_best(measured, table.reference)}", *_comparison(table)]
    answers = [f"{first.method} answers {_percent(first)} of the test images right"]
    answers += [f"{row.method} {_percent(row)}" for row in others]
    return [asked, f"After {when}, {'; '.join(answers)}.", *_comparison(table)]


def _best(rows: list[Row], reference: str) -> str:
    """The best of many methods, and the reference; the rest is for the table."""
    best = sorted(rows, key=lambda row: -row.final.mean)[:3]
    rest = [row for row in rows if row.method == reference and row not in best]
    shown = _list([f"{row.method} ({_percent(row)})" for row in best])
    compared = "".join(f"; {row.method} answers {_percent(row)}" for row in rest)
    return f"{shown} answer most of the test images right{compared}. The table has them all."


def run_command(config: dict[str, Any], folder: str | None) -> str | None:
    """The command that makes this run from a shipped configuration (in its usual folder unless one is given); None where
    only the listing can."""
    out = [] if folder is None else ["--out", folder]
    name = str(config["name"])
    for plan in _plans_with(name):
        if any(part.resolved() == config for part in load_plan(plan).configs):
            return shlex.join(["fscl", "run", plan, "--part", name, *out])
    if name not in shipped_configs() or _plans_with(name):
        return None
    shipped = load_config(name).resolved()
    before, now = _leaves(shipped), _leaves(config)
    changed = {key: value for key, value in now.items() if value is not None and value != before.get(key)}
    if any(isinstance(value, str) and shown_path(value) != value for value in changed.values()):
        return None
    overrides = [f"{key}={_toml(value)}" for key, value in changed.items()]
    try:
        if load_config(name, overrides).resolved() != config:
            return None
    except ConfigError:
        return None
    return shlex.join(["fscl", "run", name, *overrides, *out])


def _plans_with(name: str) -> list[str]:
    """The shipped configurations of several parts, one of which is called so."""
    plans = {plan: load_plan(plan).configs for plan in shipped_configs()}
    return [plan for plan, parts in plans.items() if len(parts) > 1 and any(part.name == name for part in parts)]


def toml_listing(config: dict[str, Any]) -> str:
    """A configuration file with every value in force; absolute paths are cut to their last part."""
    content = {key: value for key, value in config.items() if value is not None}
    base = content["base"]
    if base.get("use") is not None:
        content["base"] = {"use": shown_path(base["use"])}  # the rest of the section had no effect
    if content["data"].get("path") is not None:
        content["data"] = {**content["data"], "path": shown_path(content["data"]["path"])}
    return "\n".join(_toml_section((), content)).strip() + "\n"


def shown_path(path: str) -> str:
    """A path as it was given; of an absolute one, which says more of the machine than of the run, the last part."""
    for flavour in (PurePosixPath(path), PureWindowsPath(path)):
        if flavour.is_absolute():
            return flavour.name
    return path


def _comparison(table: SummaryTable) -> list[str]:
    if not table.has_reference:
        return [f"The reference {table.reference} has no finished sequence here, so no differences are given."]
    compared = [row for row in table.rows if row.difference is not None]
    if not compared:
        return []
    if all(row.difference is not None and row.difference.n < 2 for row in compared):
        return ["One sequence gives no interval, so no difference between methods is claimed."]
    better = [_points(row) for row in compared if row.differs and row.difference and row.difference.mean > 0]
    worse = [_points(row) for row in compared if row.differs and row.difference and row.difference.mean < 0]
    open_ = [row.method for row in compared if not row.differs]
    parts = [
        f"{_list(names)} {'answers' if len(names) == 1 else 'answer'} {how} right than {table.reference}"
        for names, how in ((better, "more"), (worse, "fewer"))
        if names
    ]
    claims = [f"On the same sequences, {', and '.join(parts)} (differences in percentage points)."] if parts else []
    if len(better) + len(worse) > MOST_IN_WORDS:
        counts = [(better, "more"), (worse, "fewer")]
        told = [f"{_count(len(names), 'method')} answer {how}" for names, how in counts if names]
        claims = [
            f"On the same sequences, {' and '.join(told)} right than {table.reference}; the table says by how much."
        ]
    if open_:
        claims.append(f"No difference from {table.reference} is shown for {_list(open_)}: the interval includes zero.")
    return claims


def _points(row: Row) -> str:
    return f"{row.method} ({_together(_typeset(show(row.difference, signed=True)))})"


def _percent(row: Row) -> str:
    mean = f"{row.final.mean:.1f} %"
    return _together(mean if row.final.n < 2 else f"{mean} ± {row.final.half_width:.1f}")


def _setting(table: SummaryTable) -> str:
    stream = table.stream
    shots = f"{_count(stream.n_shot, 'example')} a class"
    tasks = _count(stream.n_tasks, "task")
    if stream.setting == "new_instance":
        return f"{tasks} with the same {_count(stream.n_way, 'class')}, each time from {shots} never seen before"
    if stream.setting == "mixed":
        take_over = ", the new ones under the labels of the old" if stream.overwrite else ""
        period = _count(stream.interval, "task")
        return (
            f"{tasks} of {_count(stream.n_way, 'class')} that change every {period}{take_over}, from {shots} each time"
        )
    return f"{tasks} of {_count(stream.n_way, 'new class')}{' each' if stream.n_tasks > 1 else ''}, from {shots}"


def _note(results: Results, name: str) -> MethodNote:
    method, dials = METHODS.get(name.partition("@")[0]), results.about["config"]["dials"].get(name, {})
    if method is None:
        return MethodNote(name, "Not a method of this fscl.", "", _dials(dials))
    usual = {} if method.dials is None else method.dials.model_dump(mode="json")
    changed = {key: value for key, value in dials.items() if key not in usual or usual[key] != value}
    return MethodNote(name, method.summary, method.source, _dials(changed))


def _dials(dials: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {_toml(value)}" for key, value in dials.items())


def _leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        path: leaf
        for key, inner in value.items()
        for path, leaf in _leaves(inner, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def _toml_section(path: tuple[str, ...], content: dict[str, Any]) -> list[str]:
    values = {key: value for key, value in content.items() if not isinstance(value, dict) and value is not None}
    sections = {key: value for key, value in content.items() if isinstance(value, dict)}
    lines = ["", f"[{'.'.join(_key(part) for part in path)}]"] if path and values else []
    lines += [f"{_key(key)} = {_toml(value)}" for key, value in values.items()]
    for key, inner in sections.items():
        lines += _toml_section((*path, key), inner)
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _toml(value: Any) -> str:
    """A JSON value without objects; JSON and TOML agree on those."""
    return json.dumps(value, ensure_ascii=False)


def _typeset(number: str) -> str:
    """A true minus before digits, and a dash for what is missing."""
    return re.sub(r"-(?=\d)", "−", number).replace("-", "–")


def _together(text: str) -> str:
    """Kept on one line."""
    return text.replace(" ", "\u00a0")


def _count(n: int, noun: str) -> str:
    if n == 1:
        return f"1 {noun}"
    return f"{n} {noun}es" if noun.endswith("s") else f"{n} {noun}s"


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
