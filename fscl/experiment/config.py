"""Configuration: TOML files, checked as a whole, with every error at once.

Defaults < file < `key=value` overrides. A misspelt key or name is answered with the nearest known one.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from fscl.continual.learner import LearnerSettings, RunConditions
from fscl.continual.registry import find_method
from fscl.data.catalogue import DEFAULT, DataSpec, find_data_set
from fscl.data.stream import StreamSpec
from fscl.device import DeviceName
from fscl.errors import ConfigError, MisuseError, unknown_name
from fscl.evaluation.asking import Prediction
from fscl.evaluation.probe import ProbeSpec
from fscl.experiment.explain import explain
from fscl.experiment.method_settings import ALL, problems_with, settings_of
from fscl.experiment.observers import observers_in_force, problems_with_observers
from fscl.experiment.resources import Resources
from fscl.experiment.search.checks import problems_with_search
from fscl.experiment.search.spec import SearchSpec
from fscl.experiment.toml import apply_override, merged, read_toml
from fscl.experiment.toml import shipped_configs as shipped_configs  # people look for it here
from fscl.meta.base import BaseLearner
from fscl.meta.learners import read_learner
from fscl.meta.protonet import ProtoNet
from fscl.meta.train import TrainSpec
from fscl.nets.norm import NormName
from fscl.nets.trained import BackboneName, Scaling, check_width


def _known_method(name: str) -> str:
    try:
        find_method(name)
    except MisuseError as error:
        raise ValueError(str(error)) from error
    return name


def _known_section(name: str) -> str:
    return name if name == ALL else _known_method(name)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NetworkConfig(_Section):
    """The shape of the network; channels and image size come from the data.

    Attributes:
        backbone: the architecture.
        width: filters of its first block.
        norm: how it normalises; BatchNorm predicts with frozen statistics.
        scaling: of pixels: to 0 … 1, or by ImageNet's mean and deviation.
    """

    backbone: BackboneName = "conv4"
    width: int = Field(default=64, ge=1, le=1024)
    norm: NormName = "group"
    scaling: Scaling = "unit"

    @model_validator(mode="after")
    def _width_fits(self) -> "NetworkConfig":
        check_width(self.backbone, self.width)
        return self


class BaseConfig(_Section):
    """Where the base network comes from: `use` names a shipped one or a file; without it, one is meta-trained.

    Training begins at random, or (`start`) from the backbone of a shipped base or a file.

    Attributes:
        use: a base from `fscl bases`, or a .safetensors file; without it one is trained.
        start: a base whose backbone training begins from; without it at random.
        tail: how many of the first stages of a pretrained base are frozen; methods move the rest. Without it, nothing of
            such a base moves.
    """

    use: str | None = None
    tail: int | None = Field(default=None, ge=1)
    start: str | None = None
    network: NetworkConfig = NetworkConfig()
    learner: Annotated[SerializeAsAny[BaseLearner], BeforeValidator(read_learner)] = ProtoNet()
    train: TrainSpec = TrainSpec()

    @model_validator(mode="after")
    def _use_or_train(self) -> "BaseConfig":
        if self.use is None and self.tail is not None:
            raise ValueError(
                f"base.tail = {self.tail} freezes the first stages of a pretrained base, so base.use must name one, such as "
                "'efficientnet_lite0'"
            )
        unused = sorted(self.model_fields_set - {"use", "tail"})
        if self.use is not None and unused:
            raise ValueError(
                f"base.use = {self.use!r} brings a trained network, so base.{unused[0]} has no effect; remove one"
            )
        return self


ProbeName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]


class RunConfig(_Section):
    """What to compare, on how many sequences, drawn from which side.

    Attributes:
        methods: names from `fscl methods`; "tsc@k=20" is tsc under a name of its own, for settings of its own.
        reference: the method that tables take differences to.
        n_sequences: how many streams, each of other classes.
        split: "test" to report; "validation" to choose settings.
        preset: "paper" takes every step; in "quick" the embedding stands still for the rest of a task once its cross-entropy
            is below 0.05, and the head learns on.
        prediction: "inductive" answers every test image alone. Where a published method does not, "transductive-mixed" and
            "transductive-sorted" normalise them together, in batches over all classes or of one class each; every heading
            then says so.
        at_classes: numbers of classes learned at which the table shows the accuracy, besides the end; those that come.
        resources: what a cell takes of a cluster; no part of what a run is.
    """

    methods: tuple[Annotated[str, AfterValidator(_known_method)], ...] = ("tsc", "joint", "replay", "prototypes")
    reference: Annotated[str, AfterValidator(_known_method)] = "joint"
    n_sequences: int = Field(default=20, ge=1, le=1000)
    split: Literal["validation", "test"] = "test"
    preset: Literal["paper", "quick"] = "paper"
    prediction: Prediction = "inductive"
    at_classes: tuple[Annotated[int, Field(ge=1)], ...] = ()
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _methods_once(self) -> "RunConfig":
        if not self.methods:
            raise ValueError("methods is empty; name at least one")
        if len(set(self.methods)) != len(self.methods):
            raise ValueError("methods names a method twice")
        return self


class Config(_Section):
    """One experiment.

    Attributes:
        name: of the run directory.
        seed: of every random number.
        data: what the streams are drawn from.
        base_data: what the base is trained and chosen on, and probed on as *base*, if that is another set.
        probe: fresh problems along the stream (evaluation/probe.py); the one that figures show.
        probes: more of them in the same run, by name, such as of other ways and shots or learned in another way.
        observe: what looks inside methods on the first sequence, by name, with its settings (fscl/analysis).
        device: where everything is computed; last bits differ from device to device.
        autocast: whether features are bfloat16 in meta-training and while embeddings move, where torch thinks it safe.
        search: which settings to try on validation classes, for `fscl search` alone.
        chosen_by: the search that chose the settings, and its trial; `fscl search` writes it.
    """

    name: str = Field(default="experiment", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    seed: int = Field(default=0, ge=0)
    device: DeviceName = "cpu"
    autocast: bool = False
    data: DataSpec = DEFAULT.Options()
    base_data: DataSpec | None = None
    base: BaseConfig = BaseConfig()
    stream: StreamSpec = StreamSpec()
    run: RunConfig = RunConfig()
    probe: ProbeSpec | None = None
    probes: dict[ProbeName, ProbeSpec] = {}
    observe: dict[str, dict[str, Any]] = {}
    settings: dict[Annotated[str, AfterValidator(_known_section)], dict[str, Any]] = {}
    search: SearchSpec | None = None
    chosen_by: str | None = Field(default=None, max_length=200)

    @model_validator(mode="after")
    def _base_data_has_a_use(self) -> "Config":
        if self.base_data is not None and self.base.use is not None and not self.all_probes:
            raise ValueError(
                f"base.use = {self.base.use!r} brings a trained network and nothing is probed, so base_data has no effect; "
                "remove one"
            )
        return self

    @model_validator(mode="after")
    def _published_sessions_are_one_stream(self) -> "Config":
        if not find_data_set(self.data.name).published_stream:
            return self
        if self.run.n_sequences != 1 or self.run.split != "test":
            raise ValueError(
                f"data.name = {self.data.name!r} has one published stream, on its test side: run.n_sequences must be 1 "
                f"and run.split 'test', but they are {self.run.n_sequences} and {self.run.split!r}"
            )
        return self

    @model_validator(mode="after")
    def _probes_come(self) -> "Config":
        """Moments after the end are left out, so that a shorter stream needs no other change; some must be left."""
        for name, probe in self.all_probes.items():
            if not any(0 <= moment <= self.stream.n_tasks for moment in probe.after):
                section = f"probes.{name}" if name else "probe"
                raise ValueError(
                    f"{section}.after is {list(probe.after)}, but a stream has 0 to {self.stream.n_tasks} tasks behind it"
                )
        return self

    @property
    def all_probes(self) -> dict[str, ProbeSpec]:
        """By name; that of the section `[probe]` has an empty one."""
        return ({} if self.probe is None else {"": self.probe}) | self.probes

    @property
    def base_side(self) -> DataSpec:
        """What the base is trained on."""
        return self.data if self.base_data is None else self.base_data

    @property
    def conditions(self) -> RunConditions:
        """What this run asks of every method."""
        return RunConditions(
            early_stop=self.run.preset == "quick",
            classes_return=self.stream.setting == "new_instance",
            autocast=self.autocast,
        )

    def settings_of(self, method: str) -> LearnerSettings:
        """The settings of a method here, every one of them."""
        return settings_of(method, self.settings, self.conditions)

    def resolved(self) -> dict[str, Any]:
        """Every value in force, as JSON."""
        content = self.model_dump(mode="json", exclude={"settings": True, "search": True, "run": {"resources"}})
        if self.chosen_by is None:
            del content["chosen_by"]
        if self.base.use is not None:
            content["base"] = {key: content["base"][key] for key in ("use", "tail")}
        if self.base.tail is None:
            del content["base"]["tail"]
        content["settings"] = {method: self.settings_of(method).model_dump(mode="json") for method in self.run.methods}
        return content


def load_config(name_or_path: str, overrides: Iterable[str] = ()) -> Config:
    """A shipped configuration by name, or a TOML file by path, with `key=value` overrides."""
    content = read_toml(name_or_path)
    if "parts" in content:
        raise ConfigError(f"{name_or_path} stands for several configurations, for `fscl run`; here one is needed.")
    for override in overrides:
        apply_override(content, override)
    return make_config(content, source=name_or_path)


@dataclass(frozen=True)
class Plan:
    """What one name stands for: a configuration, or several that belong together."""

    name: str
    configs: tuple[Config, ...]

    def folders(self, out: Path | None = None, part: str | None = None) -> list[tuple[Config, Path]]:
        """Where each goes: one configuration, or one `part` alone, into `out`; several into folders of their own there."""
        named = {config.name: config for config in self.configs}
        if part is not None and part not in named:
            raise unknown_name(f"part of {self.name}", part, named)
        if part is not None and out is not None:
            return [(named[part], out)]
        chosen, place = self.configs if part is None else (named[part],), out or Path("runs") / self.name
        return [(config, place if len(self.configs) == 1 else place / config.name) for config in chosen]


def load_plan(name_or_path: str, overrides: Iterable[str] = ()) -> Plan:
    """As `load_config`; a file with `parts` stands for all of them, each with the same overrides.

    A part is a table: the configuration that it is (`config`), and the keys in which it differs.
    """
    content = read_toml(name_or_path)
    if "parts" not in content:
        config = load_config(name_or_path, overrides)
        return Plan(config.name, (config,))
    parts = content["parts"]
    if content.keys() != {"name", "parts"} or not _are_parts(parts):
        raise ConfigError(
            f"{name_or_path} has parts, so it needs a name, parts that are tables with config and name, and nothing else."
        )
    if len({part["name"] for part in parts}) < len(parts):
        raise ConfigError(f"{name_or_path} has two parts of the same name; each needs its own.")
    given = list(overrides)
    return Plan(str(content["name"]), tuple(_part(dict(part), given) for part in parts))


def _are_parts(parts: object) -> bool:
    return isinstance(parts, list) and all(
        isinstance(part, dict) and {"config", "name"} <= part.keys() for part in parts
    )


def _part(part: dict[str, Any], overrides: list[str]) -> Config:
    source = str(part.pop("config"))
    content = merged(read_toml(source), part)
    for override in overrides:
        apply_override(content, override)
    return make_config(content, source=f"{part['name']}, a part made from {source},")


def make_config(content: Mapping[str, Any], *, source: str = "configuration") -> Config:
    """A checked configuration, or one ConfigError that names everything wrong with it."""
    try:
        config = Config.model_validate(content)
    except ValidationError as error:
        problems = [explain(problem, Config) for problem in error.errors()]
        problems += problems_with(_known_sections(content), RunConfig().methods, RunConditions())
    else:
        problems = list(problems_with(config.settings, config.run.methods, config.conditions))
        problems += problems_with_observers(config.observe, config.stream.n_tasks)
        problems += problems_with_search(config.search, config.run, config.settings, config.conditions)
        if not problems:
            return config.model_copy(update={"observe": observers_in_force(config.observe)})
    problems = list(dict.fromkeys(problems))
    count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
    raise ConfigError(f"{source} has {count}:\n" + "\n".join(f"  - {line}" for line in problems))


def _known_sections(content: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The settings that can be checked although something else is wrong: those of methods that there are."""
    sections = content.get("settings")
    given = sections if isinstance(sections, Mapping) else {}
    known = {}
    for name, values in given.items():
        with suppress(ValueError):
            known[_known_section(name)] = values
    return {name: values for name, values in known.items() if isinstance(values, Mapping)}
