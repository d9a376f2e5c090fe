"""The sentences of a hand-written page, and the numbers in them."""

import re
from collections.abc import Iterator

NUMBER = re.compile(
    r"(?<![\w.,/#^@-])[-+−]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?: ?± ?\d+(?:\.\d+)?)?(?![\w]|-[a-zA-Z]|[.,]\d| ?×|/\d)"
)
FIGURE = re.compile(r"([-+−]?\d+\.\d+)(?: ?± ?(\d+\.\d+))?")
NAMED = re.compile(
    r"(?:[Tt]ables?|[Ff]igures?|[Rr]ows?|decisions?|Python|step|version|[Bb]lock|Appendix|HTTP|≥|exit code) "
    r"\d[\d., and]*\d?"
)
LEVEL = re.compile(
    r"arXiv[: ][\d.]+|95 % (?=interval)|\b(?:19|20)\d\d\b|\bβ (?:=|of) [\d., and]+|\bk = [\d., and]+|\d+ ?× ?\d+"
)


def plain(text: str) -> str:
    """A page without code, tables, headings, pictures and the targets of links."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines: list[str] = []
    for line in text.splitlines():
        if re.match(r" {4,}\S", line) and (not lines or lines[-1] == "" or lines[-1] == "\0"):
            lines.append("\0")  # a block of code
        else:
            lines.append("" if re.match(r"\s*(\||#|!\[|>)", line) else line)
    text = "\n".join("" if line == "\0" else line for line in lines)
    text = re.sub(r"`[^`]*`", "", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> Iterator[str]:
    """Every sentence of a page; an item of a list begins a new one."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", plain(text)):
        joined = re.sub(r"^(?:[-*]|\d+\.) ", "", " ".join(block.split()))
        yield from (part for part in re.split(r"(?<=[.!?])[\"”)*]* +(?=[\"“(*A-ZÀ-Ý])", joined) if part)


def numbers(sentence: str) -> list[str]:
    """The numbers that a reader has to hold in mind; a mean with its interval is one, and names of things are none."""
    return NUMBER.findall(LEVEL.sub(" ", NAMED.sub(" ", sentence)))


def crowded(text: str, most: int = 2) -> list[str]:
    """The sentences with too many numbers."""
    return [sentence for sentence in sentences(text) if len(numbers(sentence)) > most]


def figures(text: str) -> list[tuple[str, str]]:
    """Every figure in the prose of a page that has decimals: its mean, and its interval or ''."""
    return [found for sentence in sentences(text) for found in FIGURE.findall(LEVEL.sub(" ", NAMED.sub(" ", sentence)))]
