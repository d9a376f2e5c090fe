"""The site is built with no network, every link in it leads somewhere, and every page stands in a section."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.tools.links import anchors, broken_links, mend
from docs.tools.site import DOCS, OUTSIDE, stage, staged_pages
from tests.children import run_child
from tests.conftest import ROOT

NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]


@pytest.fixture(scope="module")
def staged() -> tuple[dict[str, str], set[str]]:
    pages, files = staged_pages()
    return pages, set(files)


def pages_of(nav: Any) -> Iterator[str]:
    for entry in nav:
        (inside,) = [entry] if isinstance(entry, str) else entry.values()
        yield from [inside] if isinstance(inside, str) else pages_of(inside)


def test_no_link_is_broken(staged: tuple[dict[str, str], set[str]]):
    assert broken_links(*staged) == []


def test_every_page_stands_in_one_section(staged: tuple[dict[str, str], set[str]]):
    shown = list(pages_of(NAV))
    assert len(shown) == len(set(shown))
    assert set(shown) <= set(staged[0])
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | set(OUTSIDE.values())
    homeless = {page for page in written - set(shown) if not page.startswith("decisions/") and page in staged[0]}
    assert homeless == set(), "add them to `nav` in mkdocs.yml"


def test_the_sections_are_those_that_readers_know():
    names = [name for entry in NAV for name in entry]
    assert names == ["Home", "Tutorials", "How-to", "Reference", "Explanation", "Benchmarks"]


def test_broken_links_are_told_with_the_way_out():
    pages = {"a.md": "[1](b.md) [2](x/c.md#there) [3](x/c.md#no) [4](#here)\n\n```\n[5](nowhere.md)\n```\n## Here\n"}
    pages |= {"x/c.md": "# `fscl`: [There](b.md)\n# There\n![](../p.png)", "y/b.md": ""}
    wrong = broken_links(pages, {"p.png"})
    assert wrong == [
        "a.md: there is no 'b.md'. Did it move to y/b.md? `python -m docs.tools.links --mend` puts it right.",
        "a.md: x/c.md has no heading 'no'; it has fscl-there, there.",
        "x/c.md: there is no 'b.md'. Did it move to y/b.md? `python -m docs.tools.links --mend` puts it right.",
    ]
    assert anchors("# A b\n## A b\n") == {"a-b", "a-b_1"}


def test_links_to_a_page_that_moved_are_mended(tmp_path: Path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "data.md").write_text("")
    (tmp_path / "a.md").write_text("[d](data.md#all) [e](https://x.org/data.md)\n```\n[d](data.md)\n```\n")
    assert mend(tmp_path) == [tmp_path / "a.md"]
    assert (tmp_path / "a.md").read_text() == (
        "[d](new/data.md#all) [e](https://x.org/data.md)\n```\n[d](data.md)\n```\n"
    )
    assert mend(tmp_path) == []


@pytest.mark.slow
def test_the_site_is_built_and_fetches_nothing_from_elsewhere(tmp_path: Path):
    pytest.importorskip("zensical", reason="needs the group docs")
    shutil.copyfile(ROOT / "mkdocs.yml", tmp_path / "mkdocs.yml")
    (tmp_path / "fscl").symlink_to(ROOT / "fscl")
    n_pages = stage(tmp_path / "build" / "docs")
    ended = run_child([sys.executable, "-m", "zensical", "build", "--strict"], cwd=tmp_path)
    built = sorted((tmp_path / "build" / "site").rglob("*.html"))
    assert len(built) == n_pages + 1, ended.stdout  # and 404.html
    for page in built:
        text = page.read_text("utf-8")
        fetched = re.findall(r"<(?:script|img|iframe|source)[^>]* src=\"?(https?:)?//", text)
        fetched += re.findall(r"<link[^>]* href=\"?(?:https?:)?//", text)
        assert fetched == [], page
    assert "does it get better at learning" in (tmp_path / "build" / "site" / "search.json").read_text("utf-8").lower()
