"""A run as one HTML file that needs nothing else: no network, no font, no other file; its script is part of it.

Same run directory, same bytes: the page carries no time and no path of the machine that wrote it.
"""

import base64
import shlex
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from fscl.continual.registry import find_method, method_name
from fscl.errors import MisuseError
from fscl.experiment.record import RunRecord
from fscl.experiment.toml import toml_value
from fscl.plugins import is_reference
from fscl.report.commands import run_command, shown_path, toml_listing
from fscl.report.contents import DATA_FILES, GALLERIES, INTRODUCTIONS, SECTIONS, TABLES, figure_specs
from fscl.report.figures.lines import to_csv
from fscl.report.figures.svg import stand_alone
from fscl.report.results import Results, read_results
from fscl.report.sentence import summary_sentence
from fscl.report.shell import page_script, page_style, script_hash, typeset
from fscl.report.spec import FigureSpec, Gallery, Measure, Picture
from fscl.report.table import Cell, Table, describe_run, make_table
from fscl.report.writers.csv_file import csv_text
from fscl.report.writers.latex import latex_table
from fscl.report.writers.markdown import markdown_table
from fscl.storage import leaves, write_bytes

MOST_IN_LINK = 2**20  # characters; browsers refuse to save much longer links
WRITERS = {
    "csv": ("CSV", "text/csv", csv_text),
    "tex": ("LaTeX", "application/x-tex", latex_table),
    "md": ("Markdown", "text/markdown", markdown_table),
}


@dataclass(frozen=True)
class Download:
    """A file that lies beside the page; `link` holds the whole of it, or is None where it is too long for one."""

    label: str
    path: str
    name: str
    link: str | None


@dataclass(frozen=True)
class ShownTable:
    """A table on the page, what is said below it, and its files."""

    table: Table
    note: str
    downloads: list[Download]


@dataclass(frozen=True)
class ShownFigure:
    """A figure on the page, and the file of its numbers."""

    heading: str
    svg: Markup
    caption: str
    download: Download


@dataclass(frozen=True)
class Section:
    """What stands under one heading."""

    heading: str
    introduction: str
    tables: list[ShownTable]
    figures: list[ShownFigure]
    galleries: list[tuple[Gallery, list[Picture]]]


@dataclass(frozen=True)
class MethodNote:
    """A method in words: what it is, where it comes from, and the settings that differ from its row of the table."""

    name: str
    summary: str
    source: str
    settings: str


def write_report(record: RunRecord, out: Path | None = None) -> Path:
    """Write the page, its tables and its figures into `out`, or into the run directory, and return the path of the page."""
    results = read_results(record)
    folder = record.folder if out is None else out
    tables = [make_table(spec, results) for spec in TABLES]
    figures = {spec.name: spec.draw(results) for spec in figure_specs(results)}
    texts = table_texts(results, tables) | figure_texts(results)
    texts |= {f"figures/{name}.svg": stand_alone(svg) for name, svg in figures.items()}
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
    page = folder / "report.html"
    write_bytes(page, render_page(results, tables, figures, texts, shown_path(str(record.folder))).encode())
    return page


def table_texts(results: Results, tables: list[Table]) -> dict[str, str]:
    """The files of tables, by path: each in every format, and the data that no table shows."""
    texts = {f"{table.name}.{suffix}": write(table) for table in tables for suffix, (_, _, write) in WRITERS.items()}
    return texts | {f"{file.name}.csv": to_csv(file.rows(results)) for file in DATA_FILES}


def figure_texts(results: Results) -> dict[str, str]:
    """The numbers that figures show, by path."""
    return {f"figures/{spec.name}.csv": to_csv(spec.data(results)) for spec in figure_specs(results)}


