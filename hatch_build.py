"""Build hook: the README of the package has whole addresses, so that its links and pictures work on a package index.

In the repository they are relative, and lead to the same commit. Where the repository is published is not written down
anywhere: it is the variable FSCL_REPOSITORY, or what GitHub sets when it builds a release. Without either, the README
stays as it is, and the package has no addresses.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def repository() -> str | None:
    """The address of the repository, without a slash at its end."""
    named = os.environ.get("FSCL_REPOSITORY")
    if named is None and "GITHUB_REPOSITORY" in os.environ:
        named = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{os.environ['GITHUB_REPOSITORY']}"
    return named.rstrip("/") if named else None


def with_addresses(text: str, base: str) -> str:
    """The README with every relative link made whole: pictures raw, pages as the repository shows them."""

    def whole(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        kind = "raw" if picture else "tree" if path.endswith("/") else "blob"
        return f"{picture}[{LINK.sub(whole, words)}]({base}/{kind}/HEAD/{path})"

    return LINK.sub(whole, text)


class ReadmeHook(MetadataHookInterface):
    """Sets the README and the addresses of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        text, base = (Path(self.root) / "README.md").read_text("utf-8"), repository()
        metadata["readme"] = {"content-type": "text/markdown", "text": with_addresses(text, base) if base else text}
        if base:
            metadata["urls"] = {
                "Homepage": base,
                "Documentation": f"{base}/tree/HEAD/docs",
                "Changelog": f"{base}/blob/HEAD/CHANGELOG.md",
                "Issues": f"{base}/issues",
            }
