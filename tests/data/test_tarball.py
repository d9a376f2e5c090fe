"""Tar archives: read as the folder they were made of, and refused when they are not to be trusted."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fscl.data.archive import open_files
from fscl.data.limits import DRAWINGS, Limits
from fscl.errors import DataError

KINDS = ("top.tar", "top.tgz", "top.tar.gz")


def pack(path: Path, entries: dict[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None) -> Path:
    """A tar with these files; `change` is given each entry before it is written."""
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            if change is not None:
                change(entry)
            archive.addfile(entry, io.BytesIO(content))
    return path


def refusal(path: Path, limits: Limits = DRAWINGS) -> str:
    """The words of a refusal, which must name the archive and leave nothing beside it."""
    beside = sorted(path.parent.iterdir())
    with pytest.raises(DataError) as caught, open_files(path, limits) as files:
        _ = [read() for read in files.values()]
    assert str(caught.value).startswith(f"{path} is refused: ")
    assert sorted(path.parent.iterdir()) == beside
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tar_reads_as_the_folder_it_was_made_of_in_any_order(tmp_path: Path, kind: str):
    (tmp_path / "top" / "a").mkdir(parents=True)
    (tmp_path / "top" / "a" / "one.txt").write_text("one")
    (tmp_path / "top" / "two.txt").write_text("two")
    with tarfile.open(tmp_path / kind, "w:gz" if "gz" in kind else "w") as archive:
        archive.add(tmp_path / "top", "top")
    with open_files(tmp_path / "top") as files:
        loose = {name: read() for name, read in files.items()}
    with open_files(tmp_path / kind) as files:
        assert {name: files[name]() for name in sorted(files, reverse=True)} == loose
        assert {name: files[name]() for name in sorted(files)} == loose


def test_names_that_start_with_a_dot_and_a_slash_are_read_without(tmp_path: Path):
    with open_files(pack(tmp_path / "x.tar", {"./top/a.txt": b"a"})) as files:
        assert list(files) == ["top/a.txt"]


def link(entry: tarfile.TarInfo) -> None:
    entry.type, entry.linkname, entry.size = tarfile.SYMTYPE, "/etc/passwd", 0


def hard_link(entry: tarfile.TarInfo) -> None:
    entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, "top/good.txt", 0


def device(entry: tarfile.TarInfo) -> None:
    entry.type, entry.size = tarfile.CHRTYPE, 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("top/../../evil.png", None, "leaves its folder"),
        ("/etc/evil.png", None, "leaves its folder"),
        ("..\\evil.png", None, "leaves its folder"),
        ("C:/evil.png", None, "leaves its folder"),
        ("./../evil.png", None, "leaves its folder"),
        ("top/link.png", link, "is a link"),
        ("top/hard.png", hard_link, "is a link"),
        ("top/device.png", device, "is neither a plain file nor a folder"),
    ],
)
def test_an_entry_not_to_be_trusted_is_refused_by_name(
    tmp_path: Path, kind: str, name: str, change: Callable[[tarfile.TarInfo], None] | None, reason: str
):
    said = refusal(pack(tmp_path / kind, {name: b"x"}, change))
    assert f"its entry {name!r} " in said
    assert reason in said


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_bounded(tmp_path: Path, kind: str):
    path = pack(tmp_path / kind, {"top/a": bytes(3000), "top/b": bytes(3000)})
    with open_files(path, Limits(20_000, 2, 3000)) as files:
        assert len(files) == 2
    assert "'top/a' would have 3,000 bytes, over the 2,999" in refusal(path, Limits(20_000, 2, 2999))
    assert "more than the 1 entries" in refusal(path, Limits(20_000, 1, 3000))
    if kind != "top.tar":  # a plain one is as large as its file
        assert "unpacked it would have over 7,000 bytes" in refusal(path, Limits(7000, 2, 3000))
    assert "is refused: it has over 10 bytes" in refusal(path, Limits(10, 2, 3000))


def test_a_file_there_twice_is_refused(tmp_path: Path):
    path = pack(tmp_path / "x.tar", {"top/a": b"1", "./top/a": b"2"})
    assert "'./top/a' is there twice" in refusal(path)


@pytest.mark.parametrize("n_bytes", [0, 100, 512, 1024, 1100, 2048])
def test_a_tar_cut_anywhere_is_refused(tmp_path: Path, n_bytes: int):
    path = pack(tmp_path / "x.tar", {"top/a": bytes(512), "top/b": bytes(512)})
    path.write_bytes(path.read_bytes()[:n_bytes])
    assert "it is not a whole tar archive" in refusal(path)


def test_a_tar_with_a_damaged_header_in_the_middle_is_refused(tmp_path: Path):
    path = pack(tmp_path / "x.tar", {"top/a": bytes(512), "top/b": bytes(512)})
    content = bytearray(path.read_bytes())
    content[1024 + 3] ^= 1  # in the name of the second file
    path.write_bytes(content)
    assert "no end mark after 1 files" in refusal(path)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_gzipped_tar_cut_anywhere_is_refused(tmp_path: Path, part: float):
    path = pack(tmp_path / "x.tgz", {f"top/{number}": bytes(range(256)) * 8 for number in range(20)})
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    assert "it is not a whole tar archive" in refusal(path)


def test_a_gzipped_name_of_a_gigabyte_is_refused_before_it_is_unpacked(tmp_path: Path):
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**30
    (tmp_path / "x.tgz").write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(10_000)))
    assert "it asks for more than 1,048,576 bytes at once" in refusal(tmp_path / "x.tgz")


@pytest.mark.parametrize("name", ["x.tar", "x.tgz"])
def test_a_file_that_is_no_tar_is_refused(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"not ours" * 1000)
    assert "it is not a whole tar archive" in refusal(tmp_path / name)
