"""Folders of images: what is read, how it is brought to one shape, and what is refused with which words."""

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fscl.data.folder import load_folder, load_split_folder
from fscl.data.images import read_image
from fscl.errors import DataError, UnknownName

RED, GREY = (255, 0, 0), 120


def write(path: Path, image: Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def plain(mode: str = "RGB", size: tuple[int, int] = (20, 10), colour: Any = RED) -> Image.Image:
    return Image.new(mode, size, colour)


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and has next to no pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def animation() -> bytes:
    content = io.BytesIO()
    frames = [Image.new("L", (8, 8), colour) for colour in (0, 100, 200)]
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:])
    return content.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two good classes: 'ant' with two images, 'bee' with one."""
    write(tmp_path / "bee" / "1.png", plain())
    write(tmp_path / "ant" / "b.jpg", plain("L", (9, 30), GREY))
    write(tmp_path / "ant" / "a.png", plain("L", (5, 5), 0))
    return tmp_path


def test_classes_and_images_come_sorted_by_name_in_one_shape(folder: Path) -> None:
    pool = load_folder(folder, image_size=16, channels=3)
    assert pool.class_names == ("ant", "bee")
    assert pool.counts == (2, 1)
    assert pool.image_shape == (3, 16, 16)
    assert pool.images[0].unique().tolist() == [0]
    assert (pool.images[1].int() - GREY).abs().max() <= 1
    assert pool.images[2].flatten(1).unique(dim=1).flatten().tolist() == [255, 0, 0]
    assert load_folder(str(folder)).image_shape == (1, 32, 32)


def test_hidden_files_are_ignored(folder: Path) -> None:
    expected = load_folder(folder).content_hash
    (folder / ".DS_Store").write_bytes(b"\0")
    (folder / "ant" / ".DS_Store").write_bytes(b"\0")
    (folder / "ant" / "Thumbs.db").write_bytes(b"\0")
    (folder / ".cache").mkdir()
    assert load_folder(folder).content_hash == expected


def test_an_exif_turn_is_respected(tmp_path: Path) -> None:
    upright = Image.new("L", (40, 40), 0)
    upright.paste(255, (0, 0, 40, 20))  # white above black
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn by 90° clockwise to view"
    path = write(tmp_path / "turned.jpg", upright.transpose(Image.Transpose.ROTATE_90), exif=exif, quality=95)
    expected = read_image(write(tmp_path / "upright.png", upright)).astype(int)
    assert np.abs(read_image(path).astype(int) - expected).max() < 20


def test_a_camera_file_with_a_second_picture_behind_the_first_is_read_as_the_first(tmp_path: Path) -> None:
    path = write(
        tmp_path / "camera.jpg", plain(), format="MPO", save_all=True, append_images=[plain(colour=(0, 0, 255))]
    )
    red, green, blue = read_image(path, channels=3).reshape(3, -1).mean(1)
    assert red > 240
    assert max(green, blue) < 15


@pytest.mark.parametrize("kind", ["png", "jpg", "gif", "bmp", "webp", "tiff", "ppm"])
def test_common_formats_are_read(tmp_path: Path, kind: str) -> None:
    pixels = read_image(write(tmp_path / f"image.{kind}", plain("L", colour=GREY)))
    assert np.abs(pixels.astype(int) - GREY).max() <= 2


def test_nothing_is_cropped(tmp_path: Path) -> None:
    wide = Image.new("L", (90, 10), 0)
    wide.paste(255, (0, 0, 45, 10))
    columns = read_image(write(tmp_path / "wide.png", wide), image_size=10)[0].mean(0)
    assert columns[:4].min() > 240
    assert columns[-4:].max() < 15


@pytest.mark.parametrize(
    "image",
    [
        plain("RGBA", colour=(255, 0, 0, 0)),
        plain("LA", colour=(0, 0)),
        plain("RGBA", colour=(255, 0, 0, 0)).convert("P"),
    ],
    ids=["RGBA", "LA", "palette"],
)
def test_what_is_transparent_becomes_white(tmp_path: Path, image: Image.Image) -> None:
    options = {"transparency": 0} if image.mode == "P" else {}
    if image.mode == "P":
        image.paste(0, (0, 0, *image.size))
    assert np.unique(read_image(write(tmp_path / "clear.png", image, **options), channels=3)).tolist() == [255]


def test_a_palette_gives_its_colours(tmp_path: Path) -> None:
    pixels = read_image(write(tmp_path / "palette.gif", plain().convert("P")), channels=3)
    assert pixels[:, 0, 0].tolist() == list(RED)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    deep = Image.fromarray(np.full((6, 6), 32896, dtype=np.uint16))
    for name in ("deep.png", "deep.tif"):
        assert np.unique(read_image(write(tmp_path / name, deep))).tolist() == [128]


@pytest.mark.parametrize(("colour", "channels", "expected"), [(RED, 1, [76]), (GREY, 3, [GREY])])
def test_colour_and_greyscale_become_each_other(
    tmp_path: Path, colour: object, channels: int, expected: list[int]
) -> None:
    image = plain("RGB" if channels == 1 else "L", colour=colour)
    pixels = read_image(write(tmp_path / "image.bmp", image), channels=channels)
    assert pixels.shape == (channels, 32, 32)
    assert np.unique(pixels).tolist() == expected


BAD = {
    "text.png": (b"not an image at all", "is not an image of a known kind"),
    "empty.jpg": (b"", "is not an image of a known kind"),
    "bomb.png": (png_header(9000, 9000), "is 9000×9000 pixels, over the 64 megapixels"),
    "worse.png": (png_header(60000, 60000), "has more pixels than the 64 megapixels"),
    "moving.gif": (animation(), "has several frames"),
    "short.png": (png_header(50, 50), "cannot be decoded"),
    "drawing.eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not an image of a known kind"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_name_with_the_reason_and_the_way_out(folder: Path, name: str) -> None:
    content, reason = BAD[name]
    (folder / "ant" / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_folder(folder)
    assert str(caught.value).startswith(f"1 bad file in {folder}: ant/{name} {reason}")
    assert str(caught.value).endswith(
        "Remove them, or skip them: bad_files='skip', or --skip-bad where a model is taught."
    )


def test_a_truncated_photo_is_a_bad_file(folder: Path) -> None:
    photo = write(folder / "ant" / "photo.jpg", Image.effect_noise((200, 200), 50))
    photo.write_bytes(photo.read_bytes()[:4000])
    with pytest.raises(DataError, match=r"ant/photo\.jpg cannot be decoded"):
        load_folder(folder)


def test_skipping_names_each_bad_file_and_loads_the_rest(folder: Path) -> None:
    expected = load_folder(folder).content_hash
    for name, (content, _) in BAD.items():
        (folder / "ant" / name).write_bytes(content)
    (folder / "readme.txt").write_text("hello")
    (folder / "bee" / "nested").mkdir()
    os.mkfifo(folder / "bee" / "pipe.png")
    said: list[str] = []
    assert load_folder(folder, bad_files="skip", report=said.append).content_hash == expected
    assert len(said) == len(BAD) + 3
    for name, (_, reason) in BAD.items():
        assert any(line.startswith(f"ant/{name} {reason}") for line in said)
    assert "bee/nested is a folder inside a class folder." in said
    assert "bee/pipe.png is not a regular file." in said
    assert "readme.txt lies beside the class folders and belongs to no class." in said


def test_a_refusal_lists_five_and_counts_the_rest(folder: Path) -> None:
    for number in range(8):
        (folder / "ant" / f"{number}.txt").write_text("text")
    with pytest.raises(DataError) as caught:
        load_folder(folder)
    assert str(caught.value).startswith("8 bad files")
    assert "; and 3 more." in str(caught.value)
    assert "4.txt" in str(caught.value)
    assert "5.txt" not in str(caught.value)


def test_a_link_may_stay_in_the_folder_but_not_leave_it(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = write(tmp_path_factory.mktemp("outside") / "secret.png", plain())
    (folder / "bee" / "2.png").symlink_to(folder / "ant" / "a.png")
    assert load_folder(folder).counts == (2, 2)
    (folder / "bee" / "3.png").symlink_to(outside)
    (folder / "cat").symlink_to(outside.parent)
    said: list[str] = []
    assert load_folder(folder, bad_files="skip", report=said.append).counts == (2, 2)
    assert said == ["cat is a link that leads out of the folder.", "bee/3.png is a link that leads out of the folder."]


def test_a_class_left_without_images_is_an_error(folder: Path) -> None:
    (folder / "cat").mkdir()
    (folder / "cat" / "text.png").write_bytes(b"text")
    with pytest.raises(DataError, match=r"class 'cat' of .* has no usable image"):
        load_folder(folder, bad_files="skip")


def test_a_folder_without_classes_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds nothing; it needs one sub-folder per class"):
        load_folder(tmp_path)
    write(tmp_path / "1.png", plain())
    with pytest.raises(DataError, match="holds only files; it needs one sub-folder per class"):
        load_folder(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        load_folder(tmp_path / "1.png")
    with pytest.raises(DataError, match="does not exist"):
        load_folder(tmp_path / "nowhere")


def test_impossible_shapes_and_unknown_words_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="image_size is 0; it must be from 1 to 512"):
        load_folder(folder, image_size=0)
    with pytest.raises(DataError, match="channels is 4; it must be 1"):
        load_folder(folder, channels=4)
    with pytest.raises(UnknownName, match="'ignore'"):
        load_folder(folder, bad_files="ignore")


@pytest.mark.parametrize("validation", ["val", "validation"])
def test_a_split_folder_gives_three_pools(tmp_path: Path, validation: str) -> None:
    for split, name in (("train", "ant"), (validation, "bee"), ("test", "cat")):
        write(tmp_path / split / name / "1.png", plain())
    splits = load_split_folder(tmp_path, image_size=8, channels=3)
    assert [pool.class_names for pool in (splits.train, splits.validation, splits.test)] == [
        ("ant",),
        ("bee",),
        ("cat",),
    ]
    assert torch.equal(splits.train.images, splits.test.images)


def test_a_split_folder_must_be_whole_and_share_no_class(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(tmp_path / split / "ant" / "1.png", plain())
    with pytest.raises(DataError, match="has no folder 'val'"):
        load_split_folder(tmp_path)
    write(tmp_path / "val" / "bee" / "1.png", plain())
    with pytest.raises(DataError, match="train and test splits share 1 classes, such as 'ant'"):
        load_split_folder(tmp_path)
    (tmp_path / "validation").mkdir()
    with pytest.raises(DataError, match="both a 'val' and a 'validation'"):
        load_split_folder(tmp_path)


def test_an_image_can_be_read_from_its_bytes(folder: Path) -> None:
    path = folder / "ant" / "b.jpg"
    assert np.array_equal(read_image(path.read_bytes()), read_image(path))
    with pytest.raises(DataError, match="the image is not an image of a known kind"):
        read_image(b"text")
