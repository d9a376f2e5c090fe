"""The command and the configuration file that make a run again."""

import tomllib

import pytest

from fscl.experiment.config import load_config, load_plan, make_config
from fscl.report.commands import run_command, shown_path, toml_listing


def test_a_shipped_configuration_is_named_with_its_overrides() -> None:
    plain = load_config("glyphs-quick")
    assert run_command(plain.resolved(), "out") == "fscl run glyphs-quick --out out"
    overrides = ["stream.n_tasks=3", 'run.methods=["tsc", "joint"]']
    changed = load_config("glyphs-quick", overrides)
    command = run_command(changed.resolved(), "out")
    assert command == 'fscl run glyphs-quick stream.n_tasks=3 \'run.methods=["tsc", "joint"]\' --out out'
    assert run_command({**plain.resolved(), "name": "mine"}, "out") is None


@pytest.mark.parametrize("name", ["glyphs-quick", "glyphs-protonet"])
def test_the_listing_is_a_configuration_that_makes_the_same_run(name: str) -> None:
    resolved = load_config(name, ["settings.tsc.regulariser.strength=1e-10"]).resolved()
    assert make_config(tomllib.loads(toml_listing(resolved))).resolved() == resolved


@pytest.mark.parametrize(
    ("given", "shown"), [("runs/a", "runs/a"), ("/home/me/runs/a", "a"), ("C:\\runs\\a", "a"), (".", ".")]
)
def test_an_absolute_path_is_cut_to_its_last_part(given: str, shown: str) -> None:
    assert shown_path(given) == shown


def test_the_command_of_a_part_names_its_plan_and_its_own_folder() -> None:
    (part,) = [config for config in load_plan("omniglot-table2").configs if config.name == "omniglot-table2-maml"]
    expected = "fscl run omniglot-table2 --part omniglot-table2-maml --out runs/x"
    assert run_command(part.resolved(), "runs/x") == expected
    assert run_command(part.model_copy(update={"seed": 5}).resolved(), "runs/x") is None
