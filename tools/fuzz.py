"""Gives bytes that nobody would write to every parser of bytes from outside; each must refuse them in a sentence.

    python -m tools.fuzz --minutes 60 --folder /tmp/fuzz     all parsers, in turn; what was learned is kept in the folder
    make fuzz MINUTES=10

Coverage guides it (atheris: libFuzzer for Python): bytes that reach new code are kept and changed further. At the end a
table says what was run; bytes that break a parser are kept as `crash-…` in the folder, and the exit code is 1.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

STORE = ["fscl.classifier", "fscl.storage"]
CODE = {  # what each parser is made of: there new code is looked for
    "zip": ["fscl.data", "zipfile"],
    "tar": ["fscl.data", "tarfile"],
    "tgz": ["fscl.data", "tarfile"],
    "manifest": STORE,
    "journal": STORE,
    "state": STORE,
    "tensors": STORE,
    "network": ["fscl.nets", "fscl.storage"],
    "picture": ["fscl.data", "PIL"],
    "config": ["fscl.experiment", "tomllib"],
    "run": ["fscl.experiment", "fscl.storage"],
    "http": ["fscl.serve", "python_multipart", "starlette"],
}
TIMEOUT, MEMORY, LONGEST = 30, 4096, 20_000  # seconds for one input, MB, bytes of an input


@dataclass(frozen=True)
class Ran:
    """What became of one parser: inputs tried, edges of code reached, and the file that broke it, if any did."""

    name: str
    n_inputs: int
    coverage: int
    crash: str | None


def fuzz(name: str, folder: Path, seconds: float) -> Ran:
    """Fuzz one parser in a process of its own."""
    here = folder / name
    here.mkdir(parents=True, exist_ok=True)
    known = {path.name for path in here.glob("crash-*")}
    command = [
        sys.executable,
        "-m",
        "tools.fuzz",
        "--inside",
        name,
        "--folder",
        str(folder),
        "--seconds",
        f"{seconds:.0f}",
    ]
    with (here / "log").open("w+") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        log.seek(0)
        said = log.read()
    tried = re.findall(r"stat::number_of_executed_units:\s*(\d+)", said) or re.findall(r"^#(\d+)\s", said, re.M)
    reached = re.findall(r"cov: (\d+)", said)
    crashes = sorted(
        path.name for path in here.glob("*-*") if re.match("crash|timeout|oom", path.name) and path.name not in known
    )
    broken = crashes[-1] if crashes else None if code == 0 else f"exit code {code}, see {here / 'log'}"
    return Ran(name, int(tried[-1]) if tried else 0, int(reached[-1]) if reached else 0, broken)


def inside(name: str, folder: Path, seconds: int) -> None:
    """In that process: until the time is over, or a parser breaks."""
    import atheris

    with atheris.instrument_imports(include=CODE[name]):
        from tools.fuzzing.targets import TARGETS
    here, corpus = folder / name, folder / name / "corpus"
    corpus.mkdir(exist_ok=True)
    place = tempfile.mkdtemp()
    target = TARGETS[name](Path(place))
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-timeout={TIMEOUT}", f"-rss_limit_mb={MEMORY}", f"-max_len={LONGEST}"]
    atheris.Setup([name, *options, "-print_final_stats=1", f"-artifact_prefix={here}/", str(corpus)], target.try_bytes)
    atheris.Fuzz()


def table(ran: list[Ran]) -> str:
    """As Markdown."""
    lines = ["| parser | inputs | edges reached | broken by |", "|---|---|---|---|"]
    lines += [f"| {each.name} | {each.n_inputs:,} | {each.coverage:,} | {each.crash or 'nothing'} |" for each in ran]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60, help="of all parsers together")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "fscl-fuzz")
    parser.add_argument("--only", nargs="*", choices=CODE, default=list(CODE))
    parser.add_argument("--inside", choices=CODE, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        inside(given.inside, given.folder, given.seconds)
        return
    ran = [fuzz(name, given.folder, 60 * given.minutes / len(given.only)) for name in given.only]
    print(table(ran))
    sys.exit(1 if any(each.crash for each in ran) else 0)


if __name__ == "__main__":
    main()
