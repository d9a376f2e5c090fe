"""The shapes of requests and answers; the OpenAPI document is made of them, and requests are checked by them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from fscl.data.names import MAX_LENGTH

MAX_AT_ONCE = 500

Name = Annotated[StrictStr, Field(min_length=1, max_length=MAX_LENGTH)]
Label = Name | StrictBool | StrictInt | StrictFloat
PictureId = Annotated[StrictStr, Field(pattern=r"^[0-9a-f]{32}$")]
Share01 = Annotated[float, Field(ge=0, le=1)]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
StateNumber = Annotated[StrictInt, Field(ge=0, le=10**9)]
Count = Annotated[int, Field(ge=0)]


class Request(BaseModel):
    """What a client sends; what is not named here is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# requests


class TokenRequest(Request):
    token: Annotated[StrictStr, Field(min_length=1, max_length=200)]


class ModelRequest(Request):
    purpose: Literal["photos", "drawings"] = Field(alias="for")
    invert: StrictBool = False


class PredictRequest(Request):
    pictures: Annotated[list[PictureId], Field(min_length=1, max_length=MAX_AT_ONCE)]
    keep: StrictBool = False
    top: Annotated[StrictInt, Field(ge=1, le=1000)] = 5
    nearest: Annotated[StrictInt, Field(ge=0, le=50)] = 3


class LabelledPicture(Request):
    id: PictureId
    label: Label


class LearnRequest(Request):
    pictures: Annotated[list[LabelledPicture], Field(min_length=1, max_length=MAX_AT_ONCE)]
    dry_run: StrictBool = False
    wait: StrictBool = True


class CorrectRequest(Request):
    picture: PictureId
    label: Label
    new: StrictBool = False
    wait: StrictBool = True


class RemoveRequest(Request):
    example: Annotated[StrictInt, Field(ge=1, le=10**9)]
    state: StateNumber
    wait: StrictBool = True


class MoveRequest(RemoveRequest):
    label: Label
    new: StrictBool = False


class RenameRequest(Request):
    label: Label
    to: Label
    wait: StrictBool = True


class MergeRequest(Request):
    label: Label
    into: Label
    wait: StrictBool = True


class ForgetRequest(Request):
    label: Label
    wait: StrictBool = True


class GoRequest(Request):
    """Undo and redo: by so many calls, or to a state."""

    calls: Annotated[StrictInt, Field(ge=1, le=10**6)] | None = None
    to: StateNumber | None = None
    wait: StrictBool = True


class TestRequest(Request):
    pictures: Annotated[list[LabelledPicture], Field(min_length=1, max_length=5000)]
    wait: StrictBool = True


class PicturesRequest(Request):
    pictures: Annotated[list[PictureId], Field(min_length=1, max_length=MAX_AT_ONCE)]


class ExportRequest(Request):
    format: Literal["onnx", "model"]
    wait: StrictBool = True


# queries


class Query(BaseModel):
    """Parameters of an address, as text; others are not looked at."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class NameQuery(Query):
    name: Annotated[str, Field(max_length=1000)] = ""


class SizeQuery(Query):
    size: Annotated[int, Field(ge=16, le=512)] = 320


class PredictQuery(Query):
    top: Annotated[int, Field(ge=1, le=1000)] = 5
    nearest: Annotated[int, Field(ge=0, le=50)] = 3


class LearnQuery(Query):
    label: Annotated[str, Field(min_length=1, max_length=MAX_LENGTH)] | None = None
    dry_run: bool = False
    wait: bool = True
    skip_bad: bool = False


class ExamplesQuery(Query):
    label: Annotated[str, Field(max_length=MAX_LENGTH)] | None = None
    offset: Annotated[int, Field(ge=0, le=10**9)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


# answers


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


class JobBody(BaseModel):
    id: str
    kind: str
    label: str
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
