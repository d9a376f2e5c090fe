"""One of the processes that train a base together, as torchrun starts it: `python -m fscl.experiment.team_member FOLDER`."""

import os
import sys
import threading
from pathlib import Path

from fscl.errors import FsclError
from fscl.experiment.base import train_and_test
from fscl.experiment.config import make_config
from fscl.experiment.progress import Reporter
from fscl.experiment.training import ASKED, FAILED
from fscl.storage import read_json, write_json


def main(folder: Path) -> int:
    """Train what the folder asks for, into the folder; the exit code."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        train_and_test(make_config(read_json(folder / ASKED, "training")["config"]), folder, Reporter(quiet=True))
    except FsclError as error:
        write_json(folder / FAILED, "failure", {"error": type(error).__name__, "message": str(error)})
        return 1
    return 0


def _end_with_input() -> None:
    """Who started the team holds the other end of its input: when that is gone, nobody wants the result."""
    while os.read(0, 1024):  # sys.stdin has a lock, over which Python would stumble at its own end
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
