"""The page of a search: what mattered, every trial, the winner; from the search directory alone."""

import re
from pathlib import Path

import pytest

from fscl.experiment.config import make_config
from fscl.experiment.search.driver import winner_toml
from fscl.experiment.search.record import SearchRecord, Trial, Trials
from fscl.experiment.search.spec import SearchSpec
from fscl.report.search_page import search_sentence, write_search_page

SEARCH = {
    "method": "ewc",
    "trials": 4,
    "first": 2,
    "space": {
        "regulariser.strength": {"low": 1.0, "high": 1e6, "log": True},
        "regulariser.first_strength": {"values": [0.0, 1.0]},
        "steps": {"low": 10, "high": 500, "step": 10},
    },
}
CONFIG = make_config(
    {
        "name": "toy-search",
        "base": {"use": "/home/somebody/base.safetensors"},
        "run": {"methods": ["ewc"], "reference": "ewc", "split": "validation", "n_sequences": 3},
        "search": SEARCH,
    }
)
STATES = [
    ("complete", [80.0, 82.0, 84.0]),
    ("stopped", [70.0, 74.0]),
    ("complete", [84.0, 85.0, 89.0]),
    ("diverged", []),
]


def made(folder: Path, winner: int | None = 2) -> SearchRecord:
    record = SearchRecord(folder)
    assert CONFIG.search is not None
    about = {"config": CONFIG.resolved(), "search": CONFIG.search.model_dump(mode="json"), "versions": {"torch": "2"}}
    record.begin({**about, "optuna": "4.0"})
    trials = [
        Trial(
            number=number,
            values={"regulariser.strength": 10.0**number, "regulariser.first_strength": number % 2.0, "steps": 100},
            state=state,  # type: ignore[arg-type]
            accuracy=accuracy,
        )
        for number, (state, accuracy) in enumerate(STATES)
    ]
    importance = {"regulariser.strength": 0.7, "regulariser.first_strength": 0.2, "steps": 0.1}
    record.write(Trials(trials=trials, importance=importance, winner=winner))
    if winner is not None:
        record.winner_path.write_text(winner_toml(CONFIG, trials[winner], 4, "0" * 16))
    return record


def test_the_page_has_every_trial_what_mattered_and_the_winner(tmp_path: Path):
    text = write_search_page(made(tmp_path / "search")).read_text()
    assert len(re.findall(r'<th scope="row" data-value="\d">', text)) == 4
    assert "2 (winner)" in text
    assert '<td data-value="0.70">0.70</td>' in text
    assert text.index("regulariser.strength</th><td>1 to 1e+06, logarithmic</td>") < text.index(
        "steps</th><td>10 to 500"
    )
    assert len(re.findall("<title>trial ", text)) == 3 * 3  # trials with two sequences, in three panels
    assert "trial 1, regulariser.strength = 10: 72.00 %, stopped" in text
    assert "chosen_by = &#34;toy-search (0000000000000000), trial 2 of 4&#34;" in text
    assert "fscl search toy-search --out search" in text


def test_the_page_loads_nothing_and_is_the_same_bytes_twice(tmp_path: Path):
    record = made(tmp_path / "search")
    first = write_search_page(record).read_bytes()
    assert first == write_search_page(record).read_bytes()
    text = first.decode()
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)[^\"]*\"", text)
    assert "default-src 'none'" in text
    assert str(tmp_path) not in text
    assert "/home/somebody" not in text


def test_the_sentence_compares_the_winner_with_what_there_was_in_pairs(tmp_path: Path):
    trials = made(tmp_path / "search").trials()
    text = search_sentence(SearchSpec.model_validate(SEARCH), trials)
    assert text.startswith("Of 4 trials, trial 2 is the best: regulariser.strength = 100, ")
    assert "86.00 ± " in text
    assert "Minus trial 0: +4.00 ± " in text  # 4, 3 and 5 points


def test_an_unfinished_search_has_a_page_without_a_winner(tmp_path: Path):
    text = write_search_page(made(tmp_path / "search", winner=None)).read_text()
    assert "Unfinished: 4 of 4 trials begun" in text
    assert "Not known yet." in text


def test_a_folder_without_a_search_is_refused(tmp_path: Path):
    from fscl.errors import RunError

    with pytest.raises(RunError, match="is not a search directory"):
        write_search_page(SearchRecord(tmp_path))
