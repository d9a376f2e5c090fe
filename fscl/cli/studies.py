"""Commands for more than one run: searches, studies, and what trackers get of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fscl.cli.opening import terminated_like_ctrl_c
from fscl.cli.placing import Address, CpuLevel, ExecutorName, SendData, chosen_executor

Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as search.trials=12.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes, one thread each. Default: the number of cores; on a GPU, 1.")
]
Out = Annotated[Path | None, typer.Option(help="The folder to write to.")]


def search(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A configuration with a table [search], by name or as a .toml file.")
    ],
    overrides: Overrides = None,
    out: Out = None,
    workers: Workers = None,
    executor: ExecutorName = "local",
    address: Address = None,
    send_data: SendData = False,
    cpu_level: CpuLevel = None,
) -> None:
    """Choose settings on validation classes. A killed search is continued by the same command, with the same winner."""
    where = chosen_executor(executor, address=address, send_data=send_data, cpu_level=cpu_level)
    from fscl.experiment.config import load_plan
    from fscl.experiment.progress import Reporter
    from fscl.experiment.search.driver import run_search
    from fscl.experiment.search.spec import SearchSpec
    from fscl.report.search_page import search_sentence, write_search_page

    plan = load_plan(config, overrides or [])
    for each, folder in plan.folders(out or Path("searches") / plan.name):
        with terminated_like_ctrl_c():
            record = run_search(each, folder, workers=workers, executor=where, reporter=Reporter())
        typer.echo(search_sentence(SearchSpec.model_validate(record.about()["search"]), record.trials()))
        typer.echo(str(record.winner_path))
        typer.echo(str(write_search_page(record)))


def study(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The .toml file of a study.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="For every run and base, such as seed=1.")
    ] = None,
    out: Out = None,
    workers: Workers = None,
    executor: ExecutorName = "local",
    address: Address = None,
    send_data: SendData = False,
    cpu_level: CpuLevel = None,
) -> None:
    """Train bases and make runs with them, as one piece of work. A killed study is continued by the same command."""
    where = chosen_executor(executor, address=address, send_data=send_data, cpu_level=cpu_level)
    from fscl.experiment.progress import Reporter
    from fscl.experiment.record import RunRecord
    from fscl.experiment.study.driver import StudyRecord, run_study
    from fscl.experiment.study.spec import load_study
    from fscl.report.page import write_report
    from fscl.report.study_page import write_index

    asked = load_study(file, overrides or [])
    record = StudyRecord(out or Path("studies") / asked.name)

    def finished(run: RunRecord) -> None:
        write_report(run)
        write_index(asked, record, file)

    with terminated_like_ctrl_c():
        run_study(asked, record.folder, workers=workers, executor=where, reporter=Reporter(), on_run=finished)
    typer.echo(str(write_index(asked, record, file)))


def track(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, finished or not.")],
    to: Annotated[str, typer.Option("--to", metavar="tensorboard|mlflow|wandb", help="Where it shall be shown.")],
    store: Annotated[
        str | None,
        typer.Option(help="A folder; for mlflow also the address of a server or database. Default: in RUN."),
    ] = None,
) -> None:
    """Show a run in a tracker, any time and as often as you like: what it has already is not sent again."""
    from fscl.experiment.record import RunRecord
    from fscl.report.track import track_run

    tracked = track_run(RunRecord(folder), to, store)
    typer.echo(f"{tracked.n_new} of {tracked.n_cells} cells were new to {to}.")
    typer.echo(tracked.place)


COMMANDS: dict[str, Callable[..., None]] = {"search": search, "study": study, "track": track}
