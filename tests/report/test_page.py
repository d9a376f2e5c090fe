"""What a page carries: values to sort by, files to download, its own script alone, and nothing of the machine."""

import base64
import csv
import hashlib
import io
import re
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch

from fscl.data.contact_sheet import contact_sheet
from fscl.data.pool import ClassPool
from fscl.data.stream import StreamSpec, sample_stream
from fscl.errors import StorageError
from fscl.experiment.config import make_config
from fscl.experiment.confused import CONFUSIONS, confusions_json, worst_confusions
from fscl.experiment.plan import Cell
from fscl.experiment.record import RunRecord
from fscl.report.page import data_link, write_report
from fscl.rng import generator
from fscl.storage import write_bytes
from tests.report.runs import FAIR, GOOD, POOR, about, append, interval_of, make_run, page_of, table_of


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return make_run(tmp_path / "toy", {"tsc": GOOD, "joint": FAIR, "replay": POOR})


def test_links_hold_the_files_that_lie_beside_the_page(record: RunRecord) -> None:
    page = page_of(record)
    links = dict(re.findall(r'<a href="data:[^,]*,([^"]*)" download="([^"]*)"', page))
    held = {name: unquote(content.replace("&#39;", "'")) for content, name in links.items()}
    figures = [f"figures/{name}.csv" for name in ("accuracy", "confusion", "seconds")]
    tables = [f"{name}.{kind}" for name in ("table", "two-sides", "cost") for kind in ("csv", "tex", "md")]
    beside = [*figures, *tables, "classes.csv"]
    assert held == {f"toy-{Path(path).name}": (record.folder / path).read_text("utf-8") for path in beside}


def test_a_file_too_long_for_a_link_is_named_instead(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_link("text/csv", "a,b\n" * 10) is not None
    assert data_link("text/csv", "a,b\n" * 2**18) is None
    monkeypatch.setattr("fscl.report.page.MOST_IN_LINK", 100)
    assert "<code>figures/accuracy.csv</code>" in page_of(record)


def test_cells_carry_their_means_in_full_and_nothing_where_nothing_was_measured(record: RunRecord) -> None:
    page, table = page_of(record), table_of(record)
    rows = re.findall(r'<tr>\n<th scope="row">(\w+)</th>\n(.*?)</tr>', page, flags=re.DOTALL)
    cells = {method: row.splitlines() for method, row in rows[:3]}
    final, difference = (interval_of(table, "replay", key) for key in ("final_top1", "difference"))
    assert cells["replay"][0] == f'<td data-value="{final.mean!r}">78.3 ± 19.0</td>'
    assert cells["replay"][1] == f'<td data-value="{difference.mean!r}">−1.7 ± 7.2</td>'
    assert cells["joint"][1] == '<td class="soft">reference</td>'


def test_the_script_is_ours_to_the_letter_and_the_policy_allows_no_other(record: RunRecord) -> None:
    page = page_of(record)
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert script == (files("fscl.report") / "page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in page
    assert "innerHTML" not in script
    assert not re.search(r"<[^>]+\son\w+=", page.replace(script, ""))


def test_an_unfinished_method_sorts_by_nothing(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": GOOD, "joint": []})
    append(record, Cell("joint", 1), FAIR[1], 4)
    page = page_of(record)
    assert '<td data-value="1">1</td>' in page  # n
    assert "nan" not in re.sub(r"<(svg|script).*?</\1>", "", page, flags=re.DOTALL)
    (data,) = re.findall(r'href="data:text/csv;charset=utf-8,([^"]*)" download="toy-accuracy.csv"', page)
    assert [row["method"] for row in csv.DictReader(io.StringIO(unquote(data)))] == ["tsc", "tsc", "joint", "joint"]


def test_a_run_without_a_finished_cell_has_a_report_without_figures(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"tsc": [], "joint": []})
    page = page_of(record)
    assert "0 of 6 cells finished" in page
    assert "No cell has finished yet" in page
    assert "<svg" not in page
    assert "<h2>What it costs</h2>" not in page


def test_a_single_sequence_shows_no_number_that_is_none(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path, {"tsc": GOOD[:1], "joint": FAIR[:1]}, run={"n_sequences": 1}))
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)


