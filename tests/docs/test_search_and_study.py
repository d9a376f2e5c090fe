"""What the page on searches and studies says is what the library does."""

import re
import tomllib
from pathlib import Path

from fscl.experiment.config import load_config, make_config, shipped_configs
from fscl.experiment.search.record import Trials
from fscl.experiment.study.spec import load_study
from fscl.report.track import TRACKERS
from fscl.storage import read_json
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "how-to" / "search-and-study.md").read_text()
SEARCH, STUDY = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_the_search_of_the_page_is_the_one_that_comes_with_the_package():
    shown, shipped = make_config(tomllib.loads(SEARCH)), load_config("glyphs-search")
    assert shown == shipped


def test_the_study_of_the_page_is_valid_and_makes_the_runs_that_it_names(tmp_path: Path):
    (tmp_path / "study.toml").write_text(STUDY)
    study = load_study(str(tmp_path / "study.toml"))
    assert [run.name for run in study.runs][:2] == ["few-short-glyphs", "few-short-omniglot"]
    assert len(study.runs) == 4
    assert [(base.name, base.processes) for base in study.bases] == [("short", 2)]


def test_every_configuration_that_chose_something_exists_and_is_on_validation_classes():
    section = PAGE[PAGE.index("## Which search chose what") : PAGE.index("## A study")]
    named = set(re.findall(r"`([a-z0-9-]+-(?:choice|strengths|search)[a-z-]*)`", section))
    assert len(named) == 7
    for name in named:
        assert load_config(name).run.split == "validation"
    searches = {name for name in shipped_configs() if "search" in name}
    assert {f"`{name}`" for name in searches} <= set(re.findall(r"`[a-z0-9-]+`", PAGE))


def test_the_winner_on_the_page_is_that_of_the_committed_trials():
    trials = Trials.model_validate(
        read_json(ROOT / "docs" / "results" / "searches" / "omniglot-search-replay.json", "trials")
    )
    best = trials.best()
    assert best is not None
    assert best.number == trials.winner
    assert f"trial {best.number} of {len(trials.trials)}" in PAGE
    assert f"{best.mean:.1f} %" in PAGE


def test_every_tracker_is_on_the_page():
    for name in TRACKERS:
        assert f"--to {name}" in PAGE
