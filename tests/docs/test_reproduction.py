"""The pages of runs say what the summaries say, and a verdict follows from the figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from docs.tools.reproduction import PaperTable, probe_table, table_of, verdict
from docs.tools.runs import picture, run_pages, summaries
from fscl.errors import StorageError
from fscl.experiment.config import load_config
from fscl.experiment.plan import Cell
from fscl.experiment.record import RunRecord
from fscl.report.summary import Figure, MethodSummary, Summary, read_summary, summarise_run, write_summary
from tests.report.runs import FAIR, GOOD, Rows, about, append, make_run

PAPER = {"joint": (96.0, 95.0), "tsc": (97.0, 96.5), "fsw": (97.0, 96.5), "replay": (94.0, 92.0)}
TOY = PaperTable("toy", "Toy", {})


def method(name: str, at30: float, at50: float, difference: float, half: float = 0.4) -> MethodSummary:
    return MethodSummary(
        method=name,
        n_sequences=20,
        accuracy={30: Figure(mean=at30, half_width=half), 50: Figure(mean=at50, half_width=half)},
        minus_reference={n: Figure(mean=difference, half_width=half) for n in (30, 50)} if name != "joint" else {},
        minus_class_means={},
        embedding_steps=None,
        seconds_per_task=1.5,
        ms_per_image=0.5,
    )


def run_of_glyphs(folder: Path, matrices: dict[str, list[Rows]], run: dict[str, Any] | None = None) -> RunRecord:
    given = {"methods": list(matrices), "n_sequences": 3, **(run or {})}
    overrides = [f"run.{key}={json.dumps(value)}" for key, value in given.items()]
    config = load_config("glyphs-quick", ["stream.n_tasks=2", "stream.n_way=2", "stream.n_query=5", *overrides])
    record = RunRecord(folder)
    record.begin(about(config.resolved()))
    for name, sequences in matrices.items():
        for number, rows in enumerate(sequences):
            append(record, Cell(name, number), rows, 4)
    return record


JOINT = method("joint", 90.0, 88.0, 0.0)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (method("fsw", 97.3, 96.2, 7.0), "reproduced"),
        (method("fsw", 97.3, 95.2, 7.0), "in order but not in value"),  # one figure of two is outside
        (method("fsw", 92.0, 90.0, 2.0), "in order but not in value"),
        (method("fsw", 90.3, 88.3, 0.3), "not reproduced"),  # the interval holds zero, and not the paper's 1 and 1.5
        (method("fsw", 90.3, 88.3, 0.3, half=1.2), "undecided"),  # at 30 and 50 classes; 96 is far from both figures
        (method("fsw", 90.3, 88.3, 0.3, half=1.1), "not reproduced"),  # 1.5 is outside
        (method("replay", 88.0, 86.0, -2.0, half=2.5), "undecided"),
        (method("tsc", 97.3, 96.2, 7.0), ""),  # ours: not the paper's method
        (method("replay", 92.0, 90.0, 2.0), "not reproduced"),  # the paper's is below joint training
        (method("replay", 80.0, 75.0, -10.0), "in order but not in value"),
        (JOINT, "not reproduced"),
        (method("prototypes", 97.0, 96.0, 7.0), ""),
    ],
)
def test_a_verdict_follows_from_the_figures(row: MethodSummary, expected: str):
    assert verdict(row, JOINT, PAPER) == expected
    few = row.model_copy(update={"n_sequences": 2})
    assert verdict(few, JOINT, PAPER) == ("" if expected == "" else "too few sequences")


def test_a_change_that_rounds_to_nothing_has_no_minus():
    assert Figure(mean=-0.001, half_width=0.01).show(signed=True) == "+0.00 ± 0.01"
    assert Figure(mean=-0.01, half_width=None).show(signed=True) == "-0.01"


def test_a_run_and_its_summary_agree(tmp_path: Path):
    record = run_of_glyphs(
        tmp_path / "run", {"tsc": GOOD, "joint": FAIR, "prototypes": FAIR}, run={"at_classes": [2, 4]}
    )
    write_summary(record.folder, tmp_path / "toy.json")
    summary = read_summary(tmp_path / "toy.json")
    assert summary == summarise_run(record.folder)
    tsc, joint, means = summary.methods
    assert list(tsc.accuracy) == [2, 4]
    assert tsc.accuracy[4].mean == pytest.approx(100 * sum(sum(rows[-1]) / 2 for rows in GOOD) / len(GOOD), abs=1e-3)
    assert tsc.minus_reference[4].mean == pytest.approx(tsc.accuracy[4].mean - joint.accuracy[4].mean, abs=1e-3)
    assert tsc.minus_class_means == tsc.minus_reference  # class means did as joint training did
    assert joint.minus_reference == {}
    assert means.minus_class_means == {}
    text = table_of(summary, TOY)
    assert f"`{summary.command}`, test classes, preset `paper`, 3 sequences" in text
    assert summary.command.startswith("fscl run glyphs-quick stream.n_tasks=2 stream.n_way=2 ")
    assert "| `tsc` |" in text
    assert tsc.embedding_steps == 7.5
    assert joint.ms_per_image == pytest.approx(1000 * 2 / (3 * 2 * 5), abs=1e-3)


def test_an_unfinished_run_says_so(tmp_path: Path):
    record = run_of_glyphs(tmp_path / "some", {"tsc": GOOD, "joint": FAIR[:1]})
    assert "unfinished: 1 to 3 of 3 sequences" in table_of(summarise_run(record.folder), TOY)
    record = run_of_glyphs(tmp_path / "evenly", {"tsc": GOOD[:2], "joint": FAIR[:2]})
    assert "unfinished: 2 of 3 sequences" in table_of(summarise_run(record.folder), TOY)
    record = run_of_glyphs(tmp_path / "none", {"tsc": [], "joint": []})
    assert "Nothing is finished yet" in table_of(summarise_run(record.folder), TOY)


def test_a_run_that_no_command_makes_again_has_no_summary(tmp_path: Path):
    record = make_run(tmp_path / "run", {"tsc": GOOD})  # its configuration is called "toy"
    with pytest.raises(StorageError, match="no command can make it again"):
        summarise_run(record.folder)


def test_every_committed_summary_has_a_page_with_its_command_its_figures_and_a_picture():
    pages, pictures = run_pages()
    assert set(pages) == {f"benchmarks/runs/{name}.md" for name in (*summaries(), "index")}
    for name, summary in summaries().items():
        page = pages[f"benchmarks/runs/{name}.md"]
        assert f"`{summary.command}`" in page
        for method in summary.methods:
            assert all(figure.show() in page for figure in method.accuracy.values()), method.method
    assert set(pictures) == {f"benchmarks/runs/{name}.svg" for name in summaries()}
    drawn = picture(summaries()["omniglot-agreement-quick"]).decode()
    assert drawn.startswith("<?xml")
    assert all(f">{name}<" in drawn for name in ("joint", "replay", "stc", "fsw"))


def test_what_is_no_summary_is_refused(tmp_path: Path):
    from fscl.storage import write_json

    write_json(tmp_path / "x.json", "summary", {"name": "x"})
    with pytest.raises(StorageError, match="is not a summary of a run"):
        read_summary(tmp_path / "x.json")


def test_a_probed_run_has_a_second_table_with_paired_changes(tmp_path: Path):
    probe = {"after": [0, 2], "n_episodes": 2, "n_way": 2, "n_shot": 3}
    overrides = [f"probe.{key}={json.dumps(value)}" for key, value in probe.items()]
    shape = ["stream.n_tasks=2", "stream.n_way=2", "stream.n_query=5", "run.methods=['joint']", "run.n_sequences=3"]
    record = RunRecord(tmp_path / "probed")
    record.begin(about(load_config("glyphs-quick", [*shape, *overrides]).resolved()))
    for number in range(3):
        points = {"0": [0.5, 0.7], "2": [0.6, 0.8 + 0.02 * number]}  # changes of 10, 11 and 12 points
        append(record, Cell("joint", number), FAIR[number], 4, probes={"novel": points, "base": points})
    summary = summarise_run(record.folder)
    assert summary.methods[0].probes["novel"][0] == Figure(mean=60.0, half_width=0.0)
    text = table_of(summary, TOY)
    assert "The probe: 2 problems of 2 ways and 3 shots, learned by class means." in text
    assert "| method | novel, 0 tasks | novel, 2 tasks | novel, change |" in text
    assert "| `joint` | 60.00 ± 0.00 | 71.00 ± 2.48 | **+11.00 ± 2.48** |" in text


def test_where_tasks_bring_examples_the_accuracy_after_each_is_told(tmp_path: Path):
    shape = ["stream.n_tasks=2", "stream.n_way=2", "stream.n_query=5", "run.methods=['joint']", "run.n_sequences=3"]
    record = RunRecord(tmp_path / "instances")
    record.begin(about(load_config("glyphs-quick", [*shape, "stream.setting=new_instance"]).resolved()))
    for number in range(3):
        append(record, Cell("joint", number), GOOD[number], 2)
    text = table_of(summarise_run(record.folder), TOY)
    assert "Accuracy in % after each task:\n\n| method | 1 | 2 |" in text
    assert "| `joint` | 100.00 ± 0.00 | 90.00 ± 24.84 |" in text
    assert "after each task" not in table_of(
        summarise_run(run_of_glyphs(tmp_path / "plain", {"joint": GOOD}).folder), TOY
    )


def test_the_page_of_sessions_has_a_column_for_each():
    figures = {n: Figure(mean=60 - n / 10, half_width=None) for n in (60, 65, 70)}
    row = MethodSummary(
        method="prototypes",
        n_sequences=1,
        accuracy=figures,
        top5={n: Figure(mean=90 - n / 10, half_width=None) for n in (60, 65, 70)},
        minus_reference={},
        minus_class_means={},
        embedding_steps=None,
        seconds_per_task=1.0,
        ms_per_image=1.0,
        average=Figure(mean=53.5, half_width=None),
        drop=Figure(mean=1.0, half_width=None),
    )
    summary = Summary(
        name="mini-fscil",
        command="fscl run mini-fscil",
        split="test",
        preset="quick",
        base="a base",
        reference="joint",
        n_sequences=1,
        versions={},
        methods=[row],
    )
    assert "Not run yet" not in table_of(summary, PaperTable("mini-fscil", "Sessions", {}))
    summary = summary.model_copy(update={"unfinished": ["joint", "tsc"]})
    text = table_of(summary, PaperTable("mini-fscil", "Sessions", {}))
    assert "Base: a base. Not run yet: `joint`, `tsc`." in text
    assert "| method | 60 classes | 65 classes | 70 classes | average | drop |" in text
    assert "| drop | 60 classes, top-5 | 70 classes, top-5 |" in text
    assert "| `prototypes` | 54.00 | 53.50 | 53.00 | 53.50 | 1.00 | 84.00 | 83.00 |" in text


def test_a_probe_of_one_moment_has_no_change():
    probed = method("tsc", 90, 90, 0).model_copy(
        update={"probes": {"novel": {0: Figure(mean=50.0, half_width=0.0)}}, "probe_changes": {"novel": {}}}
    )
    what = {"name": "toy", "command": "", "split": "test", "preset": "quick", "base": "", "reference": "joint"}
    summary = Summary.model_validate({**what, "n_sequences": 3, "versions": {}, "methods": [probed]})
    assert "| `tsc` | 50.00 ± 0.00 |  |" in probe_table(summary)
