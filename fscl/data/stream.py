"""A Stream is a list of tasks to learn one after another, drawn from a ClassPool.

A stream names its images (class, position) and holds none, so that it is a small JSON file with a content hash: two people
who print the same hash ran the same stream. Labels are numbered in order of arrival and carry no task.

Settings:
- *new class*: every task brings `n_way` classes never seen before (the default; setting C of Antoniou et al. 2020).
- *new instance*: the same `n_way` classes in every task, with new examples each time (their setting A).
  With `base_way`, the first task is a base session: that many classes from `base_shot` examples each, as in few-shot
  class-incremental learning (FSCIL; Tao et al. 2020).
- *mixed*: the classes change every `class_change_interval` tasks (their D). With `overwrite` the new classes take over the
  labels of the old ones (their B): a label then stands for every class that ever bore it, and all of them are asked for.

The query images of a class are set aside before its first shots are drawn, and are the same whenever the class returns.

Antoniou, Patacchiola, Ochal, Storkey, "Defining Benchmarks for Continual Few-Shot Learning", 2020.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fscl.data.pool import ClassPool, Examples, shortened
from fscl.errors import DataError, StorageError
from fscl.storage import digest, read_json, write_json

Setting = Literal["new_class", "new_instance", "mixed"]


class StreamSpec(BaseModel):
    """What a stream looks like; which images it holds is left to the generator.

    Examples:
        >>> StreamSpec(n_tasks=3, n_way=2).n_classes
        6

    Attributes:
        n_tasks: tasks, one after another.
        n_way: new classes of a task.
        n_shot: examples of each class to learn from.
        n_query: other examples of each class, to ask about.
        setting: "new_class" brings new classes, "new_instance" ever new examples of the same, "mixed" both by turns.
        class_change_interval: in "mixed", after how many tasks new classes come.
        overwrite: in "mixed", whether new classes take the labels of old ones.
        base_way: classes of a larger first task (a base session); 0 for none.
        base_shot: examples of each of these to learn from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_tasks: int = Field(default=10, ge=1, le=10_000)
    n_way: int = Field(default=5, ge=1, le=10_000)
    n_shot: int = Field(default=5, ge=1, le=10_000)
    n_query: int = Field(default=15, ge=1, le=10_000)
    setting: Setting = "new_class"
    class_change_interval: int = Field(default=1, ge=1)
    overwrite: bool = False
    base_way: int = Field(default=0, ge=0, le=10_000)
    base_shot: int = Field(default=0, ge=0, le=10_000)

    @model_validator(mode="after")
    def _base_session_is_whole(self) -> "StreamSpec":
        if (self.base_way == 0) != (self.base_shot == 0):
            raise ValueError(
                f"a base session needs both base_way and base_shot, but they are {self.base_way} and {self.base_shot}"
            )
        if self.base_way and self.setting != "new_class":
            raise ValueError(f"base_way needs setting = 'new_class', but setting is {self.setting!r}")
        return self

    @model_validator(mode="after")
    def _mixed_settings_need_mixed(self) -> "StreamSpec":
        if self.setting != "mixed" and (self.class_change_interval != 1 or self.overwrite):
            raise ValueError(
                f"class_change_interval and overwrite need setting = 'mixed', but setting is {self.setting!r}"
            )
        return self

    @property
    def interval(self) -> int:
        """For how many tasks the same classes stay."""
        return {"new_class": 1, "new_instance": self.n_tasks, "mixed": self.class_change_interval}[self.setting]

    @property
    def n_groups(self) -> int:
        """How many times new classes arrive."""
        return -(-self.n_tasks // self.interval)

    @property
    def n_classes(self) -> int:
        """How many classes the stream has in all."""
        return sum(self.group_sizes)

    @property
    def n_labels(self) -> int:
        """How many labels the learner will have seen at the end."""
        return self.n_way if self.overwrite else self.n_classes

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """How many classes arrive, each time that new ones do."""
        return (self.base_way or self.n_way, *(self.n_way for _ in range(self.n_groups - 1)))

    @property
    def task_sizes(self) -> tuple[int, ...]:
        """How many classes each task has."""
        return tuple(self.group_sizes[number // self.interval] for number in range(self.n_tasks))

    @property
    def classes_after(self) -> tuple[int, ...]:
        """How many classes have come, after each task."""
        return tuple(sum(self.group_sizes[: number // self.interval + 1]) for number in range(self.n_tasks))

    def shots(self, number: int) -> int:
        """How many examples of each class a task brings."""
        return self.base_shot if self.base_way and number == 0 else self.n_shot


class TaskPlan(BaseModel):
    """One task by reference: for each class its label and the positions of its images within the class."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    classes: tuple[str, ...]
    labels: tuple[int, ...]
    support: tuple[tuple[int, ...], ...]
    query: tuple[tuple[int, ...], ...]

    def __repr_args__(self) -> Iterable[tuple[str, Any]]:
        """For one line: the sizes alone."""
        n_support, n_query = (sum(map(len, chosen)) for chosen in (self.support, self.query))
        return [("n_classes", len(self.classes)), ("n_support", n_support), ("n_query", n_query)]


@dataclass(frozen=True)
class Task:
    """Support for the learner, query for the evaluator alone.

    Examples:
        >>> import fscl
        >>> pool = fscl.load_glyphs().test
        >>> stream = sample_stream(pool, StreamSpec(n_tasks=1), fscl.generator(0, "my stream"))
        >>> stream.task(pool, 0).support
        <Examples: 25 images of 1×32×32, 5 classes>

    Attributes:
        support: examples to learn from.
        query: examples to ask about.
    """

    support: Examples
    query: Examples


class Stream(BaseModel):
    """Tasks by reference to one pool.

    Examples:
        >>> import fscl
        >>> pool = fscl.load_glyphs().test
        >>> stream = sample_stream(pool, StreamSpec(n_tasks=4), fscl.generator(0, "my stream"))
        >>> len(stream), len(stream.tasks[0].classes)
        (4, 5)

    Attributes:
        spec: what it looks like.
        pool_name: the pool that it was drawn from.
        pool_hash: of that pool's content; another pool is refused.
        tasks: for each, its classes and the positions of its images.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: StreamSpec
    pool_name: str
    pool_hash: str
    tasks: tuple[TaskPlan, ...]

    def __repr_args__(self) -> Iterable[tuple[str, Any]]:
        """For one line: what it is, without the images of its tasks."""
        shape = {key: getattr(self.spec, key) for key in ("setting", "n_tasks", "n_way", "n_shot", "n_query")}
        return [("pool_name", shortened(self.pool_name)), *shape.items()]

    @cached_property
    def content_hash(self) -> str:
        """Equal if and only if the tasks, the images and the pool are equal."""
        return digest(self.model_dump(mode="json", exclude={"pool_name"}))

    def __len__(self) -> int:
        return len(self.tasks)

    def task(self, pool: ClassPool, index: int) -> Task:
        """The images of one task."""
        if pool.content_hash != self.pool_hash:
            raise DataError(
                f"this stream was drawn from pool {self.pool_name!r} ({self.pool_hash}), but pool {pool.name!r} "
                f"({pool.content_hash}) has other content. Load the same data, split and image size."
            )
        plan = self.tasks[index]
        return Task(_gather(pool, plan, plan.support), _gather(pool, plan, plan.query))

    def first_asked(self, index: int) -> torch.Tensor:
        """For each query of a task, whether its class is new; when a class returns, its queries are the same images."""
        before, plan = {name for task in self.tasks[:index] for name in task.classes}, self.tasks[index]
        per_class = zip(plan.classes, plan.query, strict=True)
        return torch.tensor([name not in before for name, chosen in per_class for _ in chosen])

    def save(self, path: Path) -> None:
        """Write the stream as JSON with its content hash."""
        write_json(path, "stream", {"content_hash": self.content_hash, **self.model_dump(mode="json")})

    @classmethod
    def load(cls, path: Path) -> "Stream":
        """Read a stream and check that its content hash is right."""
        content = read_json(path, "stream")
        claimed = content.pop("content_hash", None)
        try:
            stream = cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise StorageError(f"{path} is not a stream: {where}: {first['msg']}.") from error
        if stream.content_hash != claimed:
            raise StorageError(
                f"{path} says its content hash is {claimed}, but it is {stream.content_hash}: it was altered."
            )
        return stream


def sample_stream(pool: ClassPool, spec: StreamSpec, generator: torch.Generator) -> Stream:
    """Draw a stream of tasks from a pool. Same pool, spec and generator state: same stream.

    Examples:
        >>> import fscl
        >>> pool = fscl.load_glyphs().test
        >>> twins = [sample_stream(pool, StreamSpec(n_tasks=2), fscl.generator(0, "my stream")) for _ in range(2)]
        >>> twins[0].content_hash == twins[1].content_hash
        True

    Args:
        pool: classes to draw from.
        spec: how many tasks, classes and examples.
        generator: as of `fscl.generator`.
    """
    per_class = spec.n_query + max(spec.n_shot * min(spec.interval, spec.n_tasks), spec.base_shot)
    n_classes = spec.n_classes
    _require(pool, spec, n_classes, per_class)
    eligible = [index for index, count in enumerate(pool.counts) if count >= per_class]
    order = torch.randperm(len(eligible), generator=generator)[:n_classes].tolist()
    images = [torch.randperm(pool.counts[eligible[i]], generator=generator).tolist() for i in order]
    tasks = []
    for number in range(spec.n_tasks):
        group, turn = divmod(number, spec.interval)
        begin = sum(spec.group_sizes[:group])
        members = range(begin, begin + spec.group_sizes[group])
        first, n_shot = spec.n_query + turn * spec.n_shot, spec.shots(number)
        tasks.append(
            TaskPlan(
                classes=tuple(pool.class_names[eligible[order[i]]] for i in members),
                labels=tuple(i % spec.n_way if spec.overwrite else i for i in members),
                support=tuple(tuple(images[i][first : first + n_shot]) for i in members),
                query=tuple(tuple(images[i][: spec.n_query]) for i in members),
            )
        )
    return Stream(spec=spec, pool_name=pool.name, pool_hash=pool.content_hash, tasks=tuple(tasks))


def listed_stream(pool: ClassPool, spec: StreamSpec) -> Stream:
    """The one stream of a pool whose classes stand in order of arrival, the shots of each class before its queries."""
    _require(pool, spec, spec.n_classes, spec.n_query + spec.n_shot)
    tasks, first = [], 0
    for number, size in enumerate(spec.task_sizes):
        members, n_shot = range(first, first + size), spec.shots(number)
        wrong = [i for i in members if pool.counts[i] != n_shot + spec.n_query]
        if wrong:
            raise DataError(
                f"task {number + 1} takes {n_shot} shots and {spec.n_query} queries a class, but class "
                f"{pool.class_names[wrong[0]]} of {pool.name!r} has {pool.counts[wrong[0]]} images in the lists. Set "
                f"{'base_shot' if number == 0 and spec.base_way else 'n_shot'} and n_query to make as many."
            )
        queries = tuple(range(n_shot, n_shot + spec.n_query))
        tasks.append(
            TaskPlan(
                classes=pool.class_names[first : first + size],
                labels=tuple(members),
                support=tuple(tuple(range(n_shot)) for _ in members),
                query=tuple(queries for _ in members),
            )
        )
        first += size
    return Stream(spec=spec, pool_name=pool.name, pool_hash=pool.content_hash, tasks=tuple(tasks))


def _require(pool: ClassPool, spec: StreamSpec, n_classes: int, per_class: int) -> None:
    if n_classes > len(pool):
        more = len(pool) - spec.group_sizes[0]  # classes for the tasks after the first
        fits = (1 + more // spec.n_way) * spec.interval if more >= 0 else 0
        base, key = (f"{spec.base_way} and then ", "base_way") if spec.base_way else ("", "n_way")
        times = spec.n_groups - bool(spec.base_way)
        way_out = f"Lower n_tasks to {fits}." if fits else f"Lower {key} to {len(pool)} or less."
        raise DataError(
            f"the stream needs {n_classes} classes ({base}{times} times {spec.n_way} new ones) "
            f"but {pool.name!r} has {len(pool)}. {way_out}"
        )
    pool.require(
        n_classes=n_classes,
        n_images=per_class,
        purpose=f"a stream with {spec.n_shot} shots in {spec.interval} task(s) and {spec.n_query} queries a class",
    )


def _gather(pool: ClassPool, plan: TaskPlan, choice: tuple[tuple[int, ...], ...]) -> Examples:
    try:
        images = [
            pool.of_class(pool.position[name])[list(chosen)] for name, chosen in zip(plan.classes, choice, strict=True)
        ]
    except (KeyError, IndexError, ValueError) as error:
        raise DataError(f"the stream names an image that pool {pool.name!r} does not have ({error}).") from error
    labels = torch.tensor(plan.labels).repeat_interleave(torch.tensor([len(chosen) for chosen in choice]))
    return Examples(torch.cat(images), labels)
