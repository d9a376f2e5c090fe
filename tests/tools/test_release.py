"""What is published: whole addresses in the README, one version everywhere, workflows that can be read."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import fscl
from tests.conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("hatchling", reason="needs the group dev")
    monkeypatch.syspath_prepend(str(ROOT))
    for name in ("FSCL_REPOSITORY", "GITHUB_REPOSITORY", "GITHUB_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    import hatch_build

    return hatch_build


def test_the_readme_of_a_release_has_no_relative_link(hook, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/fscl")
    metadata: dict[str, object] = {}
    hook.ReadmeHook(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert len(targets) > 15
    assert all(target.startswith("https://") for target in targets)
    assert "](https://github.com/someone/fscl/raw/HEAD/docs/images/readme.png)" in text
    assert "](https://github.com/someone/fscl/tree/HEAD/docs/results/)" in text
    assert metadata["urls"]["Changelog"] == "https://github.com/someone/fscl/blob/HEAD/CHANGELOG.md"


def test_without_a_repository_nothing_is_invented(hook):
    metadata: dict[str, object] = {}
    hook.ReadmeHook(str(ROOT), {}).update(metadata)
    assert metadata["readme"]["text"] == (ROOT / "README.md").read_text("utf-8")
    assert "urls" not in metadata


def test_links_inside_links_become_whole(hook):
    found = hook.with_addresses("[![b](x.svg)](y.md) [z](#here) [w](https://w.org)", "https://r.org/p")
    assert (
        found == "[![b](https://r.org/p/raw/HEAD/x.svg)](https://r.org/p/blob/HEAD/y.md) [z](#here) [w](https://w.org)"
    )


def test_the_version_is_the_same_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == fscl.__version__
    assert cited["authors"] == [{"name": "The fscl authors"}]
    newest = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[0]
    assert newest == fscl.__version__
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["authors"] == [{"name": "The fscl authors"}]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_says_what_it_may_do_and_calls_things_that_exist(path: Path):
    text = path.read_text("utf-8")
    content = yaml.safe_load(text)
    assert content["permissions"]["contents"] == "read"
    assert "not tried" in text.splitlines()[0]
    targets = set(re.findall(r"\bmake ([a-z-]+)", text))
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert targets <= rules
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for named in re.findall(r"-e ['\"]\.\[([a-z,]+)\]", text):
        assert set(named.split(",")) <= extras


def test_the_matrix_has_every_python_and_system_that_is_promised():
    matrix = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]["test"]["strategy"][
        "matrix"
    ]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert matrix["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
