"""The page "Teach it your own classes", command by command, and the example with birds."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from PIL import Image

from fscl.cli import main
from fscl.data.sets.glyphs import load_glyphs
from tests.conftest import ROOT, real_path

PAGE = (ROOT / "docs" / "how-to" / "teach-your-own.md").read_text()


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders that the page speaks of, with drawings of glyphs in dark ink on paper."""
    pool = load_glyphs().test

    def draw(path: Path, label: int, number: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(255 - pool.of_class(label)[number, 0].numpy()).resize((64, 64)).save(path)

    for label, name in enumerate(("oak", "birch")):
        for number in range(5):
            draw(tmp_path / "photos" / name / f"{number}.png", label, number)
    for label, name in ((1, "birch"), (2, "ash")):
        for number in range(5, 8):
            draw(tmp_path / "more-photos" / name / f"{number}.png", label, number)
    for label, name in enumerate(("oak", "birch")):
        for number in range(11, 14):
            draw(tmp_path / "kept-apart" / name / f"{number}.png", label, number)
    for number, label in enumerate((0, 1, 2), start=1):
        draw(tmp_path / "asked" / f"{number}.png", label, 10)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_every_command_of_the_page_runs_in_order(
    trees: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("onnxruntime", reason="needs fscl[export]")
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    printed = {}
    for command in "".join(blocks).splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not ended.value.code, (command, err)
        printed[command] = out
    assert "new: birch (5), oak (5)" in printed["fscl learn trees photos"]
    assert "known: birch (3)" in printed["fscl learn trees more-photos"]
    assert "asked/1.png: oak, " in printed["fscl predict trees asked/1.png asked/2.png"]
    assert "asked/2.png: birch, " in printed["fscl predict trees asked/1.png asked/2.png"]
    assert "Betula/birch: 8 stored" in printed["fscl info trees"]
    assert "of 6 (95 % interval)" in printed["fscl test trees kept-apart --html test.html --csv test.csv"]
    assert "undone: " in printed["fscl undo trees --calls 2"]
    assert (trees / "trees.onnx").exists()
    assert (trees / "trees.json").exists()


def test_the_snippet_of_the_page_runs_as_it_is(trees: Path, capsys: pytest.CaptureFixture[str]):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "teach-your-own.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("oak ")
    assert lines[-1].startswith("['birch' 'oak'] ")


def test_the_example_with_birds_says_why_it_skips(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["cub_birds.py"])
    runpy.run_path(str(ROOT / "examples" / "cub_birds.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("skipped: ")


def test_the_example_with_birds_learns_birds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("FSCL_DATA", str(real_path("cub").parent))
    monkeypatch.setattr(sys, "argv", ["cub_birds.py", "--method", "prototypes", "--lessons", "1"])
    runpy.run_path(str(ROOT / "examples" / "cub_birds.py"), run_name="__main__")
    assert re.fullmatch(
        r"  5 birds: \d+\.\d % of other photographs right, .*, by chance 20\.0 %\n", capsys.readouterr().out
    )
