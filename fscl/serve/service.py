"""The model behind the service: read by all, changed by one thread, and swapped as a whole.

The folder stays the truth. A change is a transaction there, made by the one writer thread; the state that it leaves replaces
the present one by one assignment. What another process changes (`fscl learn`) is noticed by looking at `model.json` four
times a second.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from fscl.classifier.base_choice import default_base
from fscl.classifier.inputs import Pictures
from fscl.classifier.knowledge import CallName, Lesson
from fscl.classifier.labels import Label
from fscl.classifier.model import Change, Model
from fscl.classifier.store.manifest import NAME, Manifest, read_manifest
from fscl.classifier.teacher import Snapshot, Teacher
from fscl.data.pictures import encoded
from fscl.errors import FsclError, MisuseError
from fscl.estimator import ContinualClassifier
from fscl.process import configure_process
from fscl.serve import answers
from fscl.serve.events import Hub
from fscl.serve.exports import Exports
from fscl.serve.inbox import Likeness
from fscl.serve.inference import Inference, Question, answer_together
from fscl.serve.jobs import Job, Jobs, reused
from fscl.serve.present import Present
from fscl.serve.refusals import Refusal, log
from fscl.serve.tray import FOLDER, Tray
from fscl.stopping import stoppable

KEEP_STATES = 50  # of a model that the service makes
LOOK_EVERY = 0.25  # seconds
PROGRESS_EVERY = 0.2  # seconds between two events about one job
N_WORKERS = 2

Act = Callable[[Present, Job], None]


class Service:
    """A model, and all that answers from it or changes it."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self.hub = Hub()
        self.jobs = Jobs(self._job_changed)
        self.writer = ThreadPoolExecutor(1, "fscl-writer", initializer=configure_process)
        self.workers = ThreadPoolExecutor(N_WORKERS, "fscl-worker", initializer=configure_process)
        self.inference = Inference(self.present)
        self.likeness = Likeness()
        self.exports = Exports()
        self.problem: str | None = None
        self.started = time.monotonic()
        self.ready = False
        self._present: Present | None = None
        self._tray: Tray | None = None
        self._told: dict[str, tuple[str, float]] = {}
        self._ending = threading.Event()
        self._seen: tuple[int, ...] | None = None

    # its life

    def start(self) -> None:
        """Open the model, if there is one, warm up, and begin to answer."""
        if (self.folder / NAME).exists():
            self._open()
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise MisuseError(f"{self.folder} is there already, and no model; give the model a name of its own.")
        self.inference.start()
        threading.Thread(target=self._look, name="fscl-look", daemon=True).start()
        self.ready = True

    def close(self) -> None:
        """End: what is being written is finished, what waits is not begun."""
        self._ending.set()
        self.hub.close()
        for job in self.jobs.active():
            job.stop()
        self.workers.shutdown(wait=False, cancel_futures=True)
        self.writer.shutdown(wait=True, cancel_futures=True)
        self.inference.stop()
        self.exports.close()

    def create(self, purpose: str, *, invert: bool = False) -> None:
        """Make the model of a first run."""
        with suppress(FileNotFoundError):
            self.folder.rmdir()  # an empty one; anything else is refused below
        ContinualClassifier(default_base(purpose), keep_states=KEEP_STATES, invert=invert).save(self.folder)
        self._open()
        self.hub.publish("state", {"state": self.present().number, "by": "page"})

    def present(self) -> Present:
        """The state of now; read it once a question."""
        found = self._present
        if found is None:
            raise Refusal("no_model", "there is no model yet; choose what the pictures are: photos or drawings.")
        return found

    def taught(self) -> Present:
        """The state of now, which must know a class."""
        found = self.present()
        if not found.knowledge.classes:
            raise Refusal("untaught", "nothing is learned yet; teach a class first.")
        return found

    @property
    def exists(self) -> bool:
        """Whether there is a model."""
        return self._present is not None

    @property
    def tray(self) -> Tray:
        """Pictures that were sent."""
        self.present()
        if self._tray is None:
            self._tray = Tray(self.folder / FOLDER)
        return self._tray

    def manifest(self) -> Manifest:
        """Which states there are."""
        return read_manifest(self.folder)

    # reading pictures

    def read_plain(
        self, present: Present, plains: Sequence[tuple[Image.Image, str]], *, to_teach: bool = True
    ) -> Pictures:
        """Pictures that came with the request itself, and their names; what is kept of them where they are to be taught."""
        shape, keeps = present.model.shape, present.model.keeps_originals and to_teach
        pixels = [shape.pixels(plain) for plain, _ in plains]
        kept = tuple(encoded(plain) for plain, _ in plains) if keeps else ()
        return Pictures(shape.tensor(pixels), tuple(name for _, name in plains), kept)

    def read_kept(self, present: Present, ids: Sequence[str], job: Job | None = None) -> Pictures:
        """Pictures of the tray; what is there is what is kept of them when they are taught."""
        shape, keeps, pixels = present.model.shape, present.model.keeps_originals, []
        contents: list[bytes] = []
        for position, key in enumerate(ids):
            if job is not None:
                job.at("reading", position, len(ids))
            pixels.append(shape.pixels(self.tray.open(key)))
            if keeps:
                contents.append(self.tray.content(key))
        return Pictures(shape.tensor(pixels), tuple(self.tray.get(key).name for key in ids), tuple(contents))

    # changing

    def lesson(self, pictures: Pictures, labels: Sequence[Label], call: CallName, *, id: str | None = None) -> Lesson:
        """Pictures with their labels, as one call."""
        return Lesson(pictures.images, tuple(labels), pictures.sources, call, now(), pictures.originals, id)

    def learned_before(self, id: str | None, call: CallName, n_examples: int) -> answers.Json | None:
        """The answer to a lesson that is sent again, where the present state has learned it already.

        Args:
            id: of the lesson.
            call: that it is sent with.
            n_examples: in it.
        """
        present = self.present()
        event = None if id is None else next((e for e in present.knowledge.history if e.lesson == id), None)
        if event is None:
            return None
        if (event.call, event.n_examples) != (call, n_examples):
            raise reused(id)
        manifest, is_last = self.manifest(), event is present.knowledge.history[-1]
        numbers = [0 if manifest.begins_empty else None, *(record.number for record in manifest.states)]
        return answers.repeated(present, event, undo_to=numbers[-2] if is_last and len(numbers) > 1 else None)

    def teach(
        self, job: Job, lesson: Lesson, *, left_out: Sequence[str] = (), drop: Sequence[str] = ()
    ) -> answers.Json:
        """Have the writer learn a lesson; pictures of the tray that were taught leave it."""

        def act(before: Present, job: Job) -> None:
            before.model.learn(lesson, before_commit=job.commit)

        def work() -> answers.Json:
            self.refresh()  # the lesson may have been completed meanwhile, by whichever process
            before = self.learned_before(lesson.id, lesson.call, len(lesson.labels))
            return self.apply(job, act, left_out) if before is None else before

        done = self.writer.submit(work).result()
        if drop:
            waited = not {each.id for each in self.tray.inbox()}.isdisjoint(drop)
            self.tray.drop(drop)
            if waited:
                self.tell_inbox()
        return done

    def change(self, kind: str, label: str, made: Change, *, state: int | None = None, final: bool = False) -> Job:
        """Have the writer change what is known.

        Args:
            kind: of call, for programs.
            label: of this call, for people.
            made: what the new state is made by.
            state: the number of the state that it is meant for; any unless given.
            final: whether it leaves no way back.
        """

        def act(before: Present, job: Job) -> None:
            def checked(teacher: Teacher, snapshot: Snapshot) -> Snapshot:
                if state is not None and (before.number != state or snapshot is not before.snapshot):
                    raise stale(state)
                after = made(teacher, snapshot)
                job.commit()
                return after

            before.model.change(checked, final=final)

        return self.jobs.start(self.writer, kind, label, lambda job: self.apply(job, act))

    def apply(self, job: Job, act: Act, left_out: Sequence[str] = ()) -> answers.Json:
        """In the writer's thread: one change, and what it did."""
        before = self.refresh()
        job.at("learning")
        with stoppable(job.check):
            act(before, job)
        after = self._look_again(by="page")
        manifest = self.manifest()
        numbers = [*([0] if manifest.begins_empty else []), *(record.number for record in manifest.kept)]
        undo_to = before.number if before.number in numbers and after.number != before.number else None
        return answers.change(before, after, left_out=left_out, undo_to=undo_to)

    # seeing what others do

    def refresh(self) -> Present:
        """In the writer's thread: see what another process has changed."""
        return self._look_again(by="outside")

    def _look_again(self, *, by: str) -> Present:
        before = self.present()
        folder = before.model.folder
        if folder is None:
            raise MisuseError("a model without a folder cannot be served.")
        manifest = read_manifest(self.folder)
        if manifest.seal == before.seal:
            return before
        model = before.model
        if not _same_model(manifest, model):
            model = Model.load(self.folder)
            folder = model.folder or folder
        manifest, snapshot = folder.read_named()
        model.snapshot = snapshot
        after = Present.of(model, manifest, snapshot)
        if snapshot.knowledge.classes:
            _ = snapshot.learner  # made here, and not by the first who asks
        self._present = after  # one assignment: a question has the old state or the new one
        self.problem = None
        if after.number != before.number:
            self.hub.publish("state", {"state": after.number, "by": by})
        return after

    def _look(self) -> None:
        while not self._ending.wait(LOOK_EVERY):
            if self._present is None:
                continue
            try:
                found = (self.folder / NAME).stat()
                seen = (found.st_mtime_ns, found.st_ino, found.st_size)
                if seen != self._seen:
                    self.writer.submit(self._looked).result()
                    self._seen = seen
            except (OSError, FsclError) as error:
                self.problem = f"{self.folder} cannot be read: {error}"
                self._seen = None
            except Exception as error:  # the thread must live on
                if not self._ending.is_set():
                    log.error("looking at the folder failed", exc_info=error)

    def _looked(self) -> None:
        model = self.present().model
        if model.waiting() and not self.read_only:
            model.recover()  # a lesson that was cut short, by whichever process
        self.refresh()
        self.problem = None

    def _open(self) -> None:
        """Read the model, and warm up: the first question shall be no slower than the next."""
        model = Model.load(self.folder)
        if model.has_rows:
            raise MisuseError(f"{self.folder} has learned rows of numbers; only models of pictures can be served.")
        if model.waiting() and not self.read_only:
            model.recover()
        folder = model.folder
        if folder is None:
            raise MisuseError("a model without a folder cannot be served.")
        manifest, snapshot = folder.read_named()
        model.snapshot = snapshot
        present = Present.of(model, manifest, snapshot)
        shape = model.shape
        blank = torch.zeros(1, shape.channels, shape.image_size, shape.image_size, dtype=torch.uint8)
        if snapshot.knowledge.classes:
            for n in (1, 8):
                images = blank.expand(n, -1, -1, -1)
                answer_together(present, [(Question(images, 3, None), images)])
        self._present = present

    # telling

    def tell_inbox(self) -> int:
        """Tell open pages how many pictures wait for a person."""
        total = len(self.tray.inbox())
        self.hub.publish("inbox", {"total": total})
        return total

    def _job_changed(self, job: Job) -> None:
        state, when = self._told.get(job.id, ("", 0.0))
        if job.state == state and time.monotonic() - when < PROGRESS_EVERY:
            return
        self._told[job.id] = (job.state, time.monotonic())
        if job.state not in ("waiting", "running"):
            del self._told[job.id]
        self.hub.publish("job", job.content())


def stale(state: int) -> Refusal:
    """For numbers of examples of a state that is no longer the present one."""
    return Refusal("stale", f"the model has changed since state {state}; look again, and choose anew.")


def now() -> str:
    """ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def about(service: Service) -> dict[str, Any]:
    """What can be said of a model before and after the first run."""
    if not service.exists:
        return {"exists": False, "state": 0}
    present = service.present()
    knowledge, settings, folder = present.knowledge, present.model.settings, present.model.folder
    return {
        "exists": True,
        "state": present.number,
        "method": settings.method,
        "base": settings.base,
        "n_classes": len(knowledge.classes),
        "n_examples": sum(knowledge.counts),
        "accuracy": knowledge.calibration.accuracy,
        "interval": knowledge.calibration.interval,
        "bytes": 0 if folder is None else folder.n_bytes(),
        "memory_bytes": settings.memory_bytes,
        "keep_states": settings.keep_states,
        "waiting": present.model.waiting(),
    }


def _same_model(manifest: Manifest, model: Model) -> bool:
    """Whether a manifest is of the model that was loaded, and not of another that was put in its place."""
    if manifest.settings != model.settings or model.folder is None:
        return False
    return manifest.base_file == model.folder.base_record
