"""The command line. No logic: each command calls one function of the library and prints what it returns.

Results go to stdout, progress to stderr; the last line is the path written. Exit codes: 0 done, 1 failed, 2 misused.
torch and friends are imported inside the commands, so that `--help` answers at once.
"""

import itertools
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fscl import __version__
from fscl.cli import ask, model, serve, studies
from fscl.cli.opening import terminated_like_ctrl_c
from fscl.cli.placing import Address, CpuLevel, ExecutorName, SendData, chosen_executor
from fscl.errors import FsclError, MisuseError, OtherRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fscl.experiment.config import Config
    from fscl.experiment.executors.executor import Executor
    from fscl.experiment.record import RunRecord

app = typer.Typer(
    help="Few-shot continual learning: new classes for ever, from a few examples each, without forgetting the old ones.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help needs half the time
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(
    help="What data there is, where it is, and how to get it.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data_app, name="data")

SIGNALLED = 130  # typer's exit code after Ctrl-C

ConfigName = Annotated[str, typer.Argument(metavar="CONFIG", help="A shipped configuration by name, or a .toml file.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as stream.n_tasks=5.")]
Out = Annotated[Path | None, typer.Option(help="The folder to write to.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes, one thread each. Default: the number of cores; on a GPU, 1.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps: where everything is computed. Default: cpu.")]
Autocast = Annotated[bool, typer.Option("--autocast", help="Train embeddings in bfloat16 where torch thinks it safe.")]


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def demo(
    out: Out = None,
    workers: Workers = None,
    page: Annotated[bool, typer.Option("--serve", help="A page to teach and ask a model of such characters.")] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Of the page.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Open no browser.")] = False,
) -> None:
    """All of it, small: learn 50 invented characters in ten tasks with five methods, and compare them."""
    if page:
        serve.serve_demo(out or Path("runs") / "demo-model", port=port, no_browser=no_browser)
        return
    from fscl.experiment.config import load_config
    from fscl.experiment.progress import Reporter

    config = load_config("glyphs-quick")
    Reporter().say(
        "Ten tasks of five new characters each, five drawings a character, learned one after another by five methods on "
        "three sequences. After each task every character seen so far is asked for."
    )
    for number in itertools.count(1):
        folder = out or Path("runs") / ("demo" if number == 1 else f"demo-{number}")
        try:
            _run(config, folder, workers)
            return
        except OtherRun:
            if out is not None:
                raise  # else: a demo of another version stays as it is


@app.command()
def run(
    config: ConfigName,
    overrides: Overrides = None,
    out: Out = None,
    workers: Workers = None,
    device: Device = None,
    autocast: Autocast = False,
    part: Annotated[str | None, typer.Option(help="One part alone of a configuration that has several.")] = None,
    reuse: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Another run directory, to take cells from that are the same."),
    ] = None,
    executor: ExecutorName = "local",
    address: Address = None,
    send_data: SendData = False,
    cpu_level: CpuLevel = None,
) -> None:
    """Compare methods on sequences of tasks. A killed run is continued by the same command."""
    where = chosen_executor(executor, address=address, send_data=send_data, cpu_level=cpu_level)
    from fscl.experiment.config import load_plan

    plan = load_plan(config, [*(overrides or []), *_where(device, autocast)])
    for each, folder in plan.folders(out, part):
        _run(each, folder, workers, reuse or [], where)


@app.command()
def train(
    config: ConfigName,
    overrides: Overrides = None,
    out: Out = None,
    device: Device = None,
    autocast: Autocast = False,
) -> None:
    """Meta-train a base network. A killed training is continued by the same command."""
    from fscl.experiment.base import train_and_test
    from fscl.experiment.config import load_config
    from fscl.experiment.progress import Reporter

    resolved = load_config(config, [*(overrides or []), *_where(device, autocast)])
    with terminated_like_ctrl_c():
        path, lines = train_and_test(resolved, out or Path("bases") / resolved.name, Reporter())
    for line in [*lines, str(path)] if lines else []:
        typer.echo(line)


@app.command()
def bases() -> None:
    """The meta-trained networks that come with the package, what else can be a base, and the learners that train one."""
    from fscl.meta.learners import base_learners, summary_of
    from fscl.meta.shipped import load_base_with_details, shipped_bases
    from fscl.meta.statistics import carried
    from fscl.nets.efficientnet_lite import VARIANTS

    for name in shipped_bases():
        network, about = load_base_with_details(name)
        size = f"{sum(tensor.numel() for tensor in network.params.values()):,} weights"
        typer.echo(
            f"{name}: {about['summary']}, {size}\n  made by `fscl train {about['config']}`, seed {about['seed']}"
        )
        typer.echo(f"  carries {carried(network.extras) or 'nothing beside its weights'}")
        for test in about["test"]:
            accuracy = f"{100 * test['accuracy']:.2f} ± {100 * test['interval_95']:.2f} %"
            typer.echo(f"  {test['shape']} on test classes: {accuracy} ({test['episodes']} episodes)")
    typer.echo(f"Pretrained elsewhere: {', '.join(VARIANTS)}, timm:<model name>; see docs/how-to/pretrained.md.")
    typer.echo("Learners that `fscl train` knows (base.learner.method):")
    for name, learner in base_learners().items():
        typer.echo(f"  {name}: {summary_of(learner)}")


@app.command()
def report(folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]) -> None:
    """Make the table and the HTML page of a run again."""
    from fscl.experiment.record import RunRecord

    _show(RunRecord(folder))


