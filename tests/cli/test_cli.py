"""The command line: quick help, one-sentence errors, exit codes, paths as the last line."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fscl.continual.registry import methods
from fscl.meta.shipped import shipped_bases
from fscl.storage import load_tensors
from tests.children import FSCL, run_child, started_child
from tests.data.birds import birds, written
from tests.experiment.tiny import TINY, toml


def fscl(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ended = run_child([*FSCL, *arguments], expect=code)
    assert "Traceback" not in ended.stderr
    return ended


def test_help_answers_at_once_and_imports_neither_torch_nor_scikit_learn():
    probe = (
        "import sys; from fscl.cli import app; app(['--help'], standalone_mode=False); "
        "print(not {'torch', 'sklearn'}.isdisjoint(sys.modules))"
    )
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        ended = run_child([sys.executable, "-c", probe])
        times.append(time.perf_counter() - begin)
    assert ended.stdout.splitlines()[-1] == "False"
    assert "Usage:" in ended.stdout
    assert min(times) < 0.3


def test_methods_and_show_know_the_whole_table():
    assert [line.split()[0] for line in fscl("methods").stdout.splitlines()] == list(methods())
    shown = fscl("show", "tsc").stdout
    assert "slow_rate = 0.3" in shown
    assert "fscl.continual.consolidation" in shown
    assert "Settings: none" in fscl("show", "prototypes").stdout


def test_bases_lists_what_comes_with_the_package():
    listed = fscl("bases").stdout
    for name in shipped_bases():
        assert f"{name}: " in listed
    assert "  protonet: Meta-trains the embedding so that class means classify." in listed
    assert "20-way 5-shot on test classes: 96.95 ± 0.12 % (600 episodes)" in listed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "tcs"], "no method named 'tcs'. Did you mean 'tsc'?"),
        (["run", "glyphs-quik"], "Did you mean 'glyphs-quick'?"),
        (["run", "glyphs-quick", "stream.n_ways=3"], "Did you mean 'n_way'?"),
        (["run", "glyphs-quick", "--executor", "locall"], "no executor named 'locall'. Did you mean 'local'?"),
        (["run", "glyphs-quick", "--executor", "in-process", "--workers", "2"], "one cell at a time, but workers is 2"),
        (["train", "glyphs-quick"], "brings a trained network"),
        (["run", "glyphs-quick", "base.use=nothing"], "no base named 'nothing'"),
        (["data", "info", "omniglott"], "Did you mean 'omniglot'?"),
        (["data", "fetch", "glyphs"], "needs no fetching"),
        (["data", "fetch", "cub"], "docs/how-to/data.md says where it is"),
    ],
)
def test_misuse_is_one_sentence_and_exit_code_two(arguments: list[str], sentence: str):
    ended = fscl(*arguments, code=2)
    assert sentence in ended.stderr
    assert ended.stderr.startswith("fscl: ")


def test_an_unknown_option_exits_with_two():
    fscl("demo", "--nonsense", code=2)


def test_failure_is_one_sentence_and_exit_code_one(tmp_path: Path):
    ended = fscl("report", str(tmp_path), code=1)
    assert ended.stderr == f"fscl: {tmp_path} is not a run directory: it has no run.json. `fscl run` makes one.\n"


@pytest.mark.parametrize("arguments", [["run", "glyphs-quick"], ["train", "glyphs-protonet", "base.train.steps=1"]])
def test_a_file_in_the_place_of_the_folder_is_one_sentence(tmp_path: Path, arguments: list[str]):
    (tmp_path / "file").write_text("mine")
    ended = fscl(*arguments, "--out", str(tmp_path / "file"), code=1)
    assert ended.stderr.startswith("fscl: cannot ")
    assert str(tmp_path / "file") in ended.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_ctrl_c_anywhere_is_one_sentence_and_exit_code_one(tmp_path: Path):
    with started_child([*FSCL, "data", "info", "glyphs"], env={"FSCL_CACHE": str(tmp_path)}) as child:
        child.wait_until(lambda: "\n" in child.written()[0])  # it is at work
        child.send(signal.SIGINT)
        assert child.finish(timeout=60, expect=1).stderr == "fscl: stopped.\n"


def test_a_run_prints_a_table_and_the_report_last_and_no_progress_off_a_terminal(tmp_path: Path):
    config = toml(tmp_path / "tiny.toml", TINY)
    ended = fscl("run", str(config), "run.n_sequences=2", "--out", str(tmp_path / "run"))
    report = tmp_path / "run" / "report.html"
    assert ended.stdout.splitlines()[-1] == str(report)
    for method in ("tsc", "replay", "prototypes"):
        assert method in ended.stdout
    assert ended.stderr == ""
    first = report.read_bytes()
    assert fscl("report", str(tmp_path / "run")).stdout == ended.stdout
    assert report.read_bytes() == first


def test_training_prints_validation_and_test_accuracy_and_the_path_last(tmp_path: Path):
    config = toml(tmp_path / "tiny.toml", TINY)
    lines = fscl("train", str(config), "--out", str(tmp_path / "base")).stdout.splitlines()
    assert lines[-1] == str(tmp_path / "base" / "network.safetensors")
    assert (tmp_path / "base" / "network.safetensors").exists()
    assert "on validation classes" in lines[0]
    assert "on test classes" in lines[1]


def test_data_list_and_info_say_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written(tmp_path, birds())
    monkeypatch.setenv("FSCL_DATA", str(tmp_path))
    listed = fscl("data", "list").stdout.splitlines()
    places = dict(zip([line.split()[0] for line in listed[::2]], [line.strip() for line in listed[1::2]], strict=True))
    assert places["glyphs"] == "made on the spot"
    assert places["cub"] == str(tmp_path / "CUB_200_2011")
    assert places["mini-imagenet"].startswith("not here; docs/how-to/data.md says where to get it")
    lines = fscl("data", "info", "glyphs").stdout.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["840", "120", "240"]
    assert (
        fscl("data", "info", "cub")
        .stdout.splitlines()[-1]
        .startswith("test         200 classes,    300 images of 3×64×64 (1 to 2 a class), hash ")
    )
    assert "tieredImageNet was not found in" in fscl("data", "info", "tiered-imagenet", code=1).stderr


def test_a_training_that_is_terminated_saves_the_step_that_it_is_at(tmp_path: Path):
    train = {**TINY["base"]["train"], "steps": 10**6, "validate_every": 7}
    config = toml(tmp_path / "tiny.toml", {**TINY, "base": {**TINY["base"], "train": train}})
    checkpoint = tmp_path / "base" / "meta-training.safetensors"
    with started_child([*FSCL, "train", str(config), "--out", str(tmp_path / "base")]) as child:
        child.wait_until(checkpoint.exists)
        child.send(signal.SIGTERM)
        said = child.finish(timeout=120, expect=1).stderr
    step = load_tensors(checkpoint, "meta-training checkpoint")[1]["step"]
    assert said == f"fscl: stopped after step {step} of 1000000; the same command continues from there.\n"
