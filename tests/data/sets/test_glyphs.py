"""The embedded glyphs: made the same every time, split by alphabets, kept in the cache, and neither trivial nor hopeless."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fscl.data.pool import ClassPool, Splits
from fscl.data.sets import glyphs
from fscl.data.sets.glyphs import load_glyphs, make_glyphs
from fscl.errors import DataError
from fscl.rng import generator

SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("glyphs-cache")


@pytest.fixture(scope="module")
def made(cache: Path) -> tuple[Splits, float]:
    """The full set made into an empty cache, and the processor time that took."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSCL_CACHE", str(cache))
        start = time.process_time()  # not the clock: other work on the machine is not the generator's
        return load_glyphs(), time.process_time() - start


@pytest.fixture
def splits(made: tuple[Splits, float]) -> Splits:
    return made[0]


def alphabets(pool: ClassPool) -> Counter[str]:
    return Counter(name.split("/")[0] for name in pool.class_names)


def class_mean_accuracy(pool: ClassPool, *, n_way: int, n_shot: int, n_episodes: int) -> float:
    """Nearest class mean on raw pixels: accuracy over `n_episodes` draws of `n_way` classes, on all other drawings."""
    random = generator(0, "class-means")
    images = pool.images.view(len(pool), glyphs.N_DRAWINGS, -1).float()
    right = []
    for _ in range(n_episodes):
        drawings = torch.randperm(glyphs.N_DRAWINGS, generator=random)
        chosen = images[torch.randperm(len(pool), generator=random)[:n_way]][:, drawings]
        means, queries = chosen[:, :n_shot].mean(1), chosen[:, n_shot:]
        nearest = torch.cdist(queries.flatten(0, 1), means).argmin(1).view(n_way, -1)
        right.append((nearest == torch.arange(n_way)[:, None]).float().mean())
    return float(torch.stack(right).mean())


def test_there_are_1200_characters_of_40_alphabets_with_20_drawings_each(splits: Splits) -> None:
    pools = [splits.pool(split) for split in SPLITS]
    assert [len(pool) for pool in pools] == [840, 120, 240]
    assert [len(alphabets(pool)) for pool in pools] == [28, 4, 8]
    for pool in pools:
        assert set(alphabets(pool).values()) == {30}
        assert set(pool.counts) == {20}
        assert pool.image_shape == (1, 32, 32)
        assert pool.images.dtype == torch.uint8


def test_the_splits_share_no_alphabet(splits: Splits) -> None:
    train, validation, test = (set(alphabets(splits.pool(split))) for split in SPLITS)
    assert len(train | validation | test) == 40


def test_the_full_set_is_made_in_under_15_seconds(made: tuple[Splits, float]) -> None:
    assert made[1] < 15


def test_the_same_seed_gives_the_same_bits_and_a_smaller_set_is_the_beginning_of_a_larger(splits: Splits) -> None:
    small = make_glyphs(n_alphabets=2, n_characters=7, n_drawings=5)
    again = make_glyphs(n_alphabets=2, n_characters=7, n_drawings=5)
    assert small.content_hash == again.content_hash
    full = splits.train.images.view(28, 30, 20, 1, 32, 32)
    assert torch.equal(small.images, full[:2, :7, :5].flatten(0, 2))
    assert small.class_names[7] == splits.train.class_names[30]


def test_another_seed_gives_other_alphabets_and_other_characters() -> None:
    one, other = (make_glyphs(n_alphabets=1, n_characters=10, n_drawings=2, seed=seed) for seed in (0, 1))
    assert set(one.class_names).isdisjoint(other.class_names)
    assert not any(torch.equal(a, b) for a, b in zip(one.images, other.images, strict=True))


@pytest.mark.parametrize("split", SPLITS)
def test_no_two_drawings_are_the_same(splits: Splits, split: str) -> None:
    images = splits.pool(split).images.flatten(1)
    assert len(images.unique(dim=0)) == len(images)


@pytest.mark.parametrize("split", SPLITS)
def test_every_drawing_has_ink_and_none_is_cut_at_the_border(splits: Splits, split: str) -> None:
    images = splits.pool(split).images
    ink = images.flatten(1).float().mean(1) / 255
    assert ink.min() > 0.005
    assert ink.max() < 0.5
    assert images.flatten(1).max(1).values.min() >= 200
    assert images[..., [0, -1], :].max() == 0
    assert images[..., [0, -1]].max() == 0


