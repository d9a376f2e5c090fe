"""The files of the page: small, plain, and free of what would let a text become markup or a request leave the machine."""

import re
from pathlib import Path

import pytest

import fscl

PAGE = Path(fscl.__file__).parent / "serve" / "page"
FILES = sorted(PAGE.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
MAX_LINES, MAX_COLUMNS = 400, 125


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_are_short_and_their_lines_too(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) <= MAX_LINES
    if path.suffix != ".svg":
        assert max(map(len, lines)) <= MAX_COLUMNS


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_turns_text_into_markup_or_code(path: Path) -> None:
    text = path.read_text("utf-8")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert word not in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"'`)]*", path.read_text("utf-8")))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a vocabulary; nobody asks there


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_import_is_a_file_of_the_page_that_exports_the_names(path: Path) -> None:
    for names, module in re.findall(r"import \{([^}]*)\} from \"\./([\w.]+)\"", path.read_text("utf-8")):
        exported = (PAGE / module).read_text("utf-8")
        for name in filter(None, map(str.strip, names.split(","))):
            assert re.search(rf"export (async )?(function|const|class|let) {name}\b", exported), (module, name)


def test_the_page_has_no_inline_script_style_or_listener() -> None:
    page = (PAGE / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", page) == []
