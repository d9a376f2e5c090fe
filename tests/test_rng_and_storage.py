"""Named generators, and files that are whole or refused."""

import json
import threading
from pathlib import Path

import pytest
import torch

from fscl.errors import StorageError
from fscl.rng import child_seed, generator, numpy_generator
from fscl.storage import load_tensors, read_json, save_tensors, write_bytes, write_json


def test_a_generator_depends_on_its_name_and_on_nothing_else():
    first = torch.rand(3, generator=generator(0, "stream", 1))
    torch.rand(100)
    generator(0, "stream", 0)
    assert torch.equal(first, torch.rand(3, generator=generator(0, "stream", 1)))
    assert not torch.equal(first, torch.rand(3, generator=generator(0, "stream", 2)))
    assert not torch.equal(first, torch.rand(3, generator=generator(1, "stream", 1)))
    assert numpy_generator(0, "a").integers(1 << 30) == numpy_generator(0, "a").integers(1 << 30)


def test_names_do_not_run_into_each_other():
    assert child_seed(0, "ab", "c") != child_seed(0, "a", "bc")


def test_tensors_and_details_come_back_as_they_were(tmp_path: Path):
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2]), "empty": torch.zeros(0, 4)}
    save_tensors(tmp_path / "x.safetensors", "toy", tensors, {"step": 3, "name": "β"})
    found, details = load_tensors(tmp_path / "x.safetensors", "toy")
    assert details == {"step": 3, "name": "β"}
    assert list(found) == sorted(tensors)  # always in the same order
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("length", [0, 4, 20, 150, -1])
def test_a_truncated_tensor_file_is_refused_by_name(tmp_path: Path, length: int):
    path = tmp_path / "x.safetensors"
    save_tensors(path, "toy", {"a": torch.arange(100.0)})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StorageError, match=r"x\.safetensors"):
        load_tensors(path, "toy")


def test_a_tensor_file_with_one_changed_bit_is_refused(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    save_tensors(path, "toy", {"a": torch.arange(100.0)})
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(StorageError, match="altered"):
        load_tensors(path, "toy")


def test_a_file_of_another_kind_or_schema_is_refused_with_both(tmp_path: Path):
    write_json(tmp_path / "x.json", "stream", {"a": 1})
    with pytest.raises(StorageError, match="is a stream file where a run file is needed"):
        read_json(tmp_path / "x.json", "run")
    (tmp_path / "y.json").write_text(json.dumps({"kind": "run", "schema": 99}))
    with pytest.raises(StorageError, match="schema 99"):
        read_json(tmp_path / "y.json", "run")


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": NaN', "\xff", "[" * 100_000])
def test_a_broken_json_file_is_refused_by_name(tmp_path: Path, text: str):
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StorageError, match=r"x\.json"):
        read_json(tmp_path / "x.json", "run")


def test_a_missing_file_is_a_clear_error(tmp_path: Path):
    with pytest.raises(StorageError, match="cannot read"):
        load_tensors(tmp_path / "none.safetensors", "toy")


def test_a_reader_sees_the_old_file_or_the_new_one_and_never_a_part(tmp_path: Path):
    path = tmp_path / "x"
    versions = {bytes([value]) * 2_000_000 for value in range(4)}
    write_bytes(path, min(versions))
    done = threading.Event()
    torn: list[int] = []

    def read() -> None:
        while not done.is_set():
            content = path.read_bytes()
            if content not in versions:
                torn.append(len(content))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(5):
        for content in sorted(versions):
            write_bytes(path, content)
    done.set()
    reader.join()
    assert not torn
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