def test_the_page_and_its_table_are_the_same_bytes_twice(record: RunRecord, tmp_path: Path) -> None:
    first = write_report(record)
    again = write_report(record, tmp_path / "elsewhere")
    assert first == record.folder / "report.html"
    assert again == tmp_path / "elsewhere" / "report.html"
    assert first.read_bytes() == again.read_bytes()
    figures = [f"figures/{name}.{kind}" for name in ("accuracy", "confusion", "seconds") for kind in ("svg", "csv")]
    for name in ("table.csv", "table.tex", "table.md", "cost.csv", *figures):
        assert (first.parent / name).read_bytes() == (again.parent / name).read_bytes()


def test_the_page_loads_nothing_and_names_no_path_of_the_machine(record: RunRecord) -> None:
    page = page_of(record)
    assert "<link" not in page
    assert "@import" not in page
    references = re.findall(r"""(?:src|href|url|srcset|action)\s*[=(]\s*["']?([^"')\s]*)""", page)
    assert references
    carried = ("#", "data:image/png;base64,", "data:text/csv;", "data:application/x-tex;", "data:text/markdown;")
    assert all(reference.startswith(carried) for reference in references)
    addresses = set(re.findall(r"https?://[^\s\"'<]*", page))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, which nothing loads
    assert str(record.folder.parent) not in page
    assert "fscl report toy" in page


def test_hostile_words_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    evil = "</svg><script>alert(1)</script>$\\frac"
    record = RunRecord(tmp_path)
    content = about(
        make_config({"run": {"methods": ["tsc"], "n_sequences": 1}, "stream": {"n_tasks": 2, "n_way": 2}}).resolved()
    )
    content["data"]["pool"] = content["base"]["summary"] = content["versions"]["torch"] = evil
    record.begin(content)
    append(record, Cell("tsc", 0), GOOD[0], 4)
    page = page_of(record)
    assert page.count("<script") == 1  # ours
    assert page.count("</svg>") == 3
    assert page.count("&lt;script&gt;alert(1)") >= 3


def test_a_hostile_name_is_refused(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    content = about(make_config({}).resolved())
    content["config"]["name"] = "<script>alert(1)</script>"
    record.begin(content)
    with pytest.raises(StorageError, match="cannot be reported"):
        page_of(record)


def test_the_page_says_how_to_run_a_configuration_that_is_not_shipped(record: RunRecord) -> None:
    page = page_of(record)
    assert "not a configuration that comes with fscl" in page
    assert "fscl run toy.toml --out toy" in page


def test_paths_of_the_machine_in_the_configuration_are_not_shown(tmp_path: Path) -> None:
    data = {"name": "folder", "path": "/home/me/birds"}
    record = make_run(tmp_path / "my runs", {"tsc": GOOD}, name="glyphs-quick", data=data)
    page = page_of(record)
    assert "/home/me" not in page
    assert "path = &#34;birds&#34;" in page
    assert "fscl report &#39;my runs&#39;" in page  # quoted for the shell


def test_settings_are_shown_where_they_differ_from_the_method(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path, {"tsc": GOOD, "joint": FAIR}, settings={"tsc": {"steps": 33}}))
    assert "<code>steps = 33</code>" in page
    assert page.count('<span class="soft">none</span>') == 1


def test_the_pictures_that_a_method_leaves_are_part_of_the_page(tmp_path: Path) -> None:
    record = make_run(tmp_path, {"gr": GOOD, "joint": FAIR})
    assert "Pictures of methods" not in page_of(record)
    path = record.file_path(Cell("gr", 0), "generated.png")
    write_bytes(path, b"<script>")
    assert "Pictures of methods" not in page_of(record)  # no PNG
    pixels = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    write_bytes(path, contact_sheet([[pixels, pixels]], gap=2))
    page = page_of(record)
    assert "Pictures of methods" in page
    assert "data:image/png;base64,iVBOR" in page
    assert "in each row the shots of a class on the left" in page


def test_the_page_shows_the_worst_of_all_sequences(small_pool: ClassPool, tmp_path: Path):
    record = make_run(tmp_path / "toy", {"tsc": GOOD, "joint": FAIR})
    stream = sample_stream(small_pool, StreamSpec(n_tasks=1, n_way=2, n_shot=3, n_query=4), generator(0, "stream"))
    for number, answers in enumerate([[0, 0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]]):
        pairs = worst_confusions(stream, small_pool, [answers])
        write_bytes(record.file_path(Cell("tsc", number), CONFUSIONS), confusions_json(pairs))
    write_report(record)
    page = (record.folder / "report.html").read_text()
    names = stream.tasks[0].classes
    assert page.index(f"</b> took 4 of 4 images of {names[0]} for") < page.index("</b> took 1 of 4 images")
    assert page.count('<img src="data:image/png;base64,') == 2
