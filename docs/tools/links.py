"""Links between pages: which are broken, and how those that a moved page has broken are mended.

python -m docs.tools.links            lists broken links of the staged site (docs/tools/site.py)
python -m docs.tools.links --mend     in docs/: a link to a page that has moved leads to the one page of that name
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from markdown.extensions.toc import slugify

LINK = re.compile(r"(?<=\]\()([^)#\s]*)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
ELSEWHERE = ("http://", "https://", "mailto:")


def prose(text: str) -> str:
    """A page without its blocks of code, which may hold what looks like a link."""
    return FENCE.sub("", text)


def links(text: str) -> Iterator[tuple[str, str]]:
    """The path and the anchor of each link to a file or within the page."""
    for path, anchor in LINK.findall(prose(text)):
        if not path.startswith(ELSEWHERE) and (path or anchor):
            yield path, anchor.removeprefix("#")


def with_links(text: str, change: Callable[[str], str]) -> str:
    """The page with the path of each link to a file replaced, code left alone."""
    kept: list[str] = []

    def keep(block: re.Match[str]) -> str:
        kept.append(block.group())
        return f"\0{len(kept) - 1}\0"

    def replaced(link: re.Match[str]) -> str:
        path, anchor = link.group(1), link.group(2) or ""
        return link.group() if not path or path.startswith(ELSEWHERE) else change(path) + anchor

    changed = LINK.sub(replaced, FENCE.sub(keep, text))
    return re.sub(r"\0(\d+)\0", lambda mark: kept[int(mark.group(1))], changed)


def anchors(text: str) -> set[str]:
    """What links to a page may name after a '#': its headings, numbered where they repeat."""
    found: Counter[str] = Counter()
    result = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+ +(.*?)(?: +#+)?$", prose(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = slugify(plain, "-")
        result.add(f"{slug}_{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return result


def broken_links(pages: Mapping[str, str], files: set[str]) -> list[str]:
    """One sentence for each link that leads nowhere.

    Args:
        pages: the text of each page, by its path.
        files: every other file that may be linked to.
    """
    wrong = []
    for page, text in pages.items():
        for path, anchor in links(text):
            target = os.path.normpath(PurePosixPath(page).parent / path) if path else page
            if target not in pages and target not in files:
                wrong.append(f"{page}: there is no {path!r}.{_suggestion(target, pages)}")
            elif anchor and target in pages and not anchor.startswith("fscl") and anchor not in anchors(pages[target]):
                wrong.append(
                    f"{page}: {target} has no heading {anchor!r}; it has {', '.join(sorted(anchors(pages[target])))}."
                )
    return wrong


def _suggestion(target: str, pages: Mapping[str, str]) -> str:
    named = [page for page in pages if PurePosixPath(page).name == PurePosixPath(target).name]
    if len(named) != 1:
        return ""
    return f" Did it move to {named[0]}? `python -m docs.tools.links --mend` puts it right."


def mend(folder: Path) -> list[Path]:
    """Lead links to pages that moved to where they are now; the pages that were changed."""
    homes: dict[str, list[Path]] = {}
    pages = sorted(folder.rglob("*.md"))
    for page in pages:
        homes.setdefault(page.name, []).append(page)
    changed = []
    for page in pages:

        def lead(path: str, page: Path = page) -> str:
            there = homes.get(PurePosixPath(path).name, [])
            if (page.parent / path).exists() or len(there) != 1:
                return path
            return os.path.relpath(there[0], page.parent)

        before = page.read_text("utf-8")
        after = with_links(before, lead)
        if after != before:
            page.write_text(after, "utf-8")
            changed.append(page)
    return changed


if __name__ == "__main__":
    from docs.tools.site import DOCS, staged_pages

    if "--mend" in sys.argv[1:]:
        for path in mend(DOCS):
            print(path)
    else:
        pages, files = staged_pages()
        wrong = broken_links(pages, set(files))
        print("\n".join(wrong) or f"{len(pages)} pages, no broken link")
        sys.exit(bool(wrong))
