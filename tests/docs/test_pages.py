"""What the documentation says is what the library does."""

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from docs.tools.cli_reference import cli_pages
from docs.tools.config_reference import config_pages
from docs.tools.method_reference import method_pages
from fscl.cli import app, main
from fscl.continual.registry import methods
from fscl.data.catalogue import built_in_data_sets
from fscl.data.stream import StreamSpec
from fscl.experiment.config import NetworkConfig, RunConfig, make_config, shipped_configs
from fscl.meta.shipped import load_base_with_details, shipped_bases
from tests.conftest import ROOT

SECTIONS: dict[str, type[BaseModel]] = {
    "stream": StreamSpec,
    "run": RunConfig,
    "base.network": NetworkConfig,
}


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_readme_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]):
    text = (ROOT / "README.md").read_text("utf-8")
    (block,), (said,) = python_blocks("README.md"), re.findall(r"```text\n(\[.*?\])\n```", text)
    assert len([line for line in block.splitlines() if line]) <= 10
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    curves = [
        [float(number) for number in re.findall(r"\d\.\d*", lines)] for lines in (printed, said)
    ]  # numpy prints 1.
    assert curves[0] == pytest.approx(curves[1], abs=0.03)  # last digits depend on the processor
    assert len(curves[0]) == 4


def test_the_readme_can_be_read_in_half_a_minute():
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text("utf-8"), flags=re.DOTALL)
    before_the_table = text.partition("## Where to go")[0]
    assert len(before_the_table.split()) < 250


def test_the_picture_of_the_readme_is_made_from_the_newest_summaries():
    from PIL import Image

    from docs.tools.readme_picture import OUT, in_words

    with Image.open(OUT) as picture:
        assert picture.text["Description"] == in_words()  # else: python -m docs.tools.readme_picture


def test_the_example_for_those_who_come_from_scikit_learn_prints_what_it_says(capsys: pytest.CaptureFixture[str]):
    (block,) = python_blocks("docs/how-to/migrate.md")
    (said,) = re.findall(r"```text\n(.*?)```", (ROOT / "docs/how-to/migrate.md").read_text("utf-8"), re.DOTALL)
    exec(compile(block, "migrate.md", "exec"), {})
    assert capsys.readouterr().out == said


@pytest.mark.slow
def test_every_command_of_the_first_experiment_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page = (ROOT / "docs" / "tutorials" / "first-experiment.md").read_text("utf-8")
    (config,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    smaller = config.replace("n_tasks = 5 ", "n_tasks = 2 ").replace("n_sequences = 3 ", "n_sequences = 2 ")
    quick = "[settings.all]\nsteps = 5\nembedding_steps = 2\n"  # what is learned in that is not looked at
    monkeypatch.chdir(tmp_path)
    Path("first.toml").write_text(f"{smaller}\n{quick}")
    printed = []
    for command in "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(command) + (["--workers", "1"] if " run " in command else []))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not ended.value.code, (command, err)
        printed.append(out)
    assert "first: valid" in printed[0]
    assert "sequential" in printed[2]
    assert "tsc@one-view" in printed[3]


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


def test_the_architecture_page_lists_the_settings_of_consolidation():
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    family = {name: method.settings_in_force().model_dump() for name, method in methods().items()}
    family = {name: values for name, values in family.items() if "slow_rate" in values}
    assert len(family) == 17
    for name, values in family.items():
        assert f"| {name} | {values['slow_rate']:g} | {values['embedding_steps']} | " in text, name


def test_every_shipped_configuration_is_in_the_reference_and_says_what_it_does():
    text = config_pages()[0]["reference/configurations.md"]
    for name in shipped_configs():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` | ")]
        assert len(row) > len(name) + 40, row


def test_every_command_is_in_the_reference_with_its_options():
    text = cli_pages()[0]["reference/command-line.md"]
    for words in (["learn"], ["serve"], ["run"], ["data", "fetch"]):
        section = text.split(f"## `fscl {' '.join(words)}`\n")[1].split("\n## ")[0]
        help_page = CliRunner().invoke(app, [*words, "--help"]).output
        options = set(re.findall(r"--[a-z-]+", help_page)) - {"--help"}
        assert options == set(re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE))


def test_every_key_of_a_configuration_is_in_the_reference_with_a_sentence():
    text = config_pages()[0]["reference/configuration.md"]
    leaves = [f"{section}.{key}" for section, schema in SECTIONS.items() for key in schema.model_fields]
    for key in leaves:
        found = [line for line in text.splitlines() if line.startswith((f"| `{key}` | ", f"| `{key}."))]
        assert found, key
        assert all(len(row.split(" | ")[-1]) > 8 for row in found), found
    for name in built_in_data_sets():
        assert f'### `name = "{name}"`' in text


def test_every_method_has_a_page_with_all_its_parts():
    pages = method_pages()[0]
    for name, method in methods().items():
        page = pages[f"reference/methods/{name}.md"]
        parts = dict(re.findall(r"^## (.*?)\n\n(.*?)(?=\n## |\Z)", page, re.MULTILINE | re.DOTALL))
        assert list(parts) == ["Idea", "Source", "Equation", "Settings", "Departs from the paper", "Figures"]
        assert all(len(text.strip()) > 4 for text in parts.values()), name
        for key in method.settings_in_force().model_dump():
            assert f"| `{key}` | " in parts["Settings"], (name, key)


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
