"""Both sides of a method and what they cost, worked out on paper for a small run; and the images that were confused."""

import base64
import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from fscl.continual.registry import make_learner
from fscl.data.pool import ClassPool
from fscl.data.stream import StreamSpec, sample_stream
from fscl.errors import StorageError
from fscl.evaluation.protocol import evaluate_stream
from fscl.experiment.confused import MAX_SIDE, MOST_IMAGES, confusions_json, load_confusions, worst_confusions
from fscl.experiment.plan import Cell
from fscl.experiment.record import RunRecord
from fscl.nets.trained import NetworkSpec, init_network
from fscl.report.page import write_report
from fscl.report.reproduction import probe_table
from fscl.report.results import Results, read_results
from fscl.report.summary import Figure, MethodSummary, Summary
from fscl.report.tables import print_table, summarise, summary_table
from fscl.report.transfer import (
    Cost,
    backward_lines,
    costs,
    probing_share,
    shown_moments,
    transfer_rows,
    two_sides,
    two_sides_rows,
    two_sides_table,
)
from fscl.report.two_sides import transfer_svg, two_sides_svg
from fscl.report.words import _time, both_sides
from fscl.rng import generator
from fscl.storage import read_json, write_bytes, write_json
from tests.conftest import noise_pool
from tests.report.test_report import FAIR, GOOD, append, make_run, page_of

T3 = 4.302653  # Student's t, 97.5 %, for three values
PROBE = {"after": [0, 1, 2], "n_episodes": 2, "n_way": 2, "n_shot": 3}
# the novel side after 0, 1 and 2 tasks, two problems each; rises by 10, 20 and 30 points over the three sequences
RISING = [
    [[0.5, 0.7], [0.6, 0.6], [0.6, 0.8]],
    [[0.4, 0.6], [0.5, 0.5], [0.7, 0.7]],
    [[0.5, 0.5], [0.6, 0.6], [0.8, 0.8]],
]
STILL = [[[0.5, 0.7]] * 3] * 3


def probed_run(folder: Path, sequences: int = 3) -> RunRecord:
    record = make_run(folder, {"tsc": [], "prototypes": []}, probe=PROBE, run={"n_sequences": sequences})
    for method, matrices, shares in (("tsc", GOOD, RISING), ("prototypes", FAIR, STILL)):
        for number in range(sequences):
            points = {str(after): shares[number][after] for after in (0, 1, 2)}
            more: dict[str, Any] = {"probes": {"novel": points, "base": {str(after): [0.9, 0.9] for after in range(3)}}}
            seconds = [0.5, 1.5] if method == "tsc" else [0.05, 0.05]
            counts = [4_000_000, 8_000_000] if method == "tsc" else [1_000_000, None]
            kept = {"weights": 2048, "memory": 1024 * (1 + number)}
            cost = {"learn_seconds": seconds, "multiply_adds": counts, "stored_bytes": kept, "probe_seconds": 0.7}
            append(record, Cell(method, number), matrices[number], 4, cost=cost, **more)
    return record


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return read_results(probed_run(tmp_path / "toy"))


def test_a_change_of_the_probe_is_paired_and_its_interval_is_over_sequences(results: Results):
    tsc, means = two_sides(results)
    first, middle, last = tsc.probes["novel"]
    assert (first.after, first.change) == (0, None)
    assert first.accuracy.mean == pytest.approx((60 + 50 + 50) / 3)
    assert middle.change is not None
    assert middle.change.mean == pytest.approx((0 + 0 + 10) / 3)
    assert last.change is not None
    assert last.change.mean == pytest.approx(20)
    assert last.change.half_width == pytest.approx(T3 * 10 / math.sqrt(3), rel=1e-4)
    assert not last.changed  # 20 ± 24.8
    assert means.probes["novel"][-1].change is not None
    assert means.probes["novel"][-1].change.mean == 0


def test_of_a_single_sequence_the_interval_is_over_its_problems(tmp_path: Path):
    row, _ = two_sides(read_results(probed_run(tmp_path / "one", sequences=1)))
    last = row.probes["novel"][-1]
    assert last.change is not None
    assert last.change.n == 2
    assert last.change.mean == pytest.approx(10)  # of 10 and 10
    assert last.change.half_width == pytest.approx(0, abs=1e-9)


