"""The images that were confused: which pairs come first, and what their pictures hold."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscl.continual.registry import make_learner
from fscl.data.pool import ClassPool
from fscl.data.stream import StreamSpec, sample_stream
from fscl.errors import StorageError
from fscl.evaluation.protocol import evaluate_stream
from fscl.experiment.confused import MAX_SIDE, MOST_IMAGES, confusions_json, load_confusions, worst_confusions
from fscl.nets.trained import NetworkSpec, init_network
from fscl.rng import generator
from fscl.storage import read_json, write_bytes, write_json
from fscl.testing import noise_pool


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
    write_bytes(tmp_path / "a.json", confusions_json(pairs))
    assert load_confusions(tmp_path / "a.json") == pairs


@pytest.mark.parametrize("damage", ["not base64!", base64.b64encode(b"<svg onload=alert(1)>").decode()])
def test_a_picture_that_is_no_png_is_refused(damage: str, small_pool: ClassPool, tmp_path: Path):
    stream = sample_stream(small_pool, StreamSpec(n_tasks=1, n_way=2, n_shot=3, n_query=4), generator(0, "stream"))
    write_bytes(tmp_path / "a.json", confusions_json(worst_confusions(stream, small_pool, [[1] * 8])))
    content = {key: value for key, value in read_json(tmp_path / "a.json", "confusions").items() if key == "pairs"}
    content["pairs"][0]["picture"] = damage
    write_json(tmp_path / "a.json", "confusions", content)
    with pytest.raises(StorageError, match="is not a list of confusions"):
        load_confusions(tmp_path / "a.json")


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
    scores = learner.scores
    monkeypatch.setattr(learner, "scores", lambda features: answered.append(len(features)) or scores(features))
    result = evaluate_stream(learner, stream, small_pool)
    assert (
        len(answered) == (1 + 1 + 2 + 2) + 2
    )  # groups of classes after each task, and twice before a task of known ones
    assert (result.top1[3, 0], result.top1[3, 2]) == (result.top1[3, 1], result.top1[3, 3])
