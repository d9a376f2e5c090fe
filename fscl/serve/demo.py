"""A model to look at with no data at all: invented characters, some taught, some waiting in the inbox."""

from pathlib import Path

import numpy as np
from PIL import Image

from fscl.classifier.store.manifest import NAME
from fscl.data.pool import ClassPool
from fscl.data.sets.glyphs import make_glyphs
from fscl.estimator import ContinualClassifier
from fscl.serve.service import KEEP_STATES
from fscl.serve.tray import FOLDER, Tray

SEED = 1  # other alphabets than the base was trained on
BASE = "glyphs-protonet-conv4"
N_TAUGHT, N_LESSONS, N_STRANGE, N_SHOTS = 6, 2, 2, 5


def make_demo(folder: Path) -> bool:
    """Make the model, unless it is there; whether it was made."""
    if (folder / NAME).exists():
        return False
    pool = make_glyphs(n_alphabets=N_TAUGHT + N_STRANGE, n_characters=1, n_drawings=2 * N_SHOTS, seed=SEED)
    taught, strange = list(range(N_TAUGHT)), range(N_TAUGHT, N_TAUGHT + N_STRANGE)
    model = ContinualClassifier(BASE, keep_states=KEEP_STATES).save(folder)
    for start in range(N_LESSONS):
        lesson = taught[start::N_LESSONS]
        X = np.concatenate([pool.of_class(number)[:N_SHOTS, 0].numpy() for number in lesson])
        model.partial_fit(X, [_name(pool, number) for number in lesson for _ in range(N_SHOTS)])
    tray = Tray(folder / FOLDER)
    for number in (*strange, taught[0]):
        for position in range(N_SHOTS, 2 * N_SHOTS):
            drawing = Image.fromarray(pool.of_class(number)[position, 0].numpy())
            tray.add(drawing, f"drawing {position + 1}", inbox=True)
    return True


def _name(pool: ClassPool, number: int) -> str:
    return pool.class_names[number].partition("/")[0]
