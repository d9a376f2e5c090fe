"""Omniglot from its real archives: what is loaded, how it is split, and which copies are refused."""

import io
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fscl.data.archive import open_files
from fscl.data.pool import ClassPool, Splits, with_rotations
from fscl.data.sets import omniglot
from fscl.data.sets.omniglot import fetch_omniglot, find_omniglot, load_omniglot
from fscl.errors import DataError, MisuseError, UnknownName

ARCHIVES = ("images_background.zip", "images_evaluation.zip")
FIRST = "images_background/Alphabet_of_the_Magi/character01/0709_01.png"


class Stopped(Exception):
    """Raised from a progress callback, to see that decoding began without waiting for its end."""


def stop(done: int, total: int) -> None:
    assert (done, total) == (20, 32460)
    raise Stopped


@pytest.fixture(scope="module")
def paper(real_data: Path) -> Splits:
    return load_omniglot(data_folder=real_data)


@pytest.fixture
def copy(real_data: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the real archives, to damage."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ARCHIVES:
        (folder / name).write_bytes((real_data / "omniglot" / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def unpacked(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    for name in ARCHIVES:
        with zipfile.ZipFile(real_data / "omniglot" / name) as archive:
            archive.extractall(folder)
    return folder


@contextmanager
def changed(path: Path, content: bytes | None) -> Iterator[None]:
    """A file of the unpacked copy with other content, or without it, for a while."""
    before = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    yield
    path.write_bytes(before)


def png(size: tuple[int, int]) -> bytes:
    content = io.BytesIO()
    Image.new("1", size, 1).save(content, "PNG")
    return content.getvalue()


def names(splits: Splits) -> list[set[str]]:
    return [set(pool.class_names) for pool in (splits.train, splits.validation, splits.test)]


def alphabets(class_names: set[str]) -> set[str]:
    return {name.split("/")[0] for name in class_names}


# ---- what is loaded ----


def test_a_drawing_is_the_file_resized_with_white_ink(real_data: Path, paper: Splits) -> None:
    where = paper.test.position["Angelic/character01"]
    with zipfile.ZipFile(real_data / "omniglot" / ARCHIVES[1]) as archive:
        original = Image.open(io.BytesIO(archive.read("images_evaluation/Angelic/character01/0965_03.png")))
    assert (original.mode, original.size) == ("1", (105, 105))
    expected = 255 - np.asarray(original.convert("L").resize((32, 32), Image.Resampling.LANCZOS))
    assert paper.test.image_shape == (1, 32, 32)
    assert np.array_equal(paper.test.of_class(where)[2, 0].numpy(), expected)
    assert expected.max() > 200  # ink
    assert np.median(expected) == 0  # paper


def test_the_second_load_takes_under_two_seconds_and_gives_the_same_bits(real_data: Path, paper: Splits) -> None:
    start = time.perf_counter()
    again = load_omniglot(data_folder=real_data, progress=stop)
    assert time.perf_counter() - start < 2
    assert again.train.content_hash == paper.train.content_hash
    assert again.test.content_hash == paper.test.content_hash


def test_rotations_make_four_times_the_classes(paper: Splits) -> None:
    turned = with_rotations(paper.train)
    assert len(turned) == 4 * len(paper.train)
    assert torch.equal(turned.of_class(len(paper.train))[0], paper.train.images[0].rot90(1, dims=(1, 2)))


def test_unpacked_folders_hold_the_same_drawings_and_are_read(
    real_data: Path, unpacked: Path, empty_cache: Path
) -> None:
    for name in ARCHIVES:
        with open_files(real_data / "omniglot" / name) as packed, open_files(unpacked / Path(name).stem) as loose:
            assert sorted(packed) == sorted(loose)
            assert all(packed[drawing]() == loose[drawing]() for drawing in list(loose)[::50])
    with pytest.raises(Stopped):
        load_omniglot(data_folder=unpacked, progress=stop)


# ---- splits ----


def test_the_paper_split_moves_one_background_character_to_the_test_side(paper: Splits) -> None:
    train, validation, test = names(paper)
    assert len(train) + len(validation) == 963
    assert len(test) == 660
    assert paper.test.class_names[:2] == ("Tifinagh/character55", "Angelic/character01")
    assert paper.test.class_names[-1] == "ULOG/character26"
    assert paper.train.class_names[0].endswith("/character01")


def test_the_official_split_is_background_and_evaluation(real_data: Path, paper: Splits) -> None:
    train, validation, test = names(load_omniglot(split="official", data_folder=real_data))
    assert (len(train) + len(validation), len(test)) == (964, 659)
    assert test == names(paper)[2] - {"Tifinagh/character55"}


@pytest.mark.parametrize("split", ["paper", "official"])
def test_validation_takes_whole_alphabets_of_the_training_side(real_data: Path, split: omniglot.OmniglotSplit) -> None:
    for n_validation in (0, 1, 100, 300):
        splits = load_omniglot(split=split, n_validation=n_validation, data_folder=real_data)
        train, validation, test = names(splits)
        assert len(validation) >= n_validation
        assert len(validation) < n_validation + 60
        assert alphabets(validation).isdisjoint(alphabets(train) | alphabets(test))
        assert names(load_omniglot(split=split, n_validation=n_validation, data_folder=real_data))[1] == validation


def test_the_vinyals_split_is_the_published_one(real_data: Path) -> None:
    splits = load_omniglot(split="vinyals", data_folder=real_data)
    train, validation, test = names(splits)
    assert (len(train), len(validation), len(test)) == (1028, 172, 423)
    assert alphabets(validation) == {"Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)"}
    assert splits.train.class_names[-1] == "Gurmukhi/character41"
    assert splits.test.class_names[:4] == tuple(f"Gurmukhi/character{number}" for number in (42, 43, 44, 45))
    assert len(alphabets(test)) == 13


def test_impossible_requests_are_refused_before_or_without_loading(real_data: Path, paper: Splits) -> None:
    with pytest.raises(UnknownName, match=r"no Omniglot split named 'vinyal'\. Did you mean 'vinyals'"):
        load_omniglot(split="vinyal")
    with pytest.raises(MisuseError, match="n_validation is 50, but the vinyals split comes with 172"):
        load_omniglot(split="vinyals", n_validation=50)
    with pytest.raises(MisuseError, match="n_validation is 963; it must be from 0 to"):
        load_omniglot(n_validation=963, data_folder=real_data)
    with pytest.raises(DataError, match="image_size is 0"):
        load_omniglot(image_size=0)


# ---- where it is found ----


def test_it_is_found_in_the_argument_then_fscl_data_then_the_cache(
    real_data: Path, empty_cache: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_omniglot() is None
    assert find_omniglot(real_data) == real_data / "omniglot"
    assert find_omniglot(real_data / "omniglot") == real_data / "omniglot"
    in_cache = empty_cache / "data" / "omniglot"
    in_cache.parent.mkdir(parents=True)
    in_cache.symlink_to(copy)
    assert find_omniglot() == in_cache
    monkeypatch.setenv("FSCL_DATA", str(real_data))
    assert find_omniglot() == real_data / "omniglot"
    assert find_omniglot(copy) == copy


def test_nothing_found_says_where_it_looked_and_how_to_get_it(empty_cache: Path, copy: Path) -> None:
    (copy / ARCHIVES[1]).unlink()
    with pytest.raises(DataError) as caught:
        load_omniglot(data_folder=copy)
    for said in (str(copy / "omniglot"), str(empty_cache / "data"), "fscl data fetch omniglot", "FSCL_DATA"):
        assert said in str(caught.value)


def test_a_fetch_without_a_network_is_one_sentence_and_leaves_nothing(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(omniglot, "_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(DataError, match=r"cannot fetch images_background\.zip from http://127\.0\.0\.1:9/"):
        load_omniglot(download=True)
    assert [path for path in empty_cache.rglob("*") if path.is_file()] == []


def test_a_fetch_leaves_archives_that_are_there_alone(empty_cache: Path, copy: Path) -> None:
    folder = empty_cache / "data" / "omniglot"
    folder.parent.mkdir(parents=True)
    copy.rename(folder)
    times = [(folder / name).stat().st_mtime_ns for name in ARCHIVES]
    assert fetch_omniglot() == folder
    assert [(folder / name).stat().st_mtime_ns for name in ARCHIVES] == times


# ---- what is refused ----


def refusal(folder: Path, cache: Path) -> str:
    """The words of a refusal, which must leave nothing in the cache or in the folder."""
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(DataError) as caught:
        load_omniglot(data_folder=folder)
    assert not cache.exists()
    assert sorted(path.name for path in folder.iterdir()) == before
    assert "fscl data fetch omniglot" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("n_bytes", [0, 100, 4_000_000])
def test_a_truncated_archive_is_refused_by_name(copy: Path, empty_cache: Path, name: str, n_bytes: int) -> None:
    (copy / name).write_bytes((copy / name).read_bytes()[:n_bytes])
    assert f"{copy / name} is refused: it is not a whole zip archive" in refusal(copy, empty_cache)


def test_a_changed_byte_is_found_by_its_crc_and_the_entry_is_named(copy: Path, empty_cache: Path) -> None:
    content = bytearray((copy / ARCHIVES[0]).read_bytes())
    content[content.index(b"IDAT") + 20] ^= 1  # in the first drawing
    (copy / ARCHIVES[0]).write_bytes(content)
    said = refusal(copy, empty_cache)
    assert f"{copy / ARCHIVES[0]} is refused: its entry '{FIRST}' is damaged (Bad CRC-32" in said


def test_an_archive_without_one_drawing_is_refused(copy: Path, empty_cache: Path) -> None:
    content = (copy / ARCHIVES[1]).read_bytes().replace(b"0965_07.png", b"0965_07.txt")
    (copy / ARCHIVES[1]).write_bytes(content)
    said = refusal(copy, empty_cache)
    assert f"{copy / ARCHIVES[1]} is refused: its Angelic/character01 has 19 drawings, not 20." in said


def test_an_archive_without_one_character_is_refused(copy: Path, empty_cache: Path) -> None:
    whole = (copy / ARCHIVES[1]).read_bytes()
    names = [f"0965_{number:02}".encode() for number in range(1, 21)]
    for name in names:
        whole = whole.replace(name + b".png", name + b".txt")
    (copy / ARCHIVES[1]).write_bytes(whole)
    assert f"{copy / ARCHIVES[1]} is refused: it has 658 characters, not 659." in refusal(copy, empty_cache)


def test_the_archives_swapped_are_refused(copy: Path, empty_cache: Path) -> None:
    (copy / ARCHIVES[0]).write_bytes((copy / ARCHIVES[1]).read_bytes())
    said = refusal(copy, empty_cache)
    assert "'images_evaluation/Angelic/character01/0965_01.png' is not at images_background/<alphabet>/" in said


@pytest.mark.parametrize("name", ["../../evil.png", "/evil.png", "images_background\\..\\..\\evil.png"])
def test_an_entry_that_leaves_the_folder_is_refused_by_name(copy: Path, empty_cache: Path, name: str) -> None:
    with zipfile.ZipFile(copy / ARCHIVES[0], "a") as archive:
        archive.writestr(name, b"evil")
    said = refusal(copy, empty_cache)
    assert f"{copy / ARCHIVES[0]} is refused: its entry {name!r} has a path that leaves its folder." in said
    assert not list(copy.parent.rglob("evil.png"))


def test_a_folder_without_one_drawing_is_refused(unpacked: Path, empty_cache: Path) -> None:
    with changed(unpacked / FIRST, None):
        assert "Alphabet_of_the_Magi/character01 has 19 drawings, not 20" in refusal(unpacked, empty_cache)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (png((106, 105)), "is 106×105 pixels; it must be 105×105"),
        (png((20_000, 20_000)), "has more pixels than"),
        (b"text", "is not an image of a known kind (PNG)"),
        (bytes(2**20 + 1), "is no file of at most 1,048,576 bytes"),
    ],
    ids=["size", "bomb", "text", "large"],
)
def test_a_drawing_that_is_none_is_refused_by_name(
    unpacked: Path, empty_cache: Path, content: bytes, reason: str
) -> None:
    with changed(unpacked / FIRST, content):
        said = refusal(unpacked, empty_cache)
    assert f"{unpacked / 'images_background'} is refused: its entry '{FIRST}' {reason}" in said


# ---- the cache ----


@pytest.mark.parametrize("damage", ["cut", "altered", "foreign", "empty"])
def test_a_broken_cache_file_is_made_anew_in_silence(
    real_data: Path, paper: Splits, private_cache: Path, empty_cache: Path, damage: str
) -> None:
    [whole] = (private_cache / "prepared").glob("omniglot-32-*.safetensors")
    content = bytearray(whole.read_bytes())
    content[-1000] ^= 1
    broken = {"cut": content[:-5000], "altered": content, "foreign": b"not ours" * 100, "empty": b""}[damage]
    (empty_cache / "prepared").mkdir(parents=True)
    (empty_cache / "prepared" / whole.name).write_bytes(bytes(broken))
    with pytest.raises(Stopped):
        load_omniglot(data_folder=real_data, progress=stop)


def test_an_interrupted_load_leaves_nothing_in_the_cache(real_data: Path, empty_cache: Path) -> None:
    with pytest.raises(Stopped):
        load_omniglot(data_folder=real_data, progress=stop)
    assert not empty_cache.exists()


def test_a_cache_that_cannot_be_written_is_done_without(
    real_data: Path, paper: Splits, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    official = load_omniglot(split="official", n_validation=0, data_folder=real_data)
    both = (official.train, official.test)
    decoded = ClassPool(
        name="omniglot",
        images=torch.cat([pool.images for pool in both]),
        class_names=sum((pool.class_names for pool in both), ()),
        counts=sum((pool.counts for pool in both), ()),
    )
    monkeypatch.setattr(omniglot, "_decode", lambda *_: decoded)
    monkeypatch.setenv("FSCL_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("where the cache folder should be")
    assert load_omniglot(data_folder=real_data).test.content_hash == paper.test.content_hash
