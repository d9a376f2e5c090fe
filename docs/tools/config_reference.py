"""The pages of configurations: every key, from the schemas; every one that comes with the package, from its file."""

import re
import tomllib

from docs.tools.schema import rows, table
from docs.tools.site import Made


def config_pages() -> Made:
    """The two pages."""
    return {"reference/configuration.md": _keys(), "reference/configurations.md": _shipped()}, {}


def _keys() -> str:
    from fscl.data.catalogue import built_in_data_sets
    from fscl.data.stream import StreamSpec
    from fscl.evaluation.observer import find_observer, observer_names
    from fscl.evaluation.probe import ProbeSpec
    from fscl.experiment.config import BaseConfig, Config, RunConfig
    from fscl.meta.learners import base_learners, summary_of

    top = [row for row in rows(Config) if "." not in row[0] and row[0] not in ("data", "settings", "observe", "probes")]
    lines = [
        "# Configuration",
        "",
        "A configuration is a TOML file. `fscl run FILE key=value …` changes single keys, such as `stream.n_tasks=5`; a "
        'name with other signs than letters, digits and `_` stands in quotes: `settings."tsc@mine".slow_rate=0.1`. Every '
        "mistake is told at once, with the nearest known key. [The configurations that come with the "
        "package](configurations.md) are examples.",
        "",
        "## Top",
        "",
        *table(iter(top)),
    ]
    for title, text, part in (
        ("[stream]", "The tasks.", rows(StreamSpec, "stream.")),
        ("[run]", "What is compared, and on what.", rows(RunConfig, "run.")),
        (
            "[base]",
            "What every method starts from.",
            (row for row in rows(BaseConfig, "base.") if ".learner" not in row[0]),
        ),
    ):
        lines += ["", f"## `{title}`", "", text, "", *table(iter(part))]
    for name, learner in base_learners().items():
        lines += ["", f'### `[base.learner]` with `method = "{name}"`', "", f"{summary_of(learner)}", ""]
        lines += table(row for row in rows(learner, "base.learner.") if not row[0].endswith(".method"))
    lines += [
        "",
        "## `[data]` and `[base_data]`",
        "",
        "`[base_data]` is what the base is trained on, where that is another set.",
    ]
    for name, data_set in built_in_data_sets().items():
        lines += ["", f'### `name = "{name}"`', "", f"{data_set.summary} {data_set.Options.__doc__ or ''}".strip(), ""]
        lines += table(row for row in rows(data_set.Options, "data.") if row[0] != "data.name")
    lines += [
        "",
        "## `[probe]` and `[probes.NAME]`",
        "",
        "[Two-sided evaluation](../explanation/evaluation.md) says what they are for.",
        "",
    ]
    lines += table(rows(ProbeSpec, "probe."))
    for name in observer_names():
        lines += ["", f"## `[observe.{name}]`", "", *table(rows(find_observer(name).Settings, f"observe.{name}."))]
    lines += [
        "",
        "## `[settings.METHOD]`",
        "",
        "The settings of a method: [each has a page](methods/index.md). `[settings.all]` is for every method that has the "
        "key. A value that is set always counts.",
    ]
    return "\n".join(lines) + "\n"


def _shipped() -> str:
    from fscl.experiment.config import shipped_configs

    lines = [
        "# Configurations that come with the package",
        "",
        "`fscl run NAME` or, where it says so, `fscl train NAME`. `fscl check NAME` says whether one is valid; "
        "`run.n_sequences=1` gives a first look.",
        "",
        "| configuration | what it does |",
        "|---|---|",
    ]
    for name, text in shipped_configs().items():
        parts = tomllib.loads(text).get("parts", [])
        told = _header(text) + (f" Parts: {_parts(parts)}." if parts else "")
        lines.append(f"| `{name}` | {told} |")
    return "\n".join(lines) + "\n"


def _parts(parts: list[dict[str, str]]) -> str:
    return ", ".join(f"`{part.get('name', part['config'])}`" for part in parts)


def _header(text: str) -> str:
    """What a file says of itself: the first paragraph of its comments."""
    comment = re.match(r"(?:#[^\n]*\n)*", text)
    paragraphs = re.sub(r"^# ?", "", comment.group() if comment else "", flags=re.MULTILINE).split("\n\n")
    return " ".join(paragraphs[0].split()).replace("|", "\\|")
