"""A small experiment that takes seconds, for every test that needs a run."""

import json
import sys
from pathlib import Path

from fscl.experiment.config import Config, make_config
from fscl.experiment.record import RunRecord

TINY = {
    "name": "tiny",
    "base": {
        "network": {"width": 4},
        "train": {"steps": 2, "n_query": 2, "validate_every": 2, "validation_episodes": 2, "test_episodes": 2},
    },
    "stream": {"n_tasks": 3, "n_way": 2, "n_shot": 2, "n_query": 3},
    "run": {"methods": ["tsc", "replay", "prototypes"], "reference": "replay", "n_sequences": 3},
    "settings": {"all": {"steps": 6, "memory": {"generator": {"steps": 2}}}, "tsc": {"embedding_steps": 2}},
}


def tiny(**changes: object) -> Config:
    content = json.loads(json.dumps(TINY))
    for key, value in changes.items():
        section, _, name = key.rpartition("__")
        (content[section] if section else content)[name] = value
    return make_config(content)


def command(config: Path, out: Path, workers: int) -> list[str]:
    """`fscl run` as a child process."""
    arguments = ["run", str(config), "--out", str(out), "--workers", str(workers)]
    return [sys.executable, "-c", "from fscl.cli import main; main()", *arguments]


def toml(path: Path, config: dict[str, object], prefix: str = "") -> Path:
    """Write a nested dict as dotted keys."""

    def lines(section: dict[str, object], prefix: str) -> list[str]:
        out = []
        for key, value in section.items():
            out += (
                lines(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key} = {json.dumps(value)}"]
            )
        return out

    path.write_text("\n".join(lines(config, prefix)) + "\n")
    return path


def begun(folder: Path) -> RunRecord:
    """A run directory without cells."""
    record = RunRecord(folder)
    spec = {"hash": "b", "spec": {}, "origin": "o", "summary": ""}
    data = {"pool": "p", "hash": "h", "classes": 2}
    record.begin({"config": {"name": "toy"}, "versions": {}, "data": data, "base": spec, "streams": []})
    return record
