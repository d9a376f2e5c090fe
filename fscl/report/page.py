"""A run as one HTML file that needs nothing else: no network, no font, no other file; its script is part of it.

Same run directory, same bytes: the page carries no time and no path of the machine that wrote it.
"""

import base64
import hashlib
import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from fscl.continual.registry import find_method
from fscl.errors import ConfigError, MisuseError
from fscl.evaluation.metrics import Interval
from fscl.experiment.config import load_config, load_plan, shipped_configs
from fscl.experiment.confused import Confusion
from fscl.experiment.record import RunRecord
from fscl.report.figure_data import Rows, accuracy_rows, confusion_rows, seconds_rows, to_csv
from fscl.report.figures import accuracy_svg, bands_shown, confusion_svg, seconds_svg, stand_alone
from fscl.report.interference import drift_rows, drift_svg, fisher_rows, fisher_svg, penalties_rows, penalties_svg
from fscl.report.latex import latex_table, latex_two_sides
from fscl.report.results import Results, read_results
from fscl.report.tables import ACCURACY, SummaryTable, csv_text, show, show_seconds, summarise, what_intervals
from fscl.report.transfer import (
    class_rows,
    cost_table,
    costs,
    probed_sides,
    probing_share,
    shown_moments,
    transfer_rows,
    two_sides,
    two_sides_rows,
    two_sides_table,
)
from fscl.report.two_sides import transfer_svg, two_sides_svg
from fscl.report.words import both_sides, sentences, setting, typeset
from fscl.storage import leaves, write_bytes

Table = Sequence[Sequence[object]]  # the first row is the heading
MOST_IN_LINK = 2**20  # characters; browsers refuse to save much longer links
TABLES: dict[str, Callable[[Results], Rows]] = {
    "two-sides": two_sides_table,
    "cost": cost_table,
    "classes": class_rows,
}
FIGURES: dict[str, tuple[Callable[[Results], str], Callable[[Results], Table]]] = {
    "accuracy": (accuracy_svg, accuracy_rows),
    "confusion": (confusion_svg, confusion_rows),
    "seconds": (seconds_svg, seconds_rows),
}
INSIDE_FIGURES: dict[str, tuple[Callable[[Results], str], Callable[[Results], Table]]] = {
    "drift": (drift_svg, drift_rows),
    "fisher": (fisher_svg, fisher_rows),
    "penalties": (penalties_svg, penalties_rows),
}
PROBE_FIGURES = {"two_sides": (two_sides_svg, two_sides_rows), "transfer": (transfer_svg, transfer_rows)}


@dataclass(frozen=True)
class DrawnFigure:
    """A figure, and the numbers it shows as the text of a CSV file."""

    svg: str
    data: str


@dataclass(frozen=True)
class MethodNote:
    """A method in words: what it is, where it comes from, and the settings that differ from its row of the table."""

    name: str
    summary: str
    source: str
    settings: str


def write_report(record: RunRecord, out: Path | None = None) -> Path:
    """Write the page, the table and the figures into `out`, or into the run directory, and return the path of the page."""
    results = read_results(record)
    table = summarise(results)
    folder = record.folder if out is None else out
    page = folder / "report.html"
    figures = draw_figures(results)
    texts = {"table.csv": csv_text(table), "table.tex": latex_table(table)}
    texts |= {f"{name}.csv": to_csv(rows(results)) for name, rows in TABLES.items()}
    for name, figure in figures.items():
        texts |= {f"figures/{name}.svg": stand_alone(figure.svg), f"figures/{name}.csv": figure.data}
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
    write_bytes(page, render_page(results, table, figures, shown_path(str(record.folder))).encode())
    return page


def draw_figures(results: Results) -> dict[str, DrawnFigure]:
    """The figures by name; none where nothing has finished."""
    if not results.n_done:
        return {}
    wanted = {**FIGURES, **(PROBE_FIGURES if "novel" in probed_sides(results) else {}), **INSIDE_FIGURES}
    drawn = {name: (draw(results), rows) for name, (draw, rows) in wanted.items()}
    return {name: DrawnFigure(svg, to_csv(rows(results))) for name, (svg, rows) in drawn.items() if svg}