def test_old_new_and_harmonic_are_those_of_the_matrices(results: Results):
    tsc, means = two_sides(results)
    assert (tsc.old.mean, tsc.new.mean, tsc.harmonic.mean) == pytest.approx((90, 90, 90))
    harmonics = [2 * a * b / (a + b) for a, b in ((50, 90), (70, 90), (80, 100))]
    assert means.harmonic.mean == pytest.approx(np.mean(harmonics))
    assert math.isnan(tsc.forward.mean)


def test_costs_are_those_of_a_class_and_unknown_work_is_not_summed(results: Results):
    tsc, means = costs(results)
    assert tsc.seconds_per_class == pytest.approx(2 / 4)
    assert tsc.multiply_adds_per_class == pytest.approx(3e6)
    assert tsc.stored == {"weights": 2048, "memory": 3072}
    assert tsc.stored_bytes == 5120
    assert math.isnan(means.multiply_adds_per_class)
    assert probing_share(results) == pytest.approx(6 * 0.7 / (3 * 2 + 3 * 0.1))


def test_the_sentence_claims_only_what_the_intervals_allow(results: Results, tmp_path: Path):
    (sentence,) = both_sides(results)
    told = sentence.replace("\u00a0", " ")
    assert told.startswith(
        "tsc keeps 90.0 % of 4 classes, and its 3-shot accuracy on classes never seen changed by +20.0"
    )
    assert "(no change is shown) after 2 tasks; prototypes: 80.0 %, unchanged, in 1/20 of the time." in told
    assert both_sides(read_results(make_run(tmp_path / "plain", {"tsc": GOOD}))) == []


def test_a_change_that_excludes_zero_is_called_a_rise(tmp_path: Path):
    record = make_run(tmp_path / "toy", {"tsc": []}, probe=PROBE)
    for number in range(3):
        points = {"0": [0.5, 0.5], "1": [0.6, 0.6], "2": [0.6 + 0.01 * number] * 2}
        append(record, Cell("tsc", number), GOOD[number], 4, probes={"novel": points, "base": points})
    (sentence,) = both_sides(read_results(record))
    assert "on classes never seen rose by 11.00 ± 2.48 points after 2 tasks" in sentence.replace("\u00a0", " ")


def test_figures_say_their_numbers_and_are_the_same_bytes_again(results: Results):
    assert two_sides_svg(results) == two_sides_svg(results)
    assert "tsc, 2 tasks learned: 73.3 ± 14.3 %" in two_sides_svg(results)
    assert "prototypes, 1 tasks learned: 90.0 ± 0.0 %" in transfer_svg(results)
    moments, lines = backward_lines(results)
    assert moments.tolist() == [2]
    assert lines[0].mean.tolist() == [0]  # restricted accuracy is 1 throughout


def test_the_numbers_of_a_figure_can_be_had_as_rows(results: Results):
    rows = two_sides_rows(results)
    assert rows[0] == ["measure", "method", "at", "value", "half_width", "n_sequences"]
    assert ["accuracy_percent_by_n_classes", "tsc", "4", "90.000000"] in [row[:4] for row in rows]
    assert ["probe_novel_percent_by_n_tasks", "tsc", "2", "73.3333"] in [row[:4] for row in rows]
    assert {row[0] for row in transfer_rows(results)[1:]} == {
        "backward_transfer_points_by_n_tasks",
        "probe_novel_percent_by_n_tasks",
        "probe_base_percent_by_n_tasks",
    }
    assert all(len(row) == len(two_sides_table(results)[0]) for row in two_sides_table(results))
    assert shown_moments(results) == [0, 1, 2]


def test_the_page_shows_both_sides_and_the_files_lie_beside_it(tmp_path: Path):
    record = probed_run(tmp_path / "toy")
    page = page_of(record)
    assert page.count("Probe, novel<small>after") == 3
    assert "2 fresh problems of 2 ways and 3 shots" in page
    assert "<td>–</td>" in page  # work that nobody counted
    rows = list(csv.DictReader(io.StringIO((record.folder / "two-sides.csv").read_text())))
    assert float(rows[0]["probe_novel_change_2_points"]) == pytest.approx(20)
    assert len((record.folder / "classes.csv").read_text().splitlines()) == 1 + 2 * 4
    assert (record.folder / "figures" / "transfer.csv").exists()


