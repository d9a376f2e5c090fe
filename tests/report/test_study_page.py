"""The index of a study: links to reports, and differences where the streams are the same."""

import re
from pathlib import Path

from fscl.experiment.config import make_config
from fscl.experiment.study.driver import StudyRecord
from fscl.experiment.study.spec import Study, StudyRun
from fscl.report.page import write_report
from fscl.report.study_page import write_index
from fscl.storage import read_json, write_json
from tests.report.runs import FAIR, GOOD, POOR, Rows, make_run


def run(name: str, methods: list[str]) -> StudyRun:
    config = make_config(
        {
            "name": name,
            "stream": {"n_tasks": 2, "n_way": 2, "n_query": 5},
            "run": {"methods": methods, "reference": methods[0], "n_sequences": 3},
        }
    )
    return StudyRun(name, config, None)


def made(tmp_path: Path) -> tuple[Study, StudyRecord]:
    """Two runs on the same streams, one on others, and one that has not begun."""
    record = StudyRecord(tmp_path / "study")
    matrices: dict[str, dict[str, list[Rows]]] = {
        "first": {"tsc": GOOD, "joint": FAIR},
        "second": {"tsc": FAIR, "replay": POOR},
        "elsewhere": {"tsc": POOR},
    }
    for name, methods in matrices.items():
        make_run(record.run(name).folder, methods, name=name, run={"n_sequences": 3, "reference": "tsc"})
    elsewhere = record.run("elsewhere")
    about = read_json(elsewhere.about_path, "run")
    elsewhere.cells_path.unlink()
    write_json(elsewhere.about_path, "run", {**about, "streams": ["b" * 16] * 3})
    write_report(record.run("first"))
    runs = (
        run("first", ["tsc", "joint"]),
        run("second", ["tsc", "replay"]),
        run("elsewhere", ["tsc"]),
        run("later", ["tsc"]),
    )
    return Study("toy", (), runs), record


def test_the_index_links_reports_and_pairs_what_met_the_same_streams(tmp_path: Path):
    study, record = made(tmp_path)
    text = write_index(study, record, "toy.toml").read_text()
    assert '<a href="runs/first/report.html">first</a>' in text
    assert "runs/second/report.html" not in text  # it has no report yet
    assert re.findall("<h3>(.*?)</h3>", text) == ["second minus first"]
    # tsc: 70, 80, 90 minus 80, 90, 100
    assert re.search(r'<th scope="row">tsc</th><td>4</td><td data-value="-10\.\d*">−10\.00 ± 0\.00</td>', text)
    assert "elsewhere: no difference to first, whose streams are others, so that nothing could be paired." in text
    assert "not begun" in text
    assert "Unfinished: 2 of 4 runs" in text
    assert "fscl study toy.toml --out study" in text


def test_the_index_has_one_table_of_all_methods_and_runs(tmp_path: Path):
    study, record = made(tmp_path)
    text = write_index(study, record, "toy.toml").read_text()
    table = text[text.index("Accuracy after the last task") : text.index("Across runs")]
    assert re.findall(r'<tr><th scope="row">(.*?)</th>', table) == ["tsc", "joint", "replay"]
    assert "90.0 ± 24.8" in table  # 80, 90, 100
    assert "Preliminary" in table


def test_the_index_loads_nothing_and_names_no_path_of_the_machine(tmp_path: Path):
    study, record = made(tmp_path)
    page = write_index(study, record, str(tmp_path / "toy.toml"))
    text = page.read_text()
    assert re.findall(r"(?:src|href)=\"([^\"#]*)\"", text) == ["runs/first/report.html"]
    assert str(tmp_path) not in text
    assert page.read_bytes() == write_index(study, record, "toy.toml").read_bytes()
