"""Packages from outside, as pip would install them, without pip."""

from collections.abc import Mapping
from pathlib import Path


def installed(folder: Path, group: str, points: Mapping[str, str], *, package: str = "outside") -> None:
    """Put the metadata of a package with entry points (name to `module:object`) into a folder that is on the path."""
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
