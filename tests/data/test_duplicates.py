"""Pictures stored twice, and bursts."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from fscl.data.duplicates import connected, find_duplicates, relative_distances, repeated

N_CLASSES, N_SHOT, SIDE = 4, 5, 96


def scenes(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pictures with structure at all scales, as photographs have: those of a class share half of what is coarse."""
    random = torch.Generator().manual_seed(seed)

    def layer(n: int, cells: int) -> Tensor:
        noise = torch.randn(n, 3, cells, cells, generator=random)
        return F.interpolate(noise, size=(SIDE, SIDE), mode="bicubic", align_corners=False)

    of_class = layer(N_CLASSES, 6).repeat_interleave(N_SHOT, 0)
    own = sum((layer(N_CLASSES * N_SHOT, cells) for cells in (6, 16, 48)), torch.zeros(1))
    images = (128 + 32 * (of_class + own)).clamp(0, 255).to(torch.uint8)
    return images, torch.arange(N_CLASSES).repeat_interleave(N_SHOT)


def embed(images: Tensor) -> Tensor:
    """Features that hardly change with a small shift, as those of a network: 12 × 12 cells, each with its contrast."""
    scaled = images / 255
    mean = F.adaptive_avg_pool2d(scaled, 12)
    contrast = F.adaptive_avg_pool2d((scaled - F.interpolate(mean, size=scaled.shape[-2:])).abs(), 12)
    return torch.cat([mean.flatten(1), contrast.flatten(1)], 1)


def encoded(image: Tensor, quality: int = 60) -> Tensor:
    memory = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(memory, "JPEG", quality=quality)
    return torch.from_numpy(np.array(Image.open(memory))).permute(2, 0, 1)


def cropped(image: Tensor, left: int, top: int, side: int) -> Tensor:
    part = image[None, :, top : top + side, left : left + side].float()
    grown = F.interpolate(part, size=(SIDE, SIDE), mode="bilinear", align_corners=False, antialias=True)
    return grown[0].round().to(torch.uint8)


CHANGES = {
    "identical": lambda image: image.clone(),
    "re-encoded": encoded,
    "resized": lambda image: F.interpolate(
        F.interpolate(image[None].float(), size=(60, 60), mode="bilinear", antialias=True),
        size=(SIDE, SIDE),
        mode="bilinear",
    )[0].to(torch.uint8),
    "cropped": lambda image: cropped(image, 2, 1, SIDE - 3),
    "brighter": lambda image: (image * 1.1).clamp(0, 255).to(torch.uint8),
    "shifted, darker, re-encoded": lambda image: encoded((cropped(image, 0, 3, SIDE - 3) * 0.92).to(torch.uint8)),
}


def test_pictures_of_one_class_that_differ_are_all_groups_of_their_own():
    for seed in range(5):
        images, labels = scenes(seed)
        assert find_duplicates(images, embed(images), labels).tolist() == list(range(len(images)))


@pytest.mark.parametrize("change", CHANGES)
def test_a_picture_taught_twice_is_found(change: str):
    images, labels = scenes()
    images = torch.cat([images, CHANGES[change](images[7])[None]])
    groups = find_duplicates(images, embed(images), torch.cat([labels, labels[7:8]]))
    assert repeated(groups) == [[7, 20]]


def test_a_picture_taught_under_two_labels_is_found():
    images, labels = scenes()
    images = torch.cat([images, images[3:4]])
    groups = find_duplicates(images, embed(images), torch.cat([labels, torch.tensor([2])]))
    assert repeated(groups) == [[3, 20]]


def test_a_folder_taught_twice_is_every_picture_twice():
    images, labels = scenes()
    again = torch.stack([encoded(image) for image in images])
    both = torch.cat([images, again])
    groups = find_duplicates(both, embed(both), labels.repeat(2))
    assert groups.tolist() == list(range(20)) * 2


def test_groups_do_not_depend_on_the_order_of_the_examples():
    images, labels = scenes()
    images = torch.cat([images, CHANGES["cropped"](images[7])[None], encoded(images[7])[None]])
    labels = torch.cat([labels, labels[[7, 7]]])
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    plain = find_duplicates(images, embed(images), labels)
    shuffled = find_duplicates(images[order], embed(images)[order], labels[order])
    assert torch.equal((plain[:, None] == plain)[order][:, order], shuffled[:, None] == shuffled)
    assert repeated(plain) == [[7, 20, 21]]


def stroke(shift: int, width: int = 5) -> Tensor:
    drawing = torch.full((3, SIDE, SIDE), 255, dtype=torch.uint8)
    drawing[:, 20:76, 40 + shift : 40 + shift + width] = 0
    drawing[:, 20:25, 40 + shift : 60 + 3 * shift] = 0
    return drawing


def test_drawings_of_one_letter_are_not_duplicates_but_a_copy_is():
    letters = torch.stack([stroke(0), stroke(3), stroke(-3, width=7), stroke(6, width=4)])
    other = letters.transpose(2, 3)
    images = torch.cat([letters, other, encoded(letters[1], quality=90)[None]])
    groups = find_duplicates(images, embed(images), torch.tensor([0] * 4 + [1] * 4 + [0]))
    assert repeated(groups) == [[1, 8]]


def test_blank_pictures_are_duplicates_of_one_another_only():
    images, labels = scenes()
    images[2:4] = 255
    images[4] = 0
    assert repeated(find_duplicates(images, embed(images), labels)) == [[2, 3]]


def test_no_example_and_one_example_have_no_duplicates():
    images, labels = scenes()
    for n in (0, 1):
        assert find_duplicates(images[:n], embed(images[:n]), labels[:n]).tolist() == list(range(n))


def test_distances_are_in_units_of_the_median_within_classes():
    features = torch.tensor([[0.0], [2.0], [7.0], [11.0]])
    relative = relative_distances(features, torch.tensor([0, 0, 1, 1]))
    # all pairs: 2 4 5 7 9 11, whose lower median is 5; within classes: 2 4, whose lower median is 2; 0.85 · 5 is larger
    torch.testing.assert_close(relative[0], torch.tensor([0.0, 2, 7, 11], dtype=torch.float64) / (0.85 * 5))
    apart = relative_distances(features, torch.tensor([0, 1, 0, 1]))  # within classes: 7 and 9, whose lower median is 7
    torch.testing.assert_close(apart[0], torch.tensor([0.0, 2, 7, 11], dtype=torch.float64) / 7)


def test_groups_are_joined_through_a_common_member():
    assert connected(6, [4, 0, 3], [5, 4, 1]).tolist() == [0, 1, 2, 1, 0, 0]