def test_without_a_probe_the_page_says_how_to_ask_for_one(tmp_path: Path):
    page = page_of(make_run(tmp_path / "plain", {"tsc": GOOD}))
    assert "was not probed in this run" in page
    assert "Probe, novel" not in page


def test_the_worst_confusions_come_first_with_the_images_that_were_confused(small_pool: ClassPool, tmp_path: Path):
    stream = sample_stream(small_pool, StreamSpec(n_tasks=2, n_way=2, n_shot=3, n_query=4), generator(0, "stream"))
    answers = [
        [0, 3, 3, 3, 1, 1, 1, 0],
        [2, 2, 2, 2, 3, 3, 3, 3],
    ]  # class 0 three times taken for 3, class 1 once for 0
    pairs = worst_confusions(stream, small_pool, answers)
    names = [name for task in stream.tasks for name in task.classes]
    assert [(p.true, p.answered, p.count, p.of) for p in pairs] == [
        (names[0], names[3], 3, 4),
        (names[1], names[0], 1, 4),
    ]
    picture = np.asarray(Image.open(io.BytesIO(pairs[0].png())))
    wrong = stream.task(small_pool, 0).query.images[1:4, 0]
    size = wrong.shape[-1]
    assert all((picture[:, i * (size + 2) : i * (size + 2) + size] == wrong[i].numpy()).all() for i in range(3))
    assert picture.shape[1] <= 3 * MOST_IMAGES * (size + 2) + size
    (tmp_path / "a.json").write_bytes(confusions_json(pairs))
    assert load_confusions(tmp_path / "a.json") == pairs


@pytest.mark.parametrize("damage", ["not base64!", base64.b64encode(b"<svg onload=alert(1)>").decode()])
def test_a_picture_that_is_no_png_is_refused(damage: str, small_pool: ClassPool, tmp_path: Path):
    stream = sample_stream(small_pool, StreamSpec(n_tasks=1, n_way=2, n_shot=3, n_query=4), generator(0, "stream"))
    (tmp_path / "a.json").write_bytes(confusions_json(worst_confusions(stream, small_pool, [[1] * 8])))
    content = {key: value for key, value in read_json(tmp_path / "a.json", "confusions").items() if key == "pairs"}
    content["pairs"][0]["picture"] = damage
    write_json(tmp_path / "a.json", "confusions", content)
    with pytest.raises(StorageError, match="is not a list of confusions"):
        load_confusions(tmp_path / "a.json")


def test_the_page_shows_the_worst_of_all_sequences(small_pool: ClassPool, tmp_path: Path):
    record = make_run(tmp_path / "toy", {"tsc": GOOD, "joint": FAIR})
    stream = sample_stream(small_pool, StreamSpec(n_tasks=1, n_way=2, n_shot=3, n_query=4), generator(0, "stream"))
    for number, answers in enumerate([[0, 0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]]):
        pairs = worst_confusions(stream, small_pool, [answers])
        write_bytes(record.confused_path(Cell("tsc", number)), confusions_json(pairs))
    write_report(record)
    page = (record.folder / "report.html").read_text()
    names = stream.tasks[0].classes
    assert page.index(f"</b> took 4 of 4 images of {names[0]} for") < page.index("</b> took 1 of 4 images")
    assert page.count('<img src="data:image/png;base64,') == 2


def test_forward_transfer_of_guessing_is_zero_though_there_is_ever_more_to_guess_from(tmp_path: Path):
    spec = {"setting": "mixed", "class_change_interval": 2}
    rows = [[1.0], [1.0, 1.0], [1.0] * 3, [1.0] * 4]
    record = make_run(tmp_path / "mixed", {"tsc": [], "joint": []}, stream={**spec, "n_tasks": 4})
    for number in range(3):
        append(record, Cell("tsc", number), rows, 4, before=[None, 0.5, None, 0.25])
        append(record, Cell("joint", number), rows, 4, before=[None, 0.9, None, 0.65])
    guessing, better = two_sides(read_results(record))
    assert guessing.forward.mean == pytest.approx(0)
    assert better.forward.mean == pytest.approx(40)
    assert "FWT<small>points" in page_of(record)
    assert "Harmonic<small>" not in page_of(record)  # classes return with the same test images
    assert "classes that change every 2 tasks, from" in page_of(record)