@app.command()
def compare(
    source: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run directory, or a file that `fscl summary` wrote.")
    ],
    other: Annotated[str, typer.Argument(metavar="METHOD|RUN", help="One of its methods, or another run.")],
    margin: Annotated[float, typer.Option(help="Points within which two methods are level.", min=0.01, max=100)] = 0.5,
) -> None:
    """Paired differences, judged: every method of a run minus METHOD, or a run minus another on the same sequences."""
    from rich.console import Console

    from fscl.report.compare import compare, print_comparison

    print_comparison(compare(source, other, margin=margin), Console())


@app.command()
def summary(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The JSON file to write.")],
) -> None:
    """The figures of a run in one small file, such as docs/results/omniglot-5w5s.json."""
    from fscl.report.summary import write_summary

    write_summary(folder, path)
    typer.echo(str(path))


@app.command()
def methods() -> None:
    """What can be compared."""
    from fscl.continual.registry import methods as all_methods

    width = max(map(len, all_methods()))
    for name, method in all_methods().items():
        typer.echo(f"{name:<{width}}  {method.summary}")


@app.command()
def show(method: Annotated[str, typer.Argument(help="A name from `fscl methods`.")]) -> None:
    """A method: what it does, where it comes from, its settings."""
    from fscl.continual.registry import find_method
    from fscl.storage import leaves

    found = find_method(method)
    source = f"\nSource: {found.source}" if found.source else ""
    typer.echo(f"{method}: {found.summary}{source}\nCode:   {found.module}")
    values = found.settings_in_force().model_dump(mode="json")
    if not values:
        typer.echo("Settings: none")
        return
    name = method if re.fullmatch(r"[A-Za-z0-9_-]+", method) else f'"{method}"'
    typer.echo(f"Settings (set them with settings.{name}.KEY=VALUE):")
    for key, value in leaves(values).items():
        typer.echo(f"  {key} = {value}")


for _name, _command in {**studies.COMMANDS, **model.COMMANDS, **ask.COMMANDS, **serve.COMMANDS}.items():
    app.command(_name)(_command)


@app.command()
def check(
    thing: Annotated[str, typer.Argument(metavar="MODEL|CONFIG", help="The folder of a model, or a configuration.")],
) -> None:
    """Verify every file of a model; or whether a configuration is valid, without running it."""
    if Path(thing).is_dir():
        if not ask.check_model_folder(Path(thing)):
            raise typer.Exit(1)
        return
    from fscl.experiment.config import load_plan

    plan = load_plan(thing)
    parts = ", ".join(config.name for config in plan.configs)
    typer.echo(f"{plan.name}: valid" + (f", with the parts {parts}" if len(plan.configs) > 1 else ""))


