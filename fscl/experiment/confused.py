"""The worst confusions of a cell, with the images that were confused, for the report to show."""

import base64
import io
from collections import Counter
from pathlib import Path
from typing import Annotated

import torch
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor
from torch.nn.functional import pad

from fscl.data.pool import ClassPool
from fscl.data.stream import Stream
from fscl.errors import StorageError
from fscl.storage import read_json, write_json

MOST_PAIRS = 3  # of one cell
MOST_IMAGES = 4  # of one kind
MAX_PICTURE_CHARACTERS = 2**20
PNG = b"\x89PNG\r\n\x1a\n"

Count = Annotated[int, Field(ge=0)]


class Confusion(BaseModel):
    """One class taken for another.

    Attributes:
        true, answered: names of classes; where a label stands for several, the first that bore it.
        count, of: how many of the true class's test images were answered so, and how many there are.
        picture: a PNG in base64: images that were confused, shots of the true class, shots of the one answered.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    true: str
    answered: str
    count: Count
    of: Count
    picture: Annotated[str, Field(max_length=MAX_PICTURE_CHARACTERS)]

    def png(self) -> bytes:
        """The picture; refuses what is no PNG."""
        content = base64.b64decode(self.picture, validate=True)
        if not content.startswith(PNG):
            raise ValueError("a picture is not a PNG")
        return content


class _Confusions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    pairs: Annotated[list[Confusion], Field(max_length=MOST_PAIRS)]


def worst_confusions(stream: Stream, pool: ClassPool, answers: list[list[int]]) -> list[Confusion]:
    """The pairs of classes confused most often, the worst first; of equally bad ones, those that came first."""
    asked: dict[int, list[Tensor]] = {}  # true label to its test images, and for each the answer
    replies: dict[int, list[int]] = {}
    shots: dict[int, list[Tensor]] = {}
    names: dict[int, str] = {}
    for number, plan in enumerate(stream.tasks):
        task = stream.task(pool, number)
        for label, name in zip(plan.labels, plan.classes, strict=True):
            names.setdefault(label, name)
        for image, label, answer in zip(task.query.images, task.query.labels.tolist(), answers[number], strict=True):
            asked.setdefault(label, []).append(image)
            replies.setdefault(label, []).append(answer)
        for image, label in zip(task.support.images, task.support.labels.tolist(), strict=True):
            shots.setdefault(label, []).append(image)
    counts = Counter((true, answer) for true, given in replies.items() for answer in given if answer != true)
    worst = sorted(counts, key=lambda pair: (-counts[pair], pair))[:MOST_PAIRS]
    return [
        Confusion(
            true=names[true],
            answered=names[answer],
            count=counts[true, answer],
            of=len(asked[true]),
            picture=_picture(
                [image for image, given in zip(asked[true], replies[true], strict=True) if given == answer],
                shots[true],
                shots[answer],
            ),
        )
        for true, answer in worst
    ]


def save_confusions(path: Path, pairs: list[Confusion]) -> None:
    """Write them as JSON."""
    write_json(path, "confusions", {"pairs": [pair.model_dump() for pair in pairs]})


def load_confusions(path: Path) -> list[Confusion]:
    """What `save_confusions` wrote."""
    try:
        pairs = _Confusions.model_validate(read_json(path, "confusions")).pairs
        for pair in pairs:
            pair.png()
    except (ValidationError, ValueError) as error:
        raise StorageError(f"{path} is not a list of confusions: {str(error).splitlines()[0]}.") from error
    return pairs


def _picture(*groups: list[Tensor]) -> str:
    """Groups of images side by side, with a gap between the groups."""
    size = groups[0][0].shape[-1]
    strips = []
    for images in groups:
        row = torch.cat([pad(image, (0, 2), value=128) for image in images[:MOST_IMAGES]], 2)
        strips.append(pad(row, (0, size // 2), value=128))
    picture = torch.cat(strips, 2)[:, :, : -(size // 2)].permute(1, 2, 0).contiguous().numpy()
    file = io.BytesIO()
    Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
