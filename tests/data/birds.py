"""A small copy of CUB-200-2011, made up: 200 classes of one colour each, in the official layout."""

from pathlib import Path

from tests.conftest import jpeg

NAMES = [f"{number:03d}.Bird_{number}" for number in range(1, 201)]


def colour(number: int) -> tuple[int, int, int]:
    return number, 255 - number, 60


def birds() -> dict[str, bytes]:
    """The files of a small copy: 200 classes with one or two pictures, each class of its own colour."""
    pictures = {
        f"{name}/Bird_{image}.jpg": jpeg(colour(number))
        for number, name in enumerate(NAMES)
        for image in range(1 + number % 2)
    }
    lists = {
        "classes.txt": [f"{number} {name}" for number, name in enumerate(NAMES, start=1)],
        "images.txt": [f"{number} {name}" for number, name in enumerate(pictures, start=1)],
        "bounding_boxes.txt": ["1 60.0 27.0 325.0 304.0"],
    }
    files = {name: "\n".join([*lines, ""]).encode() for name, lines in lists.items()}
    return files | {f"images/{name}": content for name, content in pictures.items()}


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / "CUB_200_2011" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "CUB_200_2011"
