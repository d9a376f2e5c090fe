"""Downloads from a real server on this machine, and archives that must not be trusted."""

import hashlib
import stat
import struct
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fscl.data.archive import fingerprint, open_files
from fscl.data.download import data_folders, download, find_in_data_folders
from fscl.errors import DataError

CONTENT = bytes(range(256)) * 2000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.path == "/missing.bin":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:1000] if self.path == "/cut.bin" else CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    Handler.requests = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_a_download_arrives_whole_and_is_not_fetched_again(server: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        path = download(f"{server}/data.bin", md5=MD5, folder=folder, filename="data.bin")
        assert path == folder / "data.bin"
        assert path.read_bytes() == CONTENT
    assert Handler.requests == ["/data.bin"]


def test_a_damaged_file_is_fetched_again(server: str, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(CONTENT[:-1])
    assert download(f"{server}/data.bin", md5=MD5, folder=tmp_path, filename="data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("filename", "md5", "reason"),
    [
        ("data.bin", "0" * 32, "another checksum than md5 000"),
        ("cut.bin", MD5, "the connection broke before the file was whole"),
        ("missing.bin", MD5, "the server answered 404 Not Found"),
    ],
)
def test_a_failed_download_says_why_and_the_way_out_and_leaves_nothing(
    server: str, tmp_path: Path, filename: str, md5: str, reason: str
) -> None:
    with pytest.raises(DataError) as caught:
        download(f"{server}/{filename}", md5=md5, folder=tmp_path, filename=filename)
    assert str(caught.value).startswith(f"cannot fetch {filename} from {server}/{filename}: ")
    assert reason in str(caught.value)
    assert f"put the file at {tmp_path / filename} by hand" in str(caught.value)
    assert "FSCL_DATA" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_download_keeps_the_file_that_was_there(server: str, tmp_path: Path) -> None:
    (tmp_path / "cut.bin").write_bytes(b"by hand")
    with pytest.raises(DataError):
        download(f"{server}/cut.bin", md5=MD5, folder=tmp_path, filename="cut.bin")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("cut.bin", b"by hand")]


def test_no_server_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    with pytest.raises(DataError, match="no connection to the server"):
        download(f"http://127.0.0.1:{port}/data.bin", md5=MD5, folder=tmp_path, filename="data.bin")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot fetch data\.bin"):
        download(f"{server}/data.bin", md5=MD5, folder=tmp_path / "file" / "sub", filename="data.bin")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only_and_never_on_stdout(
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    terminal: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    download(f"{server}/data.bin", md5=MD5, folder=tmp_path, filename="data.bin")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("data.bin" in shown.err) == terminal
    assert terminal or shown.err == ""


def test_data_is_looked_for_where_the_user_says_then_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given, cache, argument = tmp_path / "given", tmp_path / "cache", tmp_path / "argument"
    monkeypatch.setenv("FSCL_CACHE", str(cache))
    monkeypatch.delenv("FSCL_DATA", raising=False)
    assert data_folders() == [cache / "data"]
    monkeypatch.setenv("FSCL_DATA", str(given))
    assert data_folders() == [given, cache / "data"]
    assert find_in_data_folders(["a.zip", "a"]) is None
    for folder, found in [(cache / "data" / "a.zip", "a.zip"), (given / "a", "a"), (argument / "a", "a")]:
        folder.mkdir(parents=True)
        assert find_in_data_folders(["a.zip", "a"], first=argument) == folder.parent / found


def bad_entry(name: str, *, link: bool = False, content: bytes = b"x") -> tuple[zipfile.ZipInfo, bytes]:
    entry = zipfile.ZipInfo("placeholder")
    entry.filename = name  # the constructor would tidy the name
    entry.external_attr = ((stat.S_IFLNK | 0o777) if link else (stat.S_IFREG | 0o644)) << 16
    return entry, content


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (bad_entry("top/../../evil.png"), "leaves its folder"),
        (bad_entry("/etc/evil.png"), "leaves its folder"),
        (bad_entry("..\\evil.png"), "leaves its folder"),
        (bad_entry("C:/evil.png"), "leaves its folder"),
        (bad_entry("top//evil.png"), "leaves its folder"),
        (bad_entry("top/link.png", link=True, content=b"/etc/passwd"), "is a link"),
        (bad_entry("top/huge.png", content=bytes(2**20 + 1)), "would have 1,048,577 bytes"),
        (bad_entry("top/good.txt"), "is there twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_an_archive_with_an_entry_not_to_be_trusted_is_refused_by_name(
    tmp_path: Path, entry: tuple[zipfile.ZipInfo, bytes], reason: str
) -> None:
    path = tmp_path / "foreign.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("top/good.txt", "good")
        archive.writestr(entry[0], entry[1], zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError) as caught, open_files(path):
        pass
    assert str(path) in str(caught.value)
    assert repr(entry[0].filename) in str(caught.value)
    assert reason in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


def test_an_archive_with_too_many_entries_is_refused(tmp_path: Path) -> None:
    entry = struct.pack("<4s4B4H3L5H2L", b"PK\1\2", 20, 3, 20, *[0] * 8, 1, *[0] * 6) + b"a"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, 100_001 * len(entry), 0, 0)
    (tmp_path / "many.zip").write_bytes(100_001 * entry + end)
    with pytest.raises(DataError, match="100,001 entries"), open_files(tmp_path / "many.zip"):
        pass


def test_a_folder_reads_as_the_archive_made_of_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "top.zip", "w") as archive:
        archive.mkdir("top")
        archive.writestr("top/a/one.txt", "one")
        archive.writestr("top/two.txt", "two")
        archive.extractall(tmp_path)
    read = []
    for source in (tmp_path / "top.zip", tmp_path / "top"):
        with open_files(source) as files:
            read.append({name: content() for name, content in files.items()})
    assert read[0] == read[1] == {"top/a/one.txt": b"one", "top/two.txt": b"two"}


def test_a_folder_with_a_link_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "link.png").symlink_to("/etc/passwd")
    with pytest.raises(DataError, match=r"'top/link\.png' is a link"), open_files(tmp_path / "top"):
        pass


def test_a_fingerprint_changes_with_a_byte_of_an_archive_and_with_a_file_of_a_folder(tmp_path: Path) -> None:
    file, folder = tmp_path / "a.zip", tmp_path / "a"
    folder.mkdir()
    file.write_bytes(b"1")
    (folder / "x").write_bytes(b"1")
    before = [fingerprint(file), fingerprint(folder)]
    assert before == [fingerprint(file), fingerprint(folder)]
    file.write_bytes(b"2")
    (folder / "y").write_bytes(b"")
    assert fingerprint(file) != before[0]
    assert fingerprint(folder) != before[1]
