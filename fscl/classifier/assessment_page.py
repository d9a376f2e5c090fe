"""What a test found: a table on the terminal, a CSV file, and one HTML file that needs nothing else."""

import base64
import csv
import io
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray
from PIL import Image
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fscl.classifier.assessment import Answer, Assessment, ClassResult, Share
from fscl.classifier.words import cell

MOST_CONFUSED = 5  # pairs on the terminal
MOST_MISTAKES = 5
MOST_SHOWN = 60  # mistakes with pictures on the page
THUMBNAIL = 128  # pixels a side at most
COLUMNS = ("image", "label", "answer", "probability", "right", "unknown", "known_class")


def with_interval(share: Share) -> str:
    """A share in per cent with its 95 % interval and what it is of."""
    if not share.n:
        return "none asked"
    low, high = share.interval
    return f"{100 * share.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}], {share.count} of {share.n}"


def summary_lines(assessment: Assessment) -> list[str]:
    """The figures of a test, a line each."""
    lines = [f"accuracy: {with_interval(assessment.accuracy)} (95 % interval)"] if assessment.answers else []
    if assessment.n_taught:
        verb = "picture is" if assessment.n_taught == 1 else "pictures are"
        lines.append(f"{assessment.n_taught} {verb} among those taught: leave them out for an honest figure")
    if not assessment.can_reject:
        return [*lines, "unknown: no stored class has two examples, so there is no threshold"]
    if assessment.answers:
        lines.append(f"called unknown although the class is known: {with_interval(assessment.called_unknown)}")
    if assessment.strangers:
        n = len(assessment.stranger_classes)
        what = f"{n} {'class' if n == 1 else 'classes'} that the model does not know"
        lines.append(f"pictures of {what}, called unknown: {with_interval(assessment.caught)}")
    return lines


def print_assessment(assessment: Assessment, console: Console) -> None:
    """The figures, a table of the classes, what is confused most, and the surest mistakes."""
    for line in summary_lines(assessment):
        console.print(Text(line), soft_wrap=True)
    console.print(_table(assessment), crop=False)
    for pair in assessment.confusions[:MOST_CONFUSED]:
        times = "once" if pair.n == 1 else f"{pair.n} times"
        console.print(Text(f"confused: {pair.label} taken for {pair.answer}, {times}"), soft_wrap=True)
    for each in assessment.mistakes[:MOST_MISTAKES]:
        sure = f"{100 * each.found.probability:.1f} %"
        console.print(
            Text(f"mistake: {each.source or 'a picture'} is {each.label}, answered {each.found.label}, {sure}"),
            soft_wrap=True,
        )


def _table(assessment: Assessment) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("class", overflow="fold")
    for head in ("pictures", "right", "95 % interval", "unknown"):
        table.add_column(head, justify="right", no_wrap=True)
    for result in assessment.per_class:
        low, high = result.right.interval
        cells = (
            str(result.right.n),
            f"{100 * result.right.value:.1f} %",
            f"{100 * low:.0f} to {100 * high:.0f} %",
            str(result.unknown.count),
        )
        table.add_row(Text(str(result.label)), *cells)
    for result in assessment.stranger_classes:
        table.add_row(Text(f"{result.label} (not known)"), str(result.right.n), "", "", str(result.unknown.count))
    return table


def csv_text(assessment: Assessment) -> str:
    """One row a picture."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(COLUMNS)
    for known, answers in ((True, assessment.answers), (False, assessment.strangers)):
        for each in answers:
            sure = f"{each.found.probability:.4f}"
            flags = (str(flag).lower() for flag in (each.right, each.found.unknown, known))
            table.writerow([*map(cell, (each.source, each.label, each.found.label)), sure, *flags])
    return text.getvalue()


def html_page(assessment: Assessment, title: str) -> str:
    """A page with the figures, the classes, what is confused, and the mistakes with their pictures."""
    template = files("fscl.classifier").joinpath("assessment.html.j2").read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        title=title,
        lines=summary_lines(assessment),
        classes=[_class_cells(each) for each in assessment.per_class],
        strangers=[_class_cells(each) for each in assessment.stranger_classes],
        confusions=assessment.confusions[:20],
        mistakes=[_mistake(each) for each in assessment.mistakes[:MOST_SHOWN]],
        n_mistakes=len(assessment.mistakes),
    )


def _class_cells(result: ClassResult) -> dict[str, str]:
    return {
        "label": str(result.label),
        "n": str(result.right.n),
        "right": with_interval(result.right),
        "unknown": with_interval(result.unknown),
    }


def _mistake(each: Answer) -> dict[str, Any]:
    near = each.found.nearest[0] if each.found.nearest else None
    return {
        "picture": thumbnail(each.picture),
        "source": each.source or "a picture",
        "label": str(each.label),
        "answer": str(each.found.label),
        "probability": f"{100 * each.found.probability:.1f} %",
        "unknown": each.found.unknown,
        "nearest": None if near is None else f"{near.source} ({near.label})" if near.source else str(near.label),
    }


def thumbnail(pixels: NDArray[np.generic]) -> str | None:
    """A picture (c, h, w) as the address of an image that holds itself; None for a row of numbers."""
    if pixels.ndim != 3:
        return None
    last = np.ascontiguousarray(pixels.transpose(1, 2, 0).astype(np.uint8))
    image = Image.fromarray(last[..., 0] if last.shape[2] == 1 else last)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    content, kind = io.BytesIO(), "PNG" if max(image.size) <= 64 else "JPEG"
    image.save(content, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(content.getvalue()).decode()}"
