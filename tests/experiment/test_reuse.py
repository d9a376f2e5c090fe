"""Cells of other runs: taken over where they would be the same."""

from pathlib import Path

import pytest

from fscl.continual.settings import Dials
from fscl.errors import OtherRun
from fscl.evaluation.probe import ProbeSpec
from fscl.experiment.plan import Cell, plan_cells
from fscl.experiment.progress import Reporter
from fscl.experiment.record import RunRecord
from fscl.experiment.run import run_experiment
from fscl.experiment.versions import versions
from tests.experiment.tiny import tiny


def test_cells_of_another_run_are_taken_over_where_they_would_be_the_same(
    finished: RunRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = tiny(name="other", run__methods=["prototypes", "tsc", "replay"], run__n_sequences=4)
    config = config.model_copy(update={"settings": {**config.settings, "replay": Dials(steps=7)}})
    record = run_experiment(
        config, tmp_path / "more", workers=1, reporter=Reporter(quiet=False), reuse=[finished.folder]
    )
    mine, theirs = record.cells(), finished.cells()
    # not those of replay, whose steps are others, and not those of sequence 3
    assert "6 finished cells are taken over" in capsys.readouterr().err
    assert all(mine[Cell(method, n)] == theirs[Cell(method, n)] for method in ("tsc", "prototypes") for n in range(3))
    assert all(mine[Cell("replay", n)]["cost"] != theirs[Cell("replay", n)]["cost"] for n in range(3))
    alone = run_experiment(config, tmp_path / "alone", workers=1)
    assert alone.results_path.read_bytes() == record.results_path.read_bytes()


def test_cells_of_another_arithmetic_are_not_taken_over_and_such_a_run_is_not_continued(
    finished: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fscl.experiment.versions.ARITHMETIC", "3")
    other = RunRecord(tmp_path / "other")
    other.begin({**finished.about(), "versions": versions("cpu")})
    assert other.take_over(finished, plan_cells(tiny())) == 0
    with pytest.raises(OtherRun, match=r"versions\.arithmetic = '2', but now it is '3'"):
        finished.begin({**finished.about(), "versions": versions("cpu")})


def test_a_method_of_another_name_serves_where_its_settings_are_the_same(tmp_path: Path):
    start = {"run__n_sequences": 1, "run__reference": "joint"}
    named = run_experiment(tiny(run__methods=["joint", "head"], **start), tmp_path / "named", workers=1)
    variants = tiny(run__methods=["fsw@beta=0", "fsw@k=5"], **{**start, "run__reference": "fsw@k=5"})
    settings = {"fsw@beta=0": Dials(slow_rate=0, embedding_steps="all"), "fsw@k=5": Dials(embedding_steps=5)}
    variants = variants.model_copy(update={"settings": {**variants.settings, **settings}})
    alone = run_experiment(variants, tmp_path / "alone", workers=1)
    record = run_experiment(variants, tmp_path / "served", workers=1, reuse=[named.folder])
    served, theirs = record.cells()[Cell("fsw@beta=0", 0)], named.cells()[Cell("joint", 0)]
    assert served["cost"] == theirs["cost"]  # its very times: nothing was computed again
    assert record.results_path.read_bytes() == alone.results_path.read_bytes()
    confused = [one.confused_path(Cell("fsw@beta=0", 0)).read_bytes() for one in (record, alone)]
    assert confused[0] == confused[1]


def test_a_probed_run_serves_one_that_does_not_probe_but_not_the_other_way(tmp_path: Path):
    probe = {"after": [0, 3], "n_episodes": 2, "n_way": 2, "n_shot": 2, "n_query": 2, "n_classes": 4}
    plain = tiny(run__methods=["prototypes"], run__n_sequences=1, run__reference="prototypes")
    probed = plain.model_copy(update={"probe": ProbeSpec.model_validate(probe)})
    both = {
        name: run_experiment(config, tmp_path / name, workers=1)
        for name, config in (("plain", plain), ("probed", probed))
    }
    again = RunRecord(tmp_path / "again")
    again.begin(both["plain"].about())
    assert again.take_over(both["probed"], plan_cells(plain)) == 1
    assert again.cells()[Cell("prototypes", 0)]["result"] == both["plain"].cells()[Cell("prototypes", 0)]["result"]
    other = RunRecord(tmp_path / "other")
    other.begin(both["probed"].about())
    assert other.take_over(both["plain"], plan_cells(probed)) == 0


def test_cells_of_another_kind_of_processor_are_refused_with_both_shown(
    finished: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fscl.experiment.versions.cpu_level", lambda: "torch Z80")
    other = RunRecord(tmp_path / "other")
    other.begin({**finished.about(), "versions": versions("cpu")})
    with pytest.raises(
        OtherRun, match=r"another kind of processor: torch .*, oneDNN .*, but this run is on torch Z80\."
    ):
        other.take_over(finished, plan_cells(tiny()))
    assert other.cells() == {}


def test_the_processor_does_not_matter_to_a_run_on_a_gpu():
    assert "cpu" in versions("cpu")
    assert "cpu" not in versions("cuda")