def render_page(
    results: Results, tables: list[Table], figures: dict[str, str], texts: dict[str, str], folder: str
) -> str:
    """The page as text.

    Args:
        results: the run.
        tables: one for each of `TABLES`.
        figures: the SVG of each figure, by name.
        texts: the files beside the page, by path.
        folder: what the commands on the page call the run directory.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["attributes"] = _attributes
    environment.filters["typeset"] = typeset
    environment.filters["heading"] = lambda heading: heading[:1].upper() + heading[1:]
    environment.filters["png"] = _data_address
    script, style = page_script(), page_style()
    template = environment.from_string((files("fscl.report") / "page.html.j2").read_text("utf-8"))
    return template.render(
        results=results,
        about=results.about,
        config=results.about["config"],
        sentence=summary_sentence(results),
        sections=_sections(results, tables, figures, texts),
        glossary=_glossary(tables),
        style=style,
        script=script,
        script_hash=script_hash(script),
        methods=[_note(results, method) for method in results.methods],
        stream=describe_run(results),
        command=run_command(results.about["config"], folder),
        listed_command=shlex.join(["fscl", "run", f"{results.name}.toml", "--out", folder]),
        report_command=shlex.join(["fscl", "report", folder]),
        listing=toml_listing(results.about["config"]),
    )


def _sections(results: Results, tables: list[Table], figures: dict[str, str], texts: dict[str, str]) -> list[Section]:
    specs = figure_specs(results)
    galleries = [(gallery, pictures) for gallery in GALLERIES if (pictures := gallery.pictures(results))]
    known = [*SECTIONS, *(spec.section for spec in TABLES), *(spec.section for spec in specs)]
    known += [gallery.section for gallery, _ in galleries]
    found = [
        Section(
            heading,
            INTRODUCTIONS.get(heading, ""),
            [
                ShownTable(table.only(_on_page), spec.note(results), _downloads(results, spec.name, heading, texts))
                for spec, table in zip(TABLES, tables, strict=True)
                if spec.section == heading and table.rows
            ],
            [_shown(results, spec, figures[spec.name], texts) for spec in specs if spec.section == heading],
            [(gallery, pictures) for gallery, pictures in galleries if gallery.section == heading],
        )
        for heading in dict.fromkeys(known)
    ]
    return [section for section in found if section.tables or section.figures or section.galleries]


def _data_address(png: bytes) -> Markup:
    address = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return Markup(address)  # base64 has no sign of HTML  # nosec B704


def _shown(results: Results, spec: FigureSpec, svg: str, texts: dict[str, str]) -> ShownFigure:
    download = _download(results, "Download the data (CSV)", f"figures/{spec.name}.csv", "text/csv", texts)
    drawn = Markup(svg)  # made by matplotlib, which escapes what it writes  # nosec B704
    return ShownFigure(spec.heading, drawn, spec.caption(results), download)


def _downloads(results: Results, name: str, section: str, texts: dict[str, str]) -> list[Download]:
    found = [_download(results, label, f"{name}.{suffix}", kind, texts) for suffix, (label, kind, _) in WRITERS.items()]
    more = [file for file in DATA_FILES if file.section == section]
    return found + [_download(results, file.label, f"{file.name}.csv", "text/csv", texts) for file in more]


def _download(results: Results, label: str, path: str, kind: str, texts: dict[str, str]) -> Download:
    return Download(label, path, f"{results.name}-{Path(path).name}", data_link(kind, texts[path]))


def data_link(kind: str, text: str) -> str | None:
    """A link that holds a whole file; None where the file is too long for one."""
    link = f"data:{kind};charset=utf-8,{quote(text, safe=',:;=@/')}"
    return link if len(link) <= MOST_IN_LINK else None


def _on_page(measure: Measure) -> bool:
    return measure.page


def _glossary(tables: list[Table]) -> dict[str, str]:
    """What the measures shown mean, by heading."""
    shown = [measure for table in tables for measure in table.only(_on_page).measures]
    return {measure.heading: measure.meaning for measure in shown if measure.meaning}


def _attributes(cell: Cell) -> Markup:
    """Of a cell: the number by which its column sorts, and how it looks."""
    number = "" if cell.number is None else f' data-value="{cell.number!r}"'
    look = ' class="clear"' if cell.significant else ' class="soft"' if cell.is_reference else ""
    return Markup(number + look)  # a number and words of this function  # nosec B704


def _note(results: Results, name: str) -> MethodNote:
    settings = leaves(results.about["config"]["settings"].get(name, {}))
    if is_reference(method_name(name)):  # its module would have to be imported
        return MethodNote(name, "A method of another package.", "", _settings(settings))
    try:
        method = find_method(name)
    except MisuseError:
        return MethodNote(name, "Not a method of this fscl.", "", _settings(settings))
    usual = leaves(method.settings_in_force().model_dump(mode="json"))
    changed = {key: value for key, value in settings.items() if key not in usual or usual[key] != value}
    return MethodNote(name, method.summary, method.source, _settings(changed))


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {toml_value(value)}" for key, value in settings.items())