def test_a_hand_keeps_its_habits_from_one_character_to_the_next() -> None:
    pool = make_glyphs(n_alphabets=6, n_characters=20, n_drawings=20)
    ink = pool.images.view(6, 20, 20, -1).float().mean(-1)
    pressure = (ink / ink.mean(2, keepdim=True)).log()  # (alphabets, characters, hands)
    first, second = pressure[:, :10].mean(1).flatten(), pressure[:, 10:].mean(1).flatten()
    assert torch.corrcoef(torch.stack([first, second]))[0, 1] > 0.5


@pytest.mark.parametrize("size", [20, 64])
def test_images_come_in_other_sizes_with_the_same_share_of_ink(size: int) -> None:
    usual = make_glyphs(n_alphabets=1, n_characters=5, n_drawings=4)
    other = make_glyphs(n_alphabets=1, n_characters=5, n_drawings=4, image_size=size)
    assert other.image_shape == (1, size, size)
    assert other.images.float().mean() == pytest.approx(float(usual.images.float().mean()), rel=0.35)


def test_class_means_of_raw_pixels_are_far_above_chance_and_far_from_perfect(splits: Splits) -> None:
    assert 0.65 < class_mean_accuracy(splits.validation, n_way=5, n_shot=5, n_episodes=200) < 0.88
    assert 0.30 < class_mean_accuracy(splits.validation, n_way=50, n_shot=5, n_episodes=20) < 0.60


def test_progress_counts_the_alphabets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FSCL_CACHE", str(tmp_path))
    monkeypatch.setattr(glyphs, "N_ALPHABETS", 33)
    monkeypatch.setattr(glyphs, "N_CHARACTERS", 2)
    monkeypatch.setattr(glyphs, "N_DRAWINGS", 1)
    seen: list[tuple[int, int]] = []
    load_glyphs(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 33) for done in range(1, 34)]


def forbidden(*_: object) -> None:
    raise AssertionError("made again although the cache holds it")


def test_the_second_load_comes_from_the_cache_and_is_equal(
    monkeypatch: pytest.MonkeyPatch, cache: Path, splits: Splits
) -> None:
    monkeypatch.setenv("FSCL_CACHE", str(cache))
    monkeypatch.setattr(glyphs, "_draw", forbidden)
    again = load_glyphs()
    for split in SPLITS:
        assert again.pool(split).content_hash == splits.pool(split).content_hash


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 0xFF
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip_a_byte, empty])
def test_a_broken_cache_file_is_made_again_without_a_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    monkeypatch.setenv("FSCL_CACHE", str(tmp_path))
    monkeypatch.setattr(glyphs, "N_CHARACTERS", 2)
    monkeypatch.setattr(glyphs, "N_DRAWINGS", 2)
    first = load_glyphs()
    (path,) = tmp_path.iterdir()
    damage(path)
    assert load_glyphs().test.content_hash == first.test.content_hash
    monkeypatch.setattr(glyphs, "_draw", forbidden)  # and the new file is whole
    assert load_glyphs().test.content_hash == first.test.content_hash


def test_seeds_and_sizes_have_cache_files_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FSCL_CACHE", str(tmp_path))
    monkeypatch.setattr(glyphs, "N_CHARACTERS", 1)
    monkeypatch.setattr(glyphs, "N_DRAWINGS", 1)
    for seed, size in ((0, 32), (1, 32), (0, 20)):
        assert load_glyphs(seed=seed, image_size=size).train.image_shape == (1, size, size)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    "wrong", [{"image_size": 4}, {"n_alphabets": 0}, {"n_characters": 101}, {"n_drawings": -1}, {"seed": -1}]
)
def test_a_size_that_cannot_be_is_refused_in_one_sentence(wrong: dict[str, int]) -> None:
    (name,) = wrong
    with pytest.raises(DataError, match=rf"^glyphs got {name}={wrong[name]}; .*\.$"):
        make_glyphs(**wrong)
