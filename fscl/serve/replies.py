"""The shapes of what is answered: the OpenAPI document is made of them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from fscl.serve.requests import Label

Share01 = Annotated[float, Field(ge=0, le=1)]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]


class ErrorBody(BaseModel):
    kind: str
    message: str


class ErrorAnswer(BaseModel):
    error: ErrorBody


class SessionAnswer(BaseModel):
    token_needed: bool
    open: bool
    read_only: bool
    version: str


class Choice(BaseModel):
    purpose: str = Field(alias="for")
    base: str
    installed: bool
    message: str


class Limits(BaseModel):
    picture_bytes: int
    body_bytes: int
    pixels: int
    pictures_at_once: int


class ModelAnswer(BaseModel):
    exists: bool
    name: str
    state: int
    read_only: bool
    choices: list[Choice]
    method: str | None
    base: str | None
    n_classes: int
    n_examples: int
    accuracy: Share01 | None
    interval: Interval | None
    bytes: int
    memory_bytes: int | None
    keep_states: int | None
    waiting: bool
    limits: Limits


class PictureAnswer(BaseModel):
    id: str
    name: str
    width: int
    height: int
    url: str


class Ranked(BaseModel):
    label: Label
    probability: Share01


class Near(BaseModel):
    label: Label
    distance: float
    source: str
    key: str
    url: str


class OneAnswer(BaseModel):
    picture: str | None
    name: str
    label: Label | None
    probability: Share01
    unknown: bool
    uncertain: bool
    ranked: list[Ranked]
    nearest: list[Near]
    kept: bool


class PredictAnswer(BaseModel):
    state: int
    answers: list[OneAnswer]


class EventAnswer(BaseModel):
    number: int
    call: str
    when: str
    new: list[Label]
    known: list[Label]
    n_examples: int
    n_classes: int
    accuracy: Share01 | None
    lesson: str | None
    line: str


class ClassChangeAnswer(BaseModel):
    label: Label
    before: Share01 | None
    after: Share01 | None
    new: bool


class AccuracyAnswer(BaseModel):
    before: Share01 | None
    after: Share01 | None
    interval: Interval | None


class Example(BaseModel):
    number: int
    label: Label
    source: str
    key: str
    url: str


class ListedExample(Example):
    doubtful: bool


class Doubt(Example):
    likelier: Label
    probability: Share01


class ChangeAnswer(BaseModel):
    state: int
    dry_run: bool
    event: EventAnswer | None
    accuracy: AccuracyAnswer
    classes: list[ClassChangeAnswer]
    gains: list[ClassChangeAnswer]
    suffers: list[ClassChangeAnswer]
    repeats: int
    doubtful: list[Doubt]
    lines: list[str]
    left_out: list[str]
    undo_to: int | None
    repeated: bool


class JobBody(BaseModel):
    id: str
    kind: str
    label: str
    lesson: str | None
    state: Literal["waiting", "running", "done", "failed", "stopped"]
    phase: str
    done: int
    total: int | None
    created: str
    result: dict[str, Any] | None
    error: ErrorBody | None
    stoppable: bool


class JobAnswer(BaseModel):
    job: JobBody


class JobsAnswer(BaseModel):
    jobs: list[JobBody]


class ClassAnswer(BaseModel):
    label: Label
    examples: int
    accuracy: Share01 | None
    interval: Interval | None
    newest: list[Example]


class Advice(BaseModel):
    label: Label
    more: int
    message: str


class ClassesAnswer(BaseModel):
    state: int
    accuracy: Share01 | None
    interval: Interval | None
    n_left_out: int
    classes: list[ClassAnswer]
    advice: list[Advice]


class ExamplesAnswer(BaseModel):
    state: int
    total: int
    examples: list[ListedExample]


class Duplicates(BaseModel):
    examples: list[Example]
    same_label: bool


class DoubtsAnswer(BaseModel):
    state: int
    wrong_labels: list[Doubt]
    duplicates: list[Duplicates]


class KeptState(BaseModel):
    state: int
    present: bool
    undone: bool
    event: EventAnswer | None
    accuracy: Share01 | None
    changes: list[ClassChangeAnswer]


class HistoryAnswer(BaseModel):
    state: int
    states: list[KeptState]
    events: list[EventAnswer]


class InboxPicture(BaseModel):
    id: str
    name: str
    url: str
    label: Label | None
    probability: Share01
    unknown: bool
    uncertain: bool
    ranked: list[Ranked]


class InboxGroup(BaseModel):
    name: str
    guess: Label | None
    unknown: bool
    settled: bool
    pictures: list[InboxPicture]


class InboxAnswer(BaseModel):
    state: int
    total: int
    groups: list[InboxGroup]


class TotalAnswer(BaseModel):
    total: int


class ShareAnswer(BaseModel):
    count: int
    n: int
    value: Share01 | None
    interval: Interval


class ClassResultAnswer(BaseModel):
    label: Label
    right: ShareAnswer
    unknown: ShareAnswer


class ConfusionAnswer(BaseModel):
    label: Label
    answer: Label
    n: int


class MistakeAnswer(BaseModel):
    id: str
    name: str
    label: Label
    answer: Label
    probability: Share01
    unknown: bool


class TestAnswer(BaseModel):
    state: int
    n: int
    accuracy: ShareAnswer
    called_unknown: ShareAnswer
    caught: ShareAnswer | None
    n_taught: int
    can_reject: bool
    classes: list[ClassResultAnswer]
    strangers: list[ClassResultAnswer]
    confusions: list[ConfusionAnswer]
    mistakes: list[MistakeAnswer]
    left_out: list[str]


class ExportAnswer(BaseModel):
    format: str
    name: str
    bytes: int
    url: str
    lines: list[str]


class HealthAnswer(BaseModel):
    status: Literal["ok", "starting", "failing"]
    state: int
    version: str
    seconds: float
    problem: str | None
