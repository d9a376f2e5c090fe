"""miniImageNet with its 64 training classes known: new classes come to them, and both are asked about (Ren et al. 2019).

Of the images of each training class the last tenth is held out: the base is not trained on those, and they are what the
known classes are asked with. A stream begins with all 64, in their order, so that what a base learned of them is found by
position; then come tasks of classes drawn at random from the 20 test classes.

M. Ren, R. Liao, E. Fetaya, R. Zemel, "Incremental Few-Shot Learning with Attention Attractor Networks", 2019.
"""

from collections.abc import Sequence
from typing import Literal

import torch

from fscl.data.dataset import Progress, Tell
from fscl.data.imagenet_classes import MINI_IMAGENET
from fscl.data.photos import ImageNetSet
from fscl.data.pool import ClassPool, Splits
from fscl.data.sets.mini_imagenet import MINI, load_mini_imagenet
from fscl.data.stream import Stream, StreamSpec, TaskPlan, sample_stream
from fscl.errors import DataError

HELD_OUT = 10  # one image in so many of a known class
KNOWN = MINI_IMAGENET["train"]


class MiniIncremental(ImageNetSet):
    """miniImageNet, wherever that is, with streams that begin with its training classes."""

    name = "mini-incremental"
    summary = "miniImageNet's 64 training classes, known from the start, and new ones to come (Ren et al. 2019)."
    title, folders, archives, parts, layouts = MINI.title, MINI.folders, MINI.archives, MINI.parts, MINI.layouts

    class Options(ImageNetSet.Options):
        """Nothing of its own."""

        name: Literal["mini-incremental"] = "mini-incremental"

    def load(self, options: Options, progress: Progress | None = None, tell: Tell | None = None) -> Splits:
        return known_and_new(load_mini_imagenet(image_size=options.image_size, path=options.path, progress=progress))

    def draw_stream(self, pool: ClassPool, spec: StreamSpec, generator: torch.Generator) -> Stream:
        return known_first_stream(pool, spec, generator, n_known=len(KNOWN))


INCREMENTAL = MiniIncremental()


def held_out(count: int) -> int:
    """How many of so many images of a known class are kept to ask with; at least one."""
    return max(1, count // HELD_OUT)


def known_and_new(whole: Splits) -> Splits:
    """The same splits, with the known classes first in the test pool, and their held-out images not to be trained on."""
    known, new = whole.train, whole.test
    kept = [known.of_class(index)[: count - held_out(count)] for index, count in enumerate(known.counts)]
    train = ClassPool("mini-incremental (train)", torch.cat(kept), known.class_names, tuple(map(len, kept)))
    test = ClassPool(
        "mini-incremental (test)",
        torch.cat([known.images, new.images]),
        known.class_names + new.class_names,
        known.counts + new.counts,
    )
    return Splits(train, whole.validation, test, known=frozenset(known.class_names))


def known_first_stream(pool: ClassPool, spec: StreamSpec, generator: torch.Generator, *, n_known: int) -> Stream:
    """All known classes in their order, asked with held-out images, then tasks of the others drawn at random."""
    if len(pool) <= n_known:
        raise DataError(f"{pool.name!r} has {len(pool)} classes, none of them new. Leave run.split at 'test'.")
    if spec.base_way != n_known or spec.n_tasks < 2:
        raise DataError(
            f"a stream of {pool.name!r} begins with all {n_known} known classes, and new ones follow; stream.base_way is "
            f"{spec.base_way} and stream.n_tasks {spec.n_tasks}. Set base_way = {n_known} and n_tasks = 2 or more."
        )
    known = _known_task(pool, spec, generator, n_known)
    later = spec.model_copy(update={"n_tasks": spec.n_tasks - 1, "base_way": 0, "base_shot": 0})
    others = pool.subset(range(n_known, len(pool)), pool.name)
    drawn = sample_stream(others, later, generator).tasks
    moved = (task.model_copy(update={"labels": tuple(n_known + label for label in task.labels)}) for task in drawn)
    return Stream(spec=spec, pool_name=pool.name, pool_hash=pool.content_hash, tasks=(known, *moved))


def _known_task(pool: ClassPool, spec: StreamSpec, generator: torch.Generator, n_known: int) -> TaskPlan:
    support, query = [], []
    for index, count in enumerate(pool.counts[:n_known]):
        n_held = held_out(count)
        if spec.n_query > n_held or spec.base_shot > count - n_held:
            raise DataError(
                f"class {pool.class_names[index]} of {pool.name!r} has {n_held} images held out and {count - n_held} "
                f"others, but stream.n_query is {spec.n_query} and stream.base_shot {spec.base_shot}. Lower them."
            )
        support.append(_drawn(range(count - n_held), spec.base_shot, generator))
        query.append(_drawn(range(count - n_held, count), spec.n_query, generator))
    return TaskPlan(
        classes=pool.class_names[:n_known], labels=tuple(range(n_known)), support=tuple(support), query=tuple(query)
    )


def _drawn(positions: Sequence[int], count: int, generator: torch.Generator) -> tuple[int, ...]:
    chosen = torch.randperm(len(positions), generator=generator)[:count].tolist()
    return tuple(positions[place] for place in chosen)
