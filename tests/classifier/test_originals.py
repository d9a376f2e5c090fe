"""Pictures kept as they were given, and models taught again from them."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscl import ContinualClassifier
from fscl.classifier.store.check import check_model
from fscl.data.pictures import encoded
from fscl.errors import MisuseError, StorageError
from tests.classifier.models import BASE, classifier, contents, examples


def noise(size: tuple[int, int], seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "originals").iterdir())


def empty(folder: Path, **settings: object) -> ContinualClassifier:
    return classifier(**settings).save(folder)


def test_a_photograph_is_kept_as_a_jpeg_of_512_pixels_and_a_drawing_exactly():
    photo = Image.open(io.BytesIO(encoded(noise((600, 1200)))))
    assert (photo.format, photo.size) == ("JPEG", (512, 256))
    small = noise((100, 80))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encoded(small)))), np.asarray(small))
    drawing = Image.new("RGB", (400, 400), "white")
    drawing.paste("black", (10, 10, 90, 90))
    again = Image.open(io.BytesIO(encoded(drawing)))
    assert again.format == "PNG"
    assert np.array_equal(np.asarray(again), np.asarray(drawing))


def test_arrays_pillow_images_and_files_have_originals(tmp_path: Path):
    noise((40, 30), 1).save(tmp_path / "a.png")
    model = empty(tmp_path / "model")
    model.partial_fit([noise((40, 30), 2), tmp_path / "a.png"], ["a", "b"])
    model.partial_fit(*examples(0, n=2))
    assert len(kept(tmp_path / "model")) == 4
    pictures = [np.asarray(Image.open(tmp_path / "model" / "originals" / name)) for name in kept(tmp_path / "model")]
    for given in (noise((40, 30), 1), noise((40, 30), 2), examples(0, n=2)[0][1]):
        assert any(np.array_equal(given, picture) for picture in pictures)
    assert check_model(tmp_path / "model").problems == ()


def test_a_picture_is_kept_once_and_swept_when_no_state_needs_it(tmp_path: Path):
    model = empty(tmp_path / "model")
    model.partial_fit(*examples(0, 1)).partial_fit(*examples(0))
    assert len(kept(tmp_path / "model")) == 6
    before = kept(tmp_path / "model")
    model.partial_fit(*examples(2))
    assert len(kept(tmp_path / "model")) == 9
    model.undo()
    assert len(kept(tmp_path / "model")) == 9  # `redo` needs them
    model.rename("class-0", "zero")
    assert kept(tmp_path / "model") == before


def test_forget_erases_the_originals_of_the_class(tmp_path: Path):
    model = empty(tmp_path / "model").partial_fit(*examples(0, 1)).partial_fit(*examples(2))
    ContinualClassifier.load(tmp_path / "model").forget("class-1")
    expected = empty(tmp_path / "other").partial_fit(*examples(0, 2))
    assert expected.classes_.tolist() == ["class-0", "class-2"]
    assert kept(tmp_path / "model") == kept(tmp_path / "other")
    assert model is not None


def test_a_removed_and_a_moved_picture_keep_the_others_originals(tmp_path: Path):
    model = empty(tmp_path / "model").partial_fit(*examples(0, 1)).remove(1).move(1, "class-1")
    assert check_model(tmp_path / "model").problems == ()
    again = model.reteach(tmp_path / "again", method="neighbour")
    assert len(kept(tmp_path / "again")) == 5
    assert again.memory_.per_class == model.memory_.per_class


def test_without_originals_none_are_written(tmp_path: Path):
    empty(tmp_path / "model", originals=False).partial_fit(*examples(0, 1))
    assert kept(tmp_path / "model") == []


def test_an_altered_original_is_named_by_check_and_refused_by_reteach(tmp_path: Path):
    model = empty(tmp_path / "model").partial_fit(*examples(0, 1))
    harmed = tmp_path / "model" / "originals" / kept(tmp_path / "model")[0]
    harmed.write_bytes(harmed.read_bytes()[:-1] + b"x")
    assert [harmed.name in problem for problem in check_model(tmp_path / "model").problems] == [True]
    with pytest.raises(StorageError, match="was altered"):
        model.reteach(tmp_path / "again", method="neighbour")
    assert not (tmp_path / "again").exists()


def test_a_lesson_killed_before_its_journal_leaves_originals_that_the_next_writer_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = empty(tmp_path / "model").partial_fit(*examples(0, 1))
    before = contents(tmp_path / "model")
    folder = model._model.folder
    assert folder is not None
    lesson = model._lesson(model._model, "learn", *examples(2), None)
    folder._keep_originals(2, lesson)  # as far as a killed process came
    assert len(kept(tmp_path / "model")) == 9
    model.rename("class-0", "zero").undo()
    assert {name for name in contents(tmp_path / "model") if name.startswith("originals/")} == {
        name for name in before if name.startswith("originals/")
    }


def test_a_lesson_that_waits_in_the_journal_finds_its_originals(tmp_path: Path):
    model = empty(tmp_path / "model").partial_fit(*examples(0, 1))
    folder = model._model.folder
    assert folder is not None
    lesson = model._lesson(model._model, "learn", *examples(2), None)
    folder.journal.write(2, lesson, folder._keep_originals(2, lesson))
    assert check_model(tmp_path / "model").problems == ()
    other = ContinualClassifier.load(tmp_path / "model")
    assert other.recover()
    assert len(kept(tmp_path / "model")) == 9
    assert other.reteach(tmp_path / "again", method="neighbour").classes_.tolist() == ["class-0", "class-1", "class-2"]
    assert len(kept(tmp_path / "again")) == 9


def test_a_model_saved_elsewhere_takes_its_originals_along(tmp_path: Path):
    model = empty(tmp_path / "model").partial_fit(*examples(0, 1))
    model.save(tmp_path / "copy")
    assert kept(tmp_path / "copy") == kept(tmp_path / "model")


def test_another_base_is_taught_from_the_originals_as_if_from_the_files(tmp_path: Path):
    X, y = [noise((60, 50), seed) for seed in range(4)], list("aabb")
    model = empty(tmp_path / "model", invert=True).partial_fit(X, y)
    again = model.reteach(tmp_path / "again", base="glyphs-protonet-conv4", method="neighbour")
    direct = ContinualClassifier("glyphs-protonet-conv4", "neighbour", invert=True).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), direct.predict_proba(X))
    loaded = ContinualClassifier.load(tmp_path / "again")
    assert (loaded.base, loaded.method) == ("glyphs-protonet-conv4", "neighbour")
    assert kept(tmp_path / "again") == kept(tmp_path / "model")
    assert model.history_[-1].call == "learn"


def test_without_originals_only_a_base_of_the_same_shape_can_be_taught_again(tmp_path: Path):
    X, y = examples(0, 1)
    model = classifier().fit(X, y)  # in memory: no originals
    again = model.reteach(tmp_path / "same", base=BASE, method="neighbour")
    direct = classifier("neighbour").fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), direct.predict_proba(X))
    with pytest.raises(MisuseError, match="6 of the 6 stored pictures have no original, and the new base takes"):
        model.reteach(tmp_path / "other", base="glyphs-protonet-conv4")
    assert not (tmp_path / "other").exists()


def test_rows_are_taught_again_by_another_method(tmp_path: Path):
    model = ContinualClassifier(method="prototypes").fit(np.eye(3), [0, 1, 2])
    again = model.reteach(tmp_path / "again", method="neighbour")
    assert again.predict(np.eye(3)).tolist() == [0, 1, 2]
    assert ContinualClassifier.load(tmp_path / "again").method == "neighbour"
