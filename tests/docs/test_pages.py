"""What the documentation says is what the library does."""

import re
import tomllib
from pathlib import Path

import pytest

from fscl.continual.registry import methods
from fscl.data.catalogue import built_in_data_sets
from fscl.experiment.config import make_config, shipped_configs
from fscl.meta.shipped import load_base_with_details, shipped_bases
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_readme_example_runs_as_it_is(capsys: pytest.CaptureFixture[str]):
    (block,) = python_blocks("README.md")
    exec(compile(block, "README.md", "exec"), {})
    curve = [float(number) for number in re.findall(r"\d\.\d*", capsys.readouterr().out)]  # numpy prints 1.
    assert len(curve) == 4
    assert curve[-1] > 0.75  # chance is 0.05


def test_the_example_of_a_probe_runs_as_it_is(capsys: pytest.CaptureFixture[str]):
    (block,) = python_blocks("docs/explanation/evaluation.md")
    exec(compile(block, "evaluation.md", "exec"), {})
    assert -0.2 < float(capsys.readouterr().out) < 0


def test_the_configuration_of_the_data_page_is_valid():
    block = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "how-to" / "data.md").read_text(), re.DOTALL)[0]
    config = make_config(tomllib.loads(block))
    assert (config.base_side.name, config.data.name, config.data.image_size) == ("mini-imagenet", "cub", 64)


def test_the_examples_of_the_page_on_pretrained_features_hold(capsys: pytest.CaptureFixture[str]):
    _, block, tail = python_blocks("docs/how-to/pretrained.md")  # the first needs weights that may not be here
    exec(compile(block, "pretrained.md", "exec"), {})
    curve = [float(number) for number in re.findall(r"\d\.\d+", capsys.readouterr().out)]
    assert len(curve) == 2
    assert curve[0] > 0.4  # of a random module; chance is 0.2
    exec(compile(tail, "pretrained.md", "exec"), {})
    assert capsys.readouterr().out == "3\n['4.bias', '4.weight']\ntorch.Size([4, 128])\n"
    (toml,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "how-to" / "pretrained.md").read_text(), re.DOTALL)
    assert make_config(tomllib.loads(toml)).base.use == "efficientnet_lite0"


def test_the_data_page_lists_every_data_set():
    rows = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "how-to" / "data.md").read_text(), re.MULTILINE)
    assert sorted(rows) == list(built_in_data_sets())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_architecture_page_lists_the_settings_of_consolidation():
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    family = {name: method.settings_in_force().model_dump() for name, method in methods().items()}
    family = {name: values for name, values in family.items() if "slow_rate" in values}
    assert len(family) == 17
    for name, values in family.items():
        assert f"| {name} | {values['slow_rate']:g} | {values['embedding_steps']} | " in text, name


def test_every_shipped_configuration_is_named_in_the_readme():
    text = (ROOT / "README.md").read_text()
    for name in shipped_configs():
        assert f"`{name}`" in text, name


def test_the_card_of_the_shipped_bases_says_what_the_files_say():
    folder = ROOT / "fscl" / "meta" / "weights"
    card = (folder / "README.md").read_text()
    for name, path in shipped_bases().items():
        assert path.stat().st_size < 2_000_000
        (row,) = [line for line in card.splitlines() if line.startswith(f"| `{name}` |")]
        _, about = load_base_with_details(name)
        assert f"`fscl train {about['config']}`" in row
        assert f"{100 * about['validation_accuracy']:.2f} %" in row
        for test in about["test"]:
            figure = f"{test['shape']}: {100 * test['accuracy']:.2f} ± {100 * test['interval_95']:.2f} %"
            assert figure in row, figure
        assert about["licence"] == "MIT"


def test_every_public_name_can_be_imported():
    import fscl

    for name in fscl.__all__:
        assert getattr(fscl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fscl.nothing
