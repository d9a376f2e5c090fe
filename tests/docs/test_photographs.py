"""The page "Photographs", command by command.

The pictures are made here, and the networks see them at 64 pixels instead of 224 and 240, so that the page takes seconds.
Its figures are those of real photographs and are not checked.
"""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscl.cli import main
from fscl.nets.efficientnet_lite import find_weights
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "how-to" / "photographs.md").read_text()
NEW, RETEACH = "fscl new birds", "fscl reteach birds birds-lite1 --base efficientnet_lite1"
SMALL = {NEW: f"{NEW} --base efficientnet_lite0@64", RETEACH: f"{RETEACH}@64"}

pytestmark = pytest.mark.skipif(find_weights() is None, reason="needs fscl[photos]")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders that the page speaks of. A kind of bird is a pattern of stripes in two colours."""
    kinds = ("robin", "wren", "magpie", "heron")

    def photograph(path: Path, kind: str, number: int) -> None:
        label = kinds.index(kind)
        random = np.random.default_rng([label, number])
        rows, columns = np.mgrid[:72, :96]
        angle, phase = label * np.pi / 4 + random.normal(0, 0.1), random.uniform(0, 6)
        stripes = np.sin((np.cos(angle) * rows + np.sin(angle) * columns) * (0.2 + 0.15 * label) + phase)
        colours = np.random.default_rng(label).uniform(40, 215, (2, 3))
        pixels = colours[(stripes > 0).astype(int)] + random.normal(0, 25, (72, 96, 3))
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)

    taught = [("photos", "robin", range(1, 6)), ("photos", "wren", range(1, 6))]
    later = [("more-photos", "wren", range(6, 9)), ("more-photos", "magpie", range(1, 6))]
    apart = [("kept-apart", kind, range(20, 24)) for kind in ("robin", "wren", "heron")]
    for folder, kind, numbers in [*taught, *later, *apart]:
        for number in numbers:
            photograph(tmp_path / folder / kind / f"{number}.jpg", kind, number)
    for number, kind in enumerate(("robin", "heron", "wren"), start=1):
        photograph(tmp_path / "asked" / f"{number}.jpg", kind, 30)
    for number in range(8):
        photograph(tmp_path / "unlabelled" / f"{number}.jpg", kinds[number % 4], 40 + number)
    # small pictures would be worth all 40 steps; a slow core has time for a few, and for none in a correction, as at 224
    monkeypatch.setattr("fscl.continual.tail.learner.SPEED", 1.3e9)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_every_command_of_the_page_runs_in_order(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("onnxruntime", reason="needs fscl[export]")
    printed = {}
    for command in "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(SMALL.get(command, command)))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not ended.value.code, (command, err)
        printed[command] = out
    assert set(SMALL) <= set(printed)
    assert "new: robin (5), wren (5)" in printed["fscl learn birds photos"]
    assert "nothing was learned" in printed["fscl learn birds more-photos --dry-run"]
    learned = printed["fscl learn birds more-photos"]
    assert "new: magpie (5)\nknown: wren (3)\n" in learned
    assert re.search(r"estimated accuracy: \d+\.\d % before, \d+\.\d % \(\d+ to \d+ %, by \d+ left-out", learned)
    top = printed["fscl predict birds asked --top 3"].splitlines()
    assert len(top) == 3
    assert all(line.count(" %") == 3 for line in top)
    tested = printed["fscl test birds kept-apart --html test.html --csv test.csv"]
    assert "of 8 (95 % interval)" in tested
    assert "pictures of 1 class that the model does not know" in tested
    assert printed["fscl undo birds --calls 2"].count("undone: ") == 2
    assert len(printed["fscl suggest birds unlabelled --n 5"].splitlines()) == 5
    assert printed["fscl reteach birds birds-ridge --method ridge"].endswith("birds-ridge\n")
    assert "jay" not in printed["fscl info birds"].partition("history:")[0]
    assert (folders / "birds.onnx").exists()


def test_every_command_of_the_tutorial_runs_in_order(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page = (ROOT / "docs" / "tutorials" / "photographs.md").read_text("utf-8")
    printed = {}
    for command in "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(SMALL.get(command, command)))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not ended.value.code, (command, err)
        printed[command] = out
    assert "new: robin (5), wren (5)" in printed["fscl learn birds photos"]
    assert len(printed["fscl predict birds asked --top 3"].splitlines()) == 3
    assert "undone: " in printed["fscl undo birds"]
    assert "magpie" in printed["fscl info birds"]


def test_the_snippet_of_the_page_runs(folders: Path, capsys: pytest.CaptureFixture[str]):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert '"efficientnet_lite0"' in block
    exec(compile(block.replace('"efficientnet_lite0"', '"efficientnet_lite0@64"'), "photographs.md", "exec"), {})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("['robin' 'wren'] ")
    assert second in ("['robin']", "[None]")