def render_page(results: Results, table: SummaryTable, figures: dict[str, DrawnFigure], folder: str) -> str:
    """The page as text; `folder` is what the commands in it call the run directory."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["interval"] = lambda value: typeset(show(value))
    environment.filters["signed"] = lambda value: typeset(show(value, signed=True))
    environment.filters["change"] = lambda value: typeset(show(value, signed=True, digits=2))
    environment.filters["seconds"] = lambda value: typeset(show_seconds(value))
    environment.filters["kibibytes"] = lambda value: "–" if value is None else f"{value / 2**10:,.0f}"
    environment.filters["millions"] = lambda value: "–" if math.isnan(value) else f"{value / 1e6:,.0f}"
    environment.filters["mebibytes"] = lambda value: "–" if value is None else f"{value / 2**20:,.0f}"
    environment.filters["value"] = _value
    script = (files("fscl.report") / "page.js").read_text("utf-8")
    template = environment.from_string((files("fscl.report") / "page.html.j2").read_text("utf-8"))
    return template.render(
        table=table,
        about=results.about,
        config=results.about["config"],
        accuracy=ACCURACY,
        intervals=what_intervals(table),
        sentences=[*sentences(table, results.about["data"]["pool"]), *both_sides(results)],
        two_sides=two_sides(results),
        costs=costs(results),
        sides=probed_sides(results),
        moments=shown_moments(results),
        probing_share=probing_share(results),
        confusions=_pictures(results),
        table_links={name: _link("text/csv", to_csv(rows(results))) for name, rows in TABLES.items()},
        two_sides_latex=_link("application/x-tex", latex_two_sides(two_sides(results), shown_moments(results))),
        figures={name: Markup(figure.svg) for name, figure in figures.items()},
        figure_links={name: _link("text/csv", figure.data) for name, figure in figures.items()},
        csv_link=_link("text/csv", csv_text(table)),
        latex_link=_link("application/x-tex", latex_table(table)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        bands=bands_shown(results),
        inside=[name for name in INSIDE_FIGURES if name in figures],
        watched=bool(results.watched),
        sheets={method: base64.b64encode(sheet).decode() for method, sheet in results.sheets.items()},
        methods=[_note(results, method) for method in results.methods],
        setting=setting(table),
        command=run_command(results.about["config"], folder),
        listed_command=shlex.join(["fscl", "run", f"{table.name}.toml", "--out", folder]),
        report_command=shlex.join(["fscl", "report", folder]),
        listing=toml_listing(results.about["config"]),
    )


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
    before, now = leaves(shipped), leaves(config)
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
    for key in ("data", "base_data"):
        if content.get(key, {}).get("path") is not None:
            content[key] = {**content[key], "path": shown_path(content[key]["path"])}
    return "\n".join(_toml_section((), content)).strip() + "\n"


def shown_path(path: str) -> str:
    """A path as it was given; of an absolute one, which says more of the machine than of the run, the last part."""
    for flavour in (PurePosixPath(path), PureWindowsPath(path)):
        if flavour.is_absolute():
            return flavour.name
    return path


def _pictures(results: Results) -> dict[str, list[tuple[Confusion, Markup]]]:
    """For each method its worst confusions, with their pictures as links."""
    return {
        method: [(pair, Markup(f"data:image/png;base64,{base64.b64encode(pair.png()).decode()}")) for pair in pairs]
        for method, pairs in results.confusions.items()
    }


def _note(results: Results, name: str) -> MethodNote:
    settings = leaves(results.about["config"]["settings"].get(name, {}))
    try:
        method = find_method(name)
    except MisuseError:
        return MethodNote(name, "Not a method of this fscl.", "", _settings(settings))
    usual = leaves(method.settings_in_force().model_dump(mode="json"))
    changed = {key: value for key, value in settings.items() if key not in usual or usual[key] != value}
    return MethodNote(name, method.summary, method.source, _settings(changed))


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {_toml(value)}" for key, value in settings.items())


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


def _value(number: Interval | float | None) -> Markup:
    """The attribute of a cell by which its column sorts; none where nothing was measured."""
    mean = number.mean if isinstance(number, Interval) else number
    return Markup("") if mean is None or math.isnan(mean) else Markup(f' data-value="{mean!r}"')


def _link(kind: str, text: str) -> str | None:
    """A link that holds a whole file; None where the file is too long for one."""
    link = f"data:{kind};charset=utf-8,{quote(text, safe=',:;=@/')}"
    return link if len(link) <= MOST_IN_LINK else None
