"""The worst confusions of a cell, with the images that were confused, for the report to show."""

import base64
from collections import Counter
from pathlib import Path
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor
from torch.nn.functional import interpolate

from fscl.data.contact_sheet import contact_sheet
from fscl.data.pool import ClassPool
from fscl.data.stream import Stream
from fscl.errors import StorageError
from fscl.storage import json_bytes, read_json

CONFUSIONS = "confusions.json"  # what a cell calls its file
MOST_PAIRS = 3  # of one cell
MOST_IMAGES = 4  # of one kind
MAX_SIDE = 64  # pixels of an image
MAX_PICTURE_CHARACTERS = 2**20
PNG = b"\x89PNG\r\n\x1a\n"

Count = Annotated[int, Field(ge=0)]


class Confusion(BaseModel):
    """One class taken for another.

    Attributes:
        true, answered: names of classes; where the label answered stands for several, the first that bore it.
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
    asked: dict[str, list[Tensor]] = {}  # each class to its test images, and for each of them the answer
    replies: dict[str, list[int]] = {}
    shots: dict[int, list[Tensor]] = {}
    label_of: dict[str, int] = {}
    bearer: dict[int, str] = {}
    for number, plan in enumerate(stream.tasks):
        task = stream.task(pool, number)
        label_of |= dict(zip(plan.classes, plan.labels, strict=True))
        names = [name for name, chosen in zip(plan.classes, plan.query, strict=True) for _ in chosen]
        queries = zip(names, task.query.images, answers[number], stream.first_asked(number).tolist(), strict=True)
        for name, image, answer, once in queries:
            if once:
                asked.setdefault(name, []).append(image)
                replies.setdefault(name, []).append(answer)
        for image, label in zip(task.support.images, task.support.labels.tolist(), strict=True):
            shots.setdefault(label, []).append(image)
        for label, name in zip(plan.labels, plan.classes, strict=True):
            bearer.setdefault(label, name)
    order = {name: place for place, name in enumerate(asked)}
    counts = Counter((true, answer) for true, given in replies.items() for answer in given if answer != label_of[true])
    worst = sorted(counts, key=lambda pair: (-counts[pair], order[pair[0]], pair[1]))[:MOST_PAIRS]
    return [
        Confusion(
            true=true,
            answered=bearer[answer],
            count=counts[true, answer],
            of=len(asked[true]),
            picture=_picture(
                [image for image, given in zip(asked[true], replies[true], strict=True) if given == answer],
                shots[label_of[true]],
                shots[answer],
            ),
        )
        for true, answer in worst
    ]


def confusions_json(pairs: list[Confusion]) -> bytes:
    """A JSON file of them."""
    return json_bytes("confusions", {"pairs": [pair.model_dump() for pair in pairs]})


def load_confusions(path: Path) -> list[Confusion]:
    """What a file of `confusions_json` holds."""
    try:
        pairs = _Confusions.model_validate(read_json(path, "confusions")).pairs
        for pair in pairs:
            pair.png()
    except (ValidationError, ValueError) as error:
        raise StorageError(f"{path} is not a list of confusions: {str(error).splitlines()[0]}.") from error
    return pairs


def _small(image: Tensor) -> Tensor:
    """At most MAX_SIDE pixels wide and high: it is shown no larger."""
    if image.shape[-1] <= MAX_SIDE:
        return image
    return interpolate(image[None].float(), (MAX_SIDE, MAX_SIDE), mode="area")[0].round().to(torch.uint8)


def _picture(*groups: list[Tensor]) -> str:
    """Groups of images side by side, with a gap between the groups."""
    row = [torch.stack([_small(image) for image in images[:MOST_IMAGES]]) for images in groups]
    return base64.b64encode(contact_sheet([row], gap=2, group_gap=row[0].shape[-1] // 2)).decode()
