"""Pages that list the files of a folder: decisions, and the summaries of runs."""

from pathlib import Path

from docs.tools.site import DOCS, Made


def list_pages() -> Made:
    """A page for docs/decisions and one for docs/results, so that a link to the folder leads somewhere."""
    decisions = "\n".join(f"- [{_title(path)}]({path.name})" for path in sorted((DOCS / "decisions").glob("*.md")))
    results = "\n".join(f"- [{path.name}]({path.name})" for path in sorted((DOCS / "results").glob("*.json")))
    return {
        "decisions/index.md": "# Decisions\n\nWhat was decided about the design, why, and what else was tried. "
        f"They are records: figures are those of the day.\n\n{decisions}\n",
        "results/index.md": "# Summaries of runs\n\nOne file for each run, written by `fscl summary RUN FILE`. Every figure "
        f"on these pages comes from one of them.\n\n{results}\n",
    }, {}


def _title(path: Path) -> str:
    return path.read_text("utf-8").splitlines()[0].removeprefix("# ")
