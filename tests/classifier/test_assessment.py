"""What `test` says of pictures that were not taught, against arithmetic of its own."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from fscl import ContinualClassifier
from fscl.classifier.assessment import Share
from fscl.classifier.assessment_page import csv_text, html_page, summary_lines
from fscl.errors import DataError
from tests.classifier.models import classifier, examples


@pytest.mark.parametrize(("count", "n"), [(0, 7), (7, 7), (3, 10), (190, 200)])
def test_the_interval_is_wilsons(count: int, n: int):
    expected = binomtest(count, n).proportion_ci(method="wilson")
    assert Share(count, n).interval == pytest.approx((expected.low, expected.high))


def test_a_share_of_nothing_promises_nothing():
    assert np.isnan(Share(0, 0).value)
    assert Share(0, 0).interval == (0.0, 1.0)


def test_accuracy_by_class_and_confusions_add_up_on_rows():
    model = ContinualClassifier(method="prototypes").fit([[0.0], [1.0], [10.0], [11.0]], list("aabb"))
    found = model.test([[0.2], [0.4], [9.0], [10.4], [8.0]], list("aaaab"))
    assert (found.accuracy.count, found.accuracy.n) == (3, 5)
    assert [(each.label, each.right.count, each.right.n) for each in found.per_class] == [("a", 2, 4), ("b", 1, 1)]
    assert [(each.label, each.answer, each.n) for each in found.confusions] == [("a", "b", 2)]
    chances = [each.found.probability for each in found.mistakes]
    assert chances == sorted(chances, reverse=True)
    assert found.accuracy.value == model.score([[0.2], [0.4], [9.0], [10.4], [8.0]], list("aaaab"))
    assert "3 of 5 right" in repr(found)


def test_classes_that_are_not_known_are_counted_apart():
    model = classifier().fit(*examples(0, 1))
    X, y = examples(0, 1, start=4)
    blank = np.zeros((2, 16, 16), np.uint8)
    found = model.test(np.concatenate([X, blank]), [*y, "blank", "blank"])
    assert found.accuracy.n == 6
    caught = [answer is None for answer in model.predict(blank, reject=True)]
    assert found.caught == Share(sum(caught), 2)
    assert [(each.label, each.unknown.count) for each in found.stranger_classes] == [("blank", sum(caught))]
    alarms = [answer is None for answer in model.predict(X, reject=True)]
    assert found.called_unknown == Share(sum(alarms), 6)
    assert any("pictures of 1 class that the model does not know" in line for line in summary_lines(found))


def test_the_page_stands_alone_and_escapes_every_name():
    nasty = "<script>alert(1)</script>"
    X, y = examples(0, 1)
    model = classifier().fit(X, [nasty if label == "class-0" else label for label in y])
    found = model.test(X[3:], [nasty] * 3)
    assert len(found.mistakes) == 3
    page = html_page(found, "a & b")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "a &amp; b" in page
    assert page.count("data:image/png;base64,") == 3
    assert "http://" not in page
    assert "https://" not in page


def test_the_table_has_a_row_for_every_picture():
    model = classifier().fit(*examples(0, 1))
    X, y = examples(0, 2, start=4)
    rows = csv_text(model.test(X, y)).splitlines()
    assert rows[0] == "image,label,answer,probability,right,unknown,known_class"
    assert len(rows) == 7
    assert [row.rsplit(",", 1)[1] for row in rows[1:]] == ["true"] * 3 + ["false"] * 3


def test_light_and_dark_are_shown_as_they_were_given():
    X, y = examples(0, 1)
    found = classifier(invert=True).fit(X, y).test(X, y)
    assert np.array_equal(found.answers[0].picture[0], X[0])


def test_without_a_second_example_nothing_is_called_unknown():
    model = classifier().fit(*examples(0, 1, n=1))
    found = model.test(*examples(0, 1))
    assert not found.can_reject
    assert found.called_unknown.count == 0
    assert summary_lines(found)[-1].startswith("unknown: no stored class has two examples")


def test_pictures_that_were_taught_are_noticed():
    X, y = examples(0, 1)
    model = classifier().fit(X, y)
    found = model.test(np.concatenate([X[:2], examples(1, start=4)[0]]), ["class-0"] * 2 + ["class-1"] * 3)
    assert found.n_taught == 2
    assert "2 pictures are among those taught: leave them out for an honest figure" in summary_lines(found)
    assert model.test(*examples(0, 1, start=4)).n_taught == 0


def test_pictures_without_labels_are_refused(tmp_path: Path):
    model = classifier().fit(*examples(0, 1))
    with pytest.raises(DataError, match="labels y are missing"):
        model.test(examples(0)[0])