def test_classes_that_take_over_labels_are_told_of(tmp_path: Path):
    spec = {"setting": "mixed", "overwrite": True, "n_tasks": 2}
    record = make_run(tmp_path / "overwrite", {"tsc": []}, stream=spec, run={"n_sequences": 1})
    append(record, Cell("tsc", 0), [[1.0], [1.0, 1.0]], 2)
    assert "change every task, the new ones under the labels of the old, from" in page_of(record)


def test_one_sequence_claims_no_rise(tmp_path: Path):
    record = make_run(tmp_path / "toy", {"tsc": []}, probe=PROBE, run={"n_sequences": 1})
    points = {"0": [0.5, 0.52], "1": [0.6, 0.6], "2": [0.9, 0.9]}
    append(record, Cell("tsc", 0), GOOD[0], 4, probes={"novel": points, "base": points})
    results = read_results(record)
    assert not two_sides(results)[0].probes["novel"][-1].changed
    assert "points on this one sequence after 2 tasks" in both_sides(results)[0].replace("\u00a0", " ")
    assert "say nothing of other sequences" in page_of(record)


def test_of_an_unfinished_run_the_sentence_tells_what_all_methods_have(tmp_path: Path):
    record = probed_run(tmp_path / "toy")
    lines = record.cells_path.read_text().splitlines(keepends=True)
    record.cells_path.write_text("".join(lines[:-1]))  # class means lack the last sequence, where tsc had all 100 %
    told = both_sides(read_results(record))[0].replace("\u00a0", " ")
    assert told.startswith("tsc keeps 85.0 % of 4 classes")
    assert told.endswith("So far, on 2 of 3 sequences.")


def test_class_means_are_in_the_sentence_however_many_methods_there_are(tmp_path: Path):
    methods = ["tsc", "joint", "replay", "ewc", "si", "mas", "stc", "prototypes"]
    record = make_run(tmp_path / "many", {method: [] for method in methods}, probe=PROBE)
    points = {str(after): [0.5, 0.5] for after in range(3)}
    for method in methods:
        for number in range(3):
            append(record, Cell(method, number), GOOD[number], 4, probes={"novel": points, "base": points})
    (sentence,) = both_sides(read_results(record))
    assert all(f"{method}: " in sentence for method in ("joint", "prototypes"))
    assert "The table has 2 more." in sentence


def test_a_probe_that_begins_later_has_its_columns_under_their_headings(tmp_path: Path):
    record = make_run(tmp_path / "late", {"tsc": []}, probe={**PROBE, "after": [1, 2]})
    for number in range(3):
        points = {"1": [0.5, 0.5], "2": [0.7, 0.7]}
        append(record, Cell("tsc", number), GOOD[number], 4, probes={"novel": points, "base": points})
    results = read_results(record)
    heading, row = two_sides_table(results)
    found = dict(zip(heading, row, strict=True))
    assert (found["probe_novel_after_2_percent"], found["probe_novel_change_2_points"]) == ("70", "20")
    assert "probe_novel_change_1_points" not in found
    assert "rose by 20.00 ± 0.00 points since task 1 after 2 tasks" in both_sides(results)[0].replace("\u00a0", " ")


def test_one_task_and_one_moment_can_be_reported(tmp_path: Path):
    record = make_run(tmp_path / "short", {"tsc": []}, probe={**PROBE, "after": [0]}, stream={"n_tasks": 1})
    for number in range(3):
        points = {"0": [0.5, 0.5]}
        append(record, Cell("tsc", number), [[1.0]], 2, probes={"novel": points, "base": points})
    assert "Probe, novel" in page_of(record)
    summary = summarise_run_of(record)
    assert "| `tsc` | 50.00 ± 0.00 |  |" in probe_table(summary)


def summarise_run_of(record: RunRecord) -> Summary:
    """Its summary, though no shipped configuration makes it."""
    results = read_results(record)
    probes = {
        side: {p.after: Figure(mean=p.accuracy.mean, half_width=p.accuracy.half_width) for p in points}
        for side, points in two_sides(results)[0].probes.items()
    }
    method = MethodSummary(
        method="tsc",
        n_sequences=3,
        accuracy={},
        minus_reference={},
        minus_class_means={},
        embedding_steps=None,
        seconds_per_task=1.0,
        ms_per_image=1.0,
        probes=probes,
        probe_changes={side: {} for side in probes},
    )
    what = {"name": "toy", "command": "", "split": "test", "preset": "quick", "base": "", "reference": "joint"}
    return Summary.model_validate(
        {**what, "n_sequences": 3, "versions": {}, "methods": [method], "probe": "two problems"}
    )


