"""The command that serves a model over HTTP. No logic."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fscl.errors import MisuseError

NEEDED = ("starlette", "uvicorn", "python_multipart")
INSTALL = "python -m pip install 'fscl[serve]'"


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model, or of one to be made.")],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: the first free one from 8420 on.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Open no browser.")] = False,
    purpose: Annotated[
        str | None, typer.Option("--for", metavar="photos|drawings", help="What a model that is made is for.")
    ] = None,
    token: Annotated[bool, typer.Option("--token", help="Only who has the token that is shown can ask.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nothing can be changed.")] = False,
    host: Annotated[
        str, typer.Option(help="The interface; another than this machine's own needs --token.")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="A Host that a proxy in front is reached by, such as teach.example.org.")
    ] = None,
) -> None:
    """A page to teach and ask a model, and an HTTP API, on this machine alone unless told otherwise."""
    _check_installed()
    from fscl.serve.run import Options, serve

    options = Options(
        port=port,
        host=host,
        names=tuple(name or ()),
        token=token,
        read_only=read_only,
        browser=not no_browser,
        purpose=purpose,
    )
    serve(model, options, _say)


def serve_demo(model: Path, *, port: int | None, no_browser: bool) -> None:
    """Serve a model of invented characters, made where it is not there yet."""
    _check_installed()
    from fscl.serve.demo import make_demo
    from fscl.serve.run import Options, serve

    if make_demo(model):
        _say(f"made {model}: six invented characters; 15 drawings wait in its inbox")
    serve(model, Options(port=port, browser=not no_browser), _say)


def _check_installed() -> None:
    missing = next((name for name in NEEDED if find_spec(name) is None), None)
    if missing is not None:
        raise MisuseError(f"{missing} is not installed, which serving needs; `{INSTALL}` gets it.")


def _say(line: str) -> None:
    print(line, flush=True)  # a program that started this waits for the address


COMMANDS: dict[str, Callable[..., None]] = {"serve": serve}
