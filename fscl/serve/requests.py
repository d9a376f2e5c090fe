"""The shapes of what clients send: bodies and the parameters of addresses. Requests are checked by them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from fscl.data.names import MAX_LENGTH

MAX_AT_ONCE = 500

Name = Annotated[StrictStr, Field(min_length=1, max_length=MAX_LENGTH)]
Label = Name | StrictBool | StrictInt | StrictFloat
PictureId = Annotated[StrictStr, Field(pattern=r"^[0-9a-f]{32}$")]
LessonId = Annotated[StrictStr, Field(pattern=r"^[0-9A-Za-z_.-]{1,64}$")]
StateNumber = Annotated[StrictInt, Field(ge=0, le=10**9)]


class Request(BaseModel):
    """What a client sends; what is not named here is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
    lesson: LessonId | None = None
    wait: StrictBool = True


class CorrectRequest(Request):
    picture: PictureId
    label: Label
    new: StrictBool = False
    lesson: LessonId | None = None
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
    lesson: LessonId | None = None
    dry_run: bool = False
    wait: bool = True
    skip_bad: bool = False


class ExamplesQuery(Query):
    label: Annotated[str, Field(max_length=MAX_LENGTH)] | None = None
    offset: Annotated[int, Field(ge=0, le=10**9)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
