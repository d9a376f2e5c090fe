"""What all pages share: their look, their script, and a head that lets them load nothing from anywhere."""

import base64
import hashlib
import re
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup


def render_in_shell(template: str, *, title: str, **values: Any) -> str:
    """A page whose body is a template of this folder.

    Args:
        template: the name of its file.
        title: of the window.
        values: what the template names.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["typeset"] = typeset
    body = environment.from_string(_file(template)).render(**values)
    script = page_script()
    shell = environment.from_string(_file("shell.html.j2"))
    escaped = Markup(body)  # by the environment above  # nosec B704
    return shell.render(title=title, style=page_style(), script=script, script_hash=script_hash(script), body=escaped)


def page_style() -> Markup:
    """The style sheet."""
    return Markup(_file("page.css"))  # a file of the package  # nosec B704


def page_script() -> Markup:
    """The script: tables that sort, and what places of a figure say."""
    return Markup(_file("page.js"))  # a file of the package  # nosec B704


def script_hash(script: str) -> str:
    """For the policy of a page, which allows this script and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def typeset(text: str) -> str:
    """A true minus before digits, and a dash for what is missing."""
    return re.sub(r"-(?=\d)", "−", text).replace("-", "–")


def _file(name: str) -> str:
    return (files("fscl.report") / name).read_text("utf-8")
