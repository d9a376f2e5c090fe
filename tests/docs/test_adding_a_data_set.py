"""The section "Adding a data set", word for word: its module, its configuration, its entry point."""

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from fscl.storage import read_json
from tests.children import run_child
from tests.conftest import ROOT
from tests.plugging import installed

SECTION = (ROOT / "docs" / "how-to" / "data.md").read_text().split("## Adding a data set")[1].split("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)


def fscl(folder: Path, *arguments: str) -> str:
    paths = os.pathsep.join([str(folder), str(ROOT)])
    ended = run_child([sys.executable, "-m", "fscl", *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": paths})
    return ended.stdout


@pytest.mark.slow
def test_the_data_set_of_the_page_is_run_by_reference_and_by_its_entry_point(tmp_path: Path):
    (module,), (config, entry_points) = blocks("python"), blocks("toml")
    (tmp_path / "stripes.py").write_text(module)
    (tmp_path / "stripes.toml").write_text(config)
    fscl(tmp_path, "run", "stripes.toml", "--workers", "2", "--out", "one")
    content = read_json(tmp_path / "one" / "run.json", "run")
    assert content["config"]["data"] == {
        "name": "stripes:STRIPES",
        "image_size": 32,
        "n_classes": 80,
        "noise": 0.1,
    }
    assert content["data"]["classes"] == 24
    cells = read_json(tmp_path / "one" / "results.json", "results")["cells"]
    assert len(cells) == 4
    assert all(cell["result"]["top1"][-1][0] > 0.4 for cell in cells)  # of 15 classes

    ((group, points),) = tomllib.loads(entry_points)["project"]["entry-points"].items()
    installed(tmp_path, group, points)
    assert re.search(r"^stripes +Grey stripes .*\n +made on the spot$", fscl(tmp_path, "data", "list"), re.MULTILINE)
    assert "test          18 classes,    360 images of 1×32×32" in fscl(tmp_path, "data", "info", "stripes")
