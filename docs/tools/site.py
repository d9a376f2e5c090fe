"""Puts together the pages that the site is built from, in build/docs: those of docs/, and those that are made from the code.

python -m docs.tools.site && zensical build --strict        (`make docs`)

Nothing generated is committed: what a page says of commands, settings, methods and runs is what the code and the summaries
said when it was built.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from docs.tools.links import broken_links, with_links

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
STAGED = ROOT / "build" / "docs"
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"} | {
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
}
"""Pages of the repository that belong to the site, too, and their places in it."""
BESIDE = ("CITATION.cff",)
"""Other files of the repository that pages link to."""
OTHER_FILES = (".png", ".svg", ".json")


File = Path | Callable[[], bytes]
"""A file that is copied, or what makes it; pictures are drawn only when the site is built."""
Made = tuple[dict[str, str], Mapping[str, File]]


def staged_pages() -> tuple[dict[str, str], dict[str, File]]:
    """Every page of the site by its path, links made to fit; and every other file."""
    pages: dict[str, str] = {}
    files: dict[str, File] = {}
    for path in sorted(DOCS.rglob("*")):
        place = path.relative_to(DOCS).as_posix()
        if path.suffix == ".md":
            pages[place] = _moved(path.read_text("utf-8"), f"docs/{place}", place)
        elif path.suffix in OTHER_FILES:
            files[place] = path
    for name, place in OUTSIDE.items():
        if (ROOT / name).exists():
            pages[place] = _moved((ROOT / name).read_text("utf-8"), name, place)
    files |= {name: ROOT / name for name in BESIDE if (ROOT / name).exists()}
    for make in generators():
        made_pages, made_files = make()
        pages |= made_pages
        files |= made_files
    return pages, files


def generators() -> tuple[Callable[[], Made], ...]:
    """What makes pages from the code and from summaries: add a function here for one more kind of page."""
    from docs.tools.api_reference import api_pages
    from docs.tools.cli_reference import cli_pages
    from docs.tools.config_reference import config_pages
    from docs.tools.lists import list_pages
    from docs.tools.method_reference import method_pages
    from docs.tools.overview import overview_pages
    from docs.tools.runs import run_pages

    return (list_pages, api_pages, cli_pages, config_pages, method_pages, run_pages, overview_pages)


def _moved(text: str, home: str, place: str) -> str:
    """A page whose links are relative to `home` in the repository, as a page at `place` in the site."""

    def changed(path: str) -> str:
        target = os.path.normpath(PurePosixPath(home).parent / path)
        if path.endswith("/"):
            target += "/index.md"
        there = OUTSIDE.get(target, target.removeprefix("docs/"))
        return os.path.relpath(there, PurePosixPath(place).parent)

    return with_links(text, changed)


def stage(folder: Path = STAGED) -> int:
    """Write the pages into a folder, made anew; how many there are. A broken link ends it."""
    pages, files = staged_pages()
    wrong = broken_links(pages, set(files))
    if wrong:
        raise SystemExit("\n".join(wrong))
    shutil.rmtree(folder, ignore_errors=True)
    for place, text in pages.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, "utf-8")
    for place, content in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, folder / place)
        else:
            (folder / place).write_bytes(content())
    return len(pages)


if __name__ == "__main__":
    print(f"{stage()} pages in {STAGED}")
