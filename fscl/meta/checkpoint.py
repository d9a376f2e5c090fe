"""The state of a meta-training between two steps, and its file: a checkpoint, which only the same training continues."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fscl.errors import RunError
from fscl.nets.params import Params, frozen_copy, in_layout, placed, trainable_copy
from fscl.storage import load_tensors, save_tensors, sync_folder


@dataclass
class TrainingState:
    """All that a checkpoint holds."""

    meta: Params
    average: Params
    optimiser: torch.optim.AdamW
    best: Params
    step: int = 0
    best_step: int = 0
    best_accuracy: float = -1.0
    history: list[tuple[int, float]] = field(default_factory=list)

    @classmethod
    def fresh(cls, start: Params) -> "TrainingState":
        meta = trainable_copy(start)
        return cls(meta, frozen_copy(meta), torch.optim.AdamW(meta.values()), frozen_copy(meta))

    def note(self, accuracy: float) -> None:
        self.history.append((self.step, accuracy))
        if accuracy > self.best_accuracy:
            self.best, self.best_step, self.best_accuracy = frozen_copy(self.average), self.step, accuracy

    def summary(self) -> str:
        return f"best validation {100 * self.best_accuracy:.2f} %" if self.best_step else "no validation yet"

    def save(self, path: Path, identity: dict[str, Any]) -> None:
        tensors: dict[str, Tensor] = {}
        for name, tensor in self.meta.items():
            tensors[f"meta/{name}"] = tensor
            tensors[f"average/{name}"] = self.average[name]
            tensors[f"best/{name}"] = self.best[name]
            tensors |= {f"adam/{key}/{name}": value for key, value in self.optimiser.state.get(tensor, {}).items()}
        details = {
            "identity": identity,
            "step": self.step,
            "best_step": self.best_step,
            "best_accuracy": self.best_accuracy,
            "history": self.history,
        }
        save_tensors(path, "meta-training checkpoint", tensors, details)
        sync_folder(path.parent)

    @classmethod
    def load(cls, path: Path, identity: dict[str, Any], device: torch.device) -> "TrainingState":
        tensors, details = load_tensors(path, "meta-training checkpoint")
        _refuse_other_identity(path, details["identity"], identity)

        def group(prefix: str) -> Params:
            found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            return placed(in_layout(found), device)

        state = cls.fresh(group("meta/"))
        state.average, state.best = group("average/"), group("best/")
        for key in ("step", "exp_avg", "exp_avg_sq"):
            for name, value in group(f"adam/{key}/").items():
                state.optimiser.state[state.meta[name]][key] = value.cpu() if key == "step" else value
        state.step, state.best_step = details["step"], details["best_step"]
        state.best_accuracy = details["best_accuracy"]
        state.history = [(int(step), float(accuracy)) for step, accuracy in details["history"]]
        return state


def _refuse_other_identity(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for part in {**wanted, **found}:
        before_all, now_all = found.get(part, {}), wanted.get(part, {})
        for key in {**now_all, **before_all}:
            before, value = before_all.get(key), now_all.get(key)
            if before != value:
                raise RunError(
                    f"{path} was begun with {part}.{key} = {before!r}, but now it is {value!r}. Use the old value, or "
                    "another output folder, or delete the checkpoint."
                )
