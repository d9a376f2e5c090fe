"""Pictures in further forms: bytes, open files, datasets of other libraries, pairs, HEIC."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fscl
from fscl.data.images import read_image
from fscl.errors import DataError
from tests.classifier.models import classifier, examples


def png(pixels: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


class ClassLabel:
    names = ("class-0", "class-1")


class HuggingFace:
    """What a Hugging Face dataset looks like from outside."""

    def __init__(self, images: list[Any], labels: list[int]) -> None:
        self.rows = [{"image": image, "label": label} for image, label in zip(images, labels, strict=True)]
        self.features = {"image": object(), "label": ClassLabel()}
        self.column_names = ["image", "label"]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: int | str) -> Any:
        return Column([row[key] for row in self.rows]) if isinstance(key, str) else self.rows[key]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


class Column:
    """A column of one, which is no list."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> Any:
        return self.items[position]


class TorchDataset:
    """Items by number, and nothing else."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> Any:
        return self.items[position]


class Stream:
    """Items one after another, and nothing else."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def test_every_form_teaches_the_same(tmp_path: Path):
    X, y = examples(0, 1)
    expected = classifier().fit(X, y)
    images = [Image.fromarray(pixels) for pixels in X]
    numbers = [0, 0, 0, 1, 1, 1]
    table = HuggingFace(images, numbers)
    undecoded = HuggingFace([{"bytes": png(pixels), "path": None} for pixels in X], numbers)
    forms: list[tuple[Any, Any]] = [
        ([png(pixels) for pixels in X], y),
        ([io.BytesIO(png(pixels)) for pixels in X], y),
        (table, None),
        (table["image"], y),
        (undecoded, None),
        (TorchDataset(list(zip(X, y, strict=True))), None),
        (list(zip(images, y, strict=True)), None),
        (
            TorchDataset(
                [(torch.from_numpy(image / 255), torch.tensor(n)) for image, n in zip(X, numbers, strict=True)]
            ),
            None,
        ),
        (iter(list(zip(X, y, strict=True))), None),
        (Stream(list(zip(X, y, strict=True))), None),
    ]
    for form, labels in forms:
        model = classifier().fit(form, labels)
        assert model.classes_.tolist() in (["class-0", "class-1"], [0, 1])
        np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    assert expected.score(table) == expected.score(X, y)
    assert expected.test(table).accuracy.n == 6
    np.testing.assert_array_equal(expected.predict(table), expected.predict(X))
    stream = io.BytesIO(png(X[0]))
    assert expected.explain(stream).label == expected.explain(stream).label  # it is read from its beginning each time


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ([b"not a picture"], "picture 0 is not an image of a known kind"),
        ([io.StringIO("text")], "picture 0 is a file of text"),
        ([{"bytes": b"", "path": "nowhere.png"}], "nowhere.png does not exist"),
    ],
)
def test_what_is_no_picture_is_refused_with_its_position(form: Any, sentence: str):
    with pytest.raises(DataError, match=sentence):
        classifier().fit(form, ["a"])


def test_a_dataset_without_a_column_of_images_is_refused_with_its_columns():
    table = HuggingFace([], [])
    table.column_names = ["text", "label"]
    with pytest.raises(DataError, match=r"has the columns text, label, and none is called 'image'"):
        classifier().fit(table)


def test_an_iterator_that_yields_no_pairs_is_refused_with_the_position():
    with pytest.raises(DataError, match="item 0 is no pair"):
        classifier().fit(iter([np.zeros((8, 8))]))


def test_a_pool_is_made_of_pairs():
    X, y = examples(1, 0)
    pool = fscl.pool_from(zip(X, y, strict=True), name="mine", image_size=16)
    assert pool.class_names == ("class-0", "class-1")
    assert pool.counts == (3, 3)
    assert np.array_equal(pool.of_class(1)[:, 0].numpy(), X[:3])
    table = fscl.pool_from(HuggingFace(list(X), [1, 1, 1, 0, 0, 0]), image_size=16)
    assert table.content_hash == pool.content_hash
    named = fscl.pool_from(zip(X, [1, 1, 1, 0, 0, 0], strict=True), names=["zero", "one"], channels=3)
    assert named.class_names == ("one", "zero")
    assert named.image_shape == (3, 32, 32)
    with pytest.raises(DataError, match="has no image"):
        fscl.pool_from([])
    with pytest.raises(DataError, match="label 5, but there are 2 names"):
        fscl.pool_from([(X[0], 5)], names=["zero", "one"])


def heic() -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif", reason="needs fscl[photos]")
    content = io.BytesIO()
    image = Image.new("RGB", (64, 48), (200, 30, 30))
    pillow_heif.from_pillow(image).save(content, format="HEIF", quality=95)
    return content.getvalue()


def test_a_telephones_heic_is_read_like_any_picture(tmp_path: Path):
    (tmp_path / "photo.heic").write_bytes(heic())
    for source in (tmp_path / "photo.heic", heic()):
        red, green, blue = read_image(source, image_size=8, channels=3).reshape(3, -1).mean(1)
        assert (round(red / 20), round(green / 20), round(blue / 20)) == (10, 2, 2)


def test_without_its_library_heic_is_refused_with_the_install_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    head = b"\0\0\0\x18ftypheic" + b"\0" * 20
    with pytest.raises(DataError, match=r"the image is a HEIC picture, .* `python -m pip install pillow-heif` gets it"):
        read_image(head)


def test_a_damaged_heic_is_refused():
    with pytest.raises(DataError, match=r"cannot be decoded|not an image"):
        read_image(heic()[:200])