def test_times_are_told_as_they_are():
    lead = Cost("tsc", 1.0, math.nan, None, 0.0)
    told = {ratio: _time(Cost("x", 1 / ratio, math.nan, None, 0.0), lead) for ratio in (1.0, 1.5, 2.5, 20, 0.5, 0.04)}
    assert told == {
        1.0: "",
        1.5: ", in 0.7 of the time",
        2.5: ", in 0.4 of the time",
        20: ", in 1/20 of the time",
        0.5: ", in 2.0 times the time",
        0.04: ", in 25 times the time",
    }


def test_an_image_that_is_asked_again_is_confused_once(small_pool: ClassPool):
    spec = StreamSpec(n_tasks=3, n_way=2, n_shot=2, n_query=4, setting="new_instance")
    stream = sample_stream(small_pool, spec, generator(0, "stream"))
    (pair,) = worst_confusions(stream, small_pool, [[1, 0, 0, 0, 1, 1, 1, 1]] * 3)
    assert (pair.count, pair.of) == (1, 4)
    learner = make_learner("prototypes", init_network(NetworkSpec(width=8, image_size=16), generator(0, "b")), seed=0)
    assert evaluate_stream(learner, stream, small_pool).confusion.sum() == 2 * 4


def test_under_a_label_used_again_the_class_that_was_confused_is_named(small_pool: ClassPool):
    spec = StreamSpec(n_tasks=2, n_way=2, n_shot=2, n_query=3, setting="mixed", overwrite=True)
    stream = sample_stream(small_pool, spec, generator(0, "stream"))
    (pair,) = worst_confusions(stream, small_pool, [[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    assert (pair.true, pair.count, pair.of) == (stream.tasks[1].classes[0], 3, 3)


def test_large_colour_images_make_a_picture_that_fits():
    pool = noise_pool(n_classes=2, n_images=8, size=224, channels=3)
    stream = sample_stream(pool, StreamSpec(n_tasks=1, n_way=2, n_shot=4, n_query=4), generator(0, "stream"))
    pair = worst_confusions(stream, pool, [[1] * 8])[0]
    assert Image.open(io.BytesIO(pair.png())).size[1] == MAX_SIDE


def test_images_that_several_tasks_ask_for_are_answered_once(small_pool: ClassPool, monkeypatch: pytest.MonkeyPatch):
    spec = StreamSpec(n_tasks=4, n_way=2, n_shot=2, n_query=3, setting="mixed", class_change_interval=2)
    stream = sample_stream(small_pool, spec, generator(0, "stream"))
    learner = make_learner("prototypes", init_network(NetworkSpec(width=8, image_size=16), generator(0, "b")), seed=0)
    answered: list[int] = []
    predict = learner.predict
    monkeypatch.setattr(learner, "predict", lambda images: answered.append(len(images)) or predict(images))
    result = evaluate_stream(learner, stream, small_pool)
    assert (
        len(answered) == (1 + 1 + 2 + 2) + 2
    )  # groups of classes after each task, and twice before a task of known ones
    assert (result.top1[3, 0], result.top1[3, 2]) == (result.top1[3, 1], result.top1[3, 3])


def test_two_sequences_that_agree_by_chance_claim_nothing(tmp_path: Path):
    same = {"tsc": [GOOD[0], GOOD[0]], "joint": [FAIR[0], FAIR[0]]}
    record = make_run(tmp_path / "two", same, run={"n_sequences": 2})
    row = summarise(read_results(record)).rows[0]
    assert row.difference is not None
    assert (row.difference.mean, row.difference.half_width, row.differs) == (pytest.approx(10), 0, False)
    assert "Two sequences are too few, so no difference between methods is claimed." in page_of(record)
    printed = io.StringIO()
    print_table(summary_table(record), Console(file=printed, width=80))
    assert "Fewer than 3 sequences: no difference to joint is claimed." in printed.getvalue()
