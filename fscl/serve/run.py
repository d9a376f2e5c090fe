"""Starts the service: its address, its token, its browser."""

import errno
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from fscl.errors import MisuseError, StorageError
from fscl.process import configure_process
from fscl.serve.app import make_app
from fscl.serve.guard import ANY_HOST, Rules, own_hosts
from fscl.serve.service import Service
from fscl.serve.tokens import Tokens

DEFAULT_PORT = 8420
LOOPBACK = ("127.0.0.1", "::1", "localhost")
ANY = (ANY_HOST, "::")
N_PORTS = 20  # that are tried where none was asked for
MAX_CONNECTIONS = 500
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to serve.

    Attributes:
        port: to listen at; None for the first free one from 8420 on, 0 for any.
        host: the interface.
        names: Host headers that are allowed besides, such as teach.example.org: where a proxy stands in front.
        token: whether a token is needed; a must on other interfaces.
        read_only: whether nothing can be changed.
        browser: whether to open one.
        purpose: photos or drawings, for a model that is not there yet; None asks on the page.
    """

    port: int | None = None
    host: str = "127.0.0.1"
    names: Sequence[str] = field(default_factory=tuple)
    token: bool = False
    read_only: bool = False
    browser: bool = True
    purpose: str | None = None


def serve(folder: Path, options: Options, say: Say) -> None:
    """Serve a model until the process is told to end."""
    configure_process()
    _check(folder, options)
    service = Service(folder, read_only=options.read_only)
    if options.purpose is not None and not (folder / "model.json").exists():
        service.create(options.purpose)
        say(f"made {folder} for {options.purpose}")
    with _listening(options) as listening:
        port = listening.getsockname()[1]
        tokens, token = Tokens.made() if options.token else (None, None)
        names = frozenset(name.lower() for name in options.names)
        rules = Rules(own_hosts(port, host=options.host), names, tokens, options.read_only)
        address = f"http://{_in_address('127.0.0.1' if options.host in ANY else options.host)}:{port}/"

        def begun() -> None:
            say(f"fscl serves {folder} at {address}" + (" (read-only)" if options.read_only else ""))
            if options.host not in LOOPBACK:
                say("other machines can reach this; whoever has the token can read and change the model")
            if token is not None:
                say(f"token, shown this once: {token}")
            say("Ctrl-C ends it")
            if options.browser:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        service.start()
        server = _Server(make_app(service, rules), service, begun)
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Says when it has begun, and lets listeners go when it shall end, who would be waited for otherwise."""

    def __init__(self, app: ASGIApp, service: Service, begun: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                ws="none",
                lifespan="on",
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=3,
                h11_max_incomplete_event_size=64 * 1024,
            )
        )
        self._service = service
        self._begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and not self.should_exit:
            self._begun()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.hub.close()
        self.force_exit = self.should_exit  # the second time
        self.should_exit = True  # and the signal is not raised again: to be told to end is no failure


def _check(folder: Path, options: Options) -> None:
    if options.host not in LOOPBACK and not options.token:
        raise MisuseError(
            f"--host {options.host} lets other machines in; that needs --token, so that only those who have it can ask."
        )
    if options.host in ANY and not options.names:
        raise MisuseError(
            f"--host {options.host} has no name of its own; say by which names it will be reached, such as "
            "--name teach.example.org or --name 192.168.1.20:8420."
        )
    if options.names and not options.token:
        raise MisuseError("--name lets other machines in; that needs --token, so that only those who have it can ask.")
    if options.read_only and not (folder / "model.json").exists():
        raise MisuseError(f"{folder} is no model, and --read-only makes none; give the folder of a model.")
    if folder.is_file():
        raise MisuseError(f"{folder} is a file; give the folder of a model, or a new name.")


def _listening(options: Options) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    wanted = range(DEFAULT_PORT, DEFAULT_PORT + N_PORTS) if options.port is None else [options.port]
    for port in wanted:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((options.host, port))
        except OSError as error:
            listening.close()
            if error.errno == errno.EADDRINUSE and port != wanted[-1]:
                continue
            raise StorageError(
                f"cannot listen at {options.host} port {port}: {error.strerror}. Try another --port."
            ) from error
        return listening
    raise StorageError("no port is free.")


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host