@data_app.command("list")
def data_list() -> None:
    """The data sets, and where they are."""
    from fscl.data.catalogue import data_set_names, find_data_set

    names = data_set_names()
    width = max(map(len, names))
    for name in names:
        try:
            data_set = find_data_set(name)
        except MisuseError as error:  # a broken plug-in, which the others are none the worse for
            typer.echo(f"{name:<{width}} cannot be used\n{'':<{width}} {error}")
            continue
        place = data_set.find() or f"not here; {data_set.how_to_get()}"
        typer.echo(f"{name:<{width}} {data_set.summary}\n{'':<{width}} {place}")


@data_app.command("info")
def data_info(name: str) -> None:
    """Load a data set, and say what its splits hold."""
    from fscl.data.catalogue import find_data_set, load_splits, read_options
    from fscl.experiment.progress import Reporter

    data_set = find_data_set(name)
    typer.echo(f"{name}: {data_set.summary}")
    needed = data_set.needed_keys()
    if needed:
        keys = " ".join(f"data.{key}={example}" for key, example in needed.items())
        typer.echo(f"Use it with data.name={name} {keys} in a configuration.")
        return
    with Reporter().stage(f"Loading {name}") as stage:
        splits = load_splits(read_options({"name": name}), stage.update)
    for split in ("train", "validation", "test"):
        pool = splits.pool(split)
        shape = "×".join(map(str, pool.image_shape))
        typer.echo(
            f"{split:<10} {len(pool):>5} classes, {len(pool.images):>6} images of {shape} ({pool.per_class}), "
            f"hash {pool.content_hash}"
        )


@data_app.command("fetch")
def data_fetch(name: str) -> None:
    """Download a data set into the cache; does nothing where it is there already."""
    from fscl.data.catalogue import find_data_set

    typer.echo(str(find_data_set(name).fetch()))


def _where(device: str | None, autocast: bool) -> list[str]:
    """The two options as the keys of a configuration that they stand for."""
    return [*([] if device is None else [f"device={device}"]), *(["autocast=true"] if autocast else [])]


def _run(
    config: "Config",
    folder: Path,
    workers: int | None,
    reuse: "Sequence[Path]" = (),
    executor: "str | Executor" = "local",
) -> None:
    from fscl.experiment.progress import Reporter
    from fscl.experiment.run import run_experiment

    with terminated_like_ctrl_c():
        record = run_experiment(config, folder, workers=workers, executor=executor, reporter=Reporter(), reuse=reuse)
    _show(record)


def _show(record: "RunRecord") -> None:
    from rich.console import Console

    from fscl.report.contents import TABLES
    from fscl.report.page import write_report
    from fscl.report.results import read_results
    from fscl.report.sentence import summary_sentence
    from fscl.report.table import make_table
    from fscl.report.writers.terminal import print_table

    typer.echo(f"Base: {record.about()['base']['summary']}")
    results, console = read_results(record), Console()
    print_table(make_table(TABLES[0], results), console)
    console.print(summary_sentence(results), markup=False, highlight=False)
    typer.echo(str(write_report(record)))


def main() -> None:
    """Run the command line; an expected error is one sentence on stderr."""
    try:
        app()
    except MisuseError as error:
        _fail(str(error), 2)
    except FsclError as error:
        _fail(str(error), 1)
    except SystemExit as error:
        if error.code != SIGNALLED:
            raise
        _fail("stopped.", 1)
    except OSError as error:
        _fail(f"cannot use {error.filename or 'a file'}: {error.strerror or error}.", 1)


def _fail(sentence: str, code: int) -> None:
    from fscl.data.names import printable

    rank = os.environ.get("RANK", "0")  # torchrun numbers its processes
    print(f"fscl{'' if rank == '0' else f', process {rank}'}: {printable(sentence)}", file=sys.stderr)
    sys.exit(code)
