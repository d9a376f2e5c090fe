"""Hand-written pages: few numbers in a sentence, and every figure is one that a committed summary holds."""

import re
from pathlib import Path

import pytest

from docs.tools.known_figures import is_known, known_figures, photograph_figures
from docs.tools.prose import FIGURE, crowded, figures, numbers, sentences
from docs.tools.runs import summaries
from docs.tools.site import DOCS, ROOT

ELSEWHERE = {"serve.md", "systems.md", "claims.md"}  # tables of figures, and lists of numbers that are names
RECORDS = "decisions/"  # what was known when something was decided
PAGES = [
    path
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    if path.name not in ELSEWHERE and RECORDS not in path.relative_to(ROOT).as_posix()
]
WITH_FIGURES = [ROOT / "README.md", *(DOCS / "explanation").glob("*.md")]
WITH_FIGURES += [
    DOCS / "benchmarks" / f"{name}.md" for name in ("reproduction", "transfer", "natural-images", "choices")
]
CONSTANTS = {"0.05", "0.3", "0.01", "0.1"}  # settings that pages speak of, not figures


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_sentence_has_more_than_two_numbers(page: Path):
    assert crowded(page.read_text("utf-8")) == []


def test_numbers_are_told_from_names():
    assert numbers("Table 2 has 93.3 ± 0.7 % after 50 classes, 5-way 5-shot, with Conv-4 in 2021.") == [
        "93.3 ± 0.7",
        "50",
    ]
    assert numbers("By 1,200 points (−0.4) of 32×32 pixels.") == ["1,200", "−0.4"]
    text = "# 1 2 3\n\n- One. Two `1 2 3` is\n  not 4.\n- Three\n\n    code 1 2 3\n\n| 1 | 2 | 3 |\n\n```\n1 2 3\n```\n"
    assert list(sentences(text)) == ["One.", "Two is not 4.", "Three"]
    assert crowded("From 1 to 2 by 3. And 4.") == ["From 1 to 2 by 3."]


@pytest.mark.parametrize("page", WITH_FIGURES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_figure_is_in_the_summary_of_a_run_that_the_page_links_to(page: Path):
    text = page.read_text("utf-8")
    runs = set(re.findall(r"runs/([a-z0-9-]+)\.md", text)) - {"index"}
    assert runs <= set(summaries())
    known = frozenset().union(*map(known_figures, runs), photograph_figures() if "photographs.py" in text else ())
    tables = [found for line in text.splitlines() if line.startswith("|") for found in FIGURE.findall(line)]
    shown = [found for found in figures(text) + tables if found[1] or found[0].lstrip("+-−") not in CONSTANTS]
    assert [found for found in shown if not is_known(*found, known)] == []


def test_a_figure_that_no_summary_has_is_noticed():
    known = known_figures("omniglot-augmented")
    assert is_known("95.83", "0.84", known)
    assert is_known("+0.9", "0.6", known)
    assert not is_known("95.83", "0.94", known)
    assert not is_known("95.85", "0.84", known)
    assert is_known("4.6", "1.7", photograph_figures())
