"""Configuration: everything wrong at once, with the nearest right word."""

from pathlib import Path
from typing import Any

import pytest

from fscl.continual.consolidation import Consolidation
from fscl.continual.consolidation_settings import EARLY_STOP_LOSS
from fscl.continual.generator import QUICK_GENERATOR
from fscl.continual.memory import GeneratedImages
from fscl.continual.registry import make_learner, methods
from fscl.errors import ConfigError, MisuseError
from fscl.experiment.config import Config, load_config, load_plan, make_config, shipped_configs
from fscl.testing import small_base


def consolidation(config: Config, method: str) -> Consolidation.Settings:
    settings = config.settings_of(method)
    assert isinstance(settings, Consolidation.Settings)
    return settings


def problems(content: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        make_config(content)
    return str(caught.value).splitlines()[1:]


@pytest.mark.parametrize("name", shipped_configs())
def test_every_shipped_configuration_is_valid_and_bears_its_own_name(name: str):
    assert load_plan(name).name == name


def test_all_errors_are_named_at_once_with_suggestions():
    found = problems(
        {
            "sed": 3,
            "stream": {"n_ways": 5, "n_tasks": 0},
            "run": {"methods": ["tsc", "jiont"]},
            "data": {"name": "omniglto"},
            "base": {
                "learner": {"method": "maml", "inner_step": 3},
                "train": {"step": 1},
                "network": {"backbone": "resnet18", "width": 4},
            },
            "settings": {
                "tsc": {"regulariser": {"strenght": 0.1}, "slow_rate": 2},
                "prototypes": {"steps": 3},
                "all": {"learning_rate": float("inf"), "betas": [0.5, 2.0]},
                "fsw": {"embedding_steps": -5},
                "al": {},
            },
        }
    )
    text = "\n".join(found)
    assert len(found) == 16
    for part in (
        "sed: no such key. Did you mean 'seed'?",
        "stream.n_ways: no such key. Did you mean 'n_way'?",
        "stream.n_tasks: input should be greater than or equal to 1",
        "no method named 'jiont'. Did you mean 'joint'?",
        "inner_step: no such key. Did you mean 'inner_steps'?",
        "base.train.step: no such key. Did you mean 'steps'?",
        "settings.tsc.regulariser.strenght: no such key. Did you mean 'strength'?",
        "settings.tsc.slow_rate: input should be less than or equal to 1",
        "settings.prototypes.steps: no such key.",
        "data.name: no data set named 'omniglto'. Did you mean 'omniglot'? Known: birds, cars, cub, folder, glyphs, ",
        "settings.all.learning_rate: input should be a finite number",
        "settings.all.betas.1: input should be less than 1",
        "settings.fsw.embedding_steps: input should be greater than or equal to 0",
        "settings.al: no method named 'al'",
        "base.network: resnet18 needs a width of at least 8",
    ):
        assert part in text


def test_overrides_beat_the_file_and_the_file_beats_the_defaults(tmp_path: Path):
    (tmp_path / "c.toml").write_text('[stream]\nn_way = 3\nn_shot = 2\n[run]\nmethods = ["tsc"]\nreference = "tsc"\n')
    config = load_config(
        str(tmp_path / "c.toml"),
        ["stream.n_way=4", 'run.methods=["head", "fsw"]', "run.reference=head", "settings.all.steps=7"],
    )
    assert (config.stream.n_way, config.stream.n_shot, config.stream.n_query) == (4, 2, 15)
    assert config.run.methods == ("head", "fsw")
    assert config.run.reference == "head"
    settings = consolidation(config, "head")
    assert (settings.steps, settings.embedding_steps) == (7, 0)


def test_settings_of_a_method_beat_those_of_all_and_leave_the_table_alone():
    config = make_config({"settings": {"all": {"steps": 50, "regulariser": {"strength": 1.0}}, "tsc": {"steps": 60}}})
    tsc, joint = consolidation(config, "tsc"), consolidation(config, "joint")
    assert (tsc.steps, tsc.regulariser.strength, tsc.regulariser.kind) == (60, 1.0, "tagging")
    assert (joint.steps, joint.slow_rate, joint.regulariser.kind) == (50, 0.0, "none")
    assert methods()["tsc"].settings_in_force().model_dump()["steps"] == 500
    assert config.settings_of("prototypes").model_dump() == {}


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (
            {"all": {"stepps": 5}},
            "settings.all.stepps: no method has such a setting. Did you mean 'steps'?",
        ),
        ({"all": {"regulariser": {"slope": 5}}}, "settings.all.regulariser.slope: no method has such"),
        ({"tsc": {"stepps": 5}}, "settings.tsc.stepps: no such key. Did you mean 'steps'?"),
        ({"tsc@k=1": {"steps": 0}}, 'settings."tsc@k=1".steps: input should be greater than or equal to 1'),
        ({"tsc": {"memory": "shot"}}, "settings.tsc.memory.kind: there is no 'shot'. Did you mean 'shots'?"),
        ({"tsc": {"regulariser": {"gate_slop": 1}}}, "settings.tsc.regulariser.gate_slop: no such key. Did you mean"),
        ({"joint": {"regulariser": {"strength": 1}}}, "settings.joint.regulariser.strength: no such key."),
        ({"prototypes": {"steps": 3}}, "settings.prototypes.steps: no such key."),
        ({"projection": {"n_projected": 0}}, "settings.projection.n_projected: input should be greater than"),
    ],
)
def test_settings_that_a_method_does_not_have_are_refused_by_name(section: dict[str, Any], line: str):
    (problem,) = problems({"settings": section})
    assert problem.startswith(f"  - {line}")


def test_a_value_that_is_set_counts_even_where_it_equals_a_default_that_the_method_overrides():
    """Each of them is a default of the schema that the method's own settings differ from."""
    given = {
        "slow_rate": 0.01,
        "embedding_steps": 100,
        "stop_loss": 0.0,
        "jitter": 0.0,
        "views": 1,
        "head_rate": "same",
    }
    config = make_config({"settings": {"tsc": {**given, "objective": "cross_entropy", "regulariser": "none"}}})
    in_force = config.resolved()["settings"]["tsc"]
    assert {key: in_force[key] for key in given} == given
    assert (in_force["objective"]["kind"], in_force["regulariser"]) == ("cross_entropy", {"kind": "none"})
    photographs = load_config("mini-5w5s", ["settings.tsc.mirror=false", "settings.tsc.statistics=replay"])
    tsc = consolidation(photographs, "tsc")
    assert (tsc.mirror, tsc.statistics) == (False, "replay")  # of settings.all they are true and "base"
    learner = make_learner("tsc", small_base(), settings=photographs.settings_of("tsc"))
    assert learner.settings == tsc


def test_a_resolved_configuration_is_the_same_configuration():
    config = load_config("glyphs-quick")
    assert Config.model_validate(config.resolved()).resolved() == config.resolved()


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("stream.n_way", "not of the form key=value"),
        ("=3", "not of the form"),
        ("seed.deep=3", "a value and not a section"),
    ],
)
def test_a_malformed_override_is_refused(override: str, reason: str, tmp_path: Path):
    (tmp_path / "c.toml").write_text("seed = 1\n")
    with pytest.raises(ConfigError, match=reason):
        load_config(str(tmp_path / "c.toml"), [override])


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"seed = ", "not valid TOML"), (b"\xff\xfe", "not text in UTF-8"), (b"x = 1\n" * 200_000, "a small TOML file")],
)
def test_a_broken_file_is_refused_by_name(content: bytes, reason: str, tmp_path: Path):
    (tmp_path / "c.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as caught:
        load_config(str(tmp_path / "c.toml"))
    assert "c.toml" in str(caught.value)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no configuration named 'glyphs-quik'\. Did you mean 'glyphs-quick'\?"):
        load_config("glyphs-quik")
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        load_config("missing.toml")


def test_a_base_learner_that_does_not_exist_is_answered_with_the_nearest():
    assert problems({"base": {"learner": {"method": "mamll"}}}) == [
        "  - base.learner.method: there is no 'mamll'. Did you mean 'maml'? Known: aan, anml, apl, gemcl, ida, maml, "
        "maml++, oml, protonet, supervised; or package.module:Class."
    ]
    assert "base.learner.method: is needed" in problems({"base": {"learner": {"inner_steps": 3}}})[0]


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000, "5\nseed=3"])
def test_an_override_that_toml_cannot_read_is_taken_as_a_word_and_refused(value: str):
    with pytest.raises(ConfigError, match=r"stream\.n_tasks: "):
        load_config("glyphs-quick", [f"stream.n_tasks={value}"])


def test_new_instances_are_learned_without_replay_unless_it_is_asked_for():
    config = make_config(
        {"stream": {"setting": "new_instance"}, "settings": {"head": {"memory": {"kind": "bounded", "per_class": 3}}}}
    )
    memory = {method: config.settings_of(method).model_dump().get("memory", {}).get("kind") for method in methods()}
    assert memory["tsc"] == memory["fsw"] == memory["sequential"] == "none"
    assert memory["joint"] == memory["replay"] == memory["naive"] == "shots"
    assert memory["gr"] == "generated"
    assert memory["head"] == "bounded"
    assert memory["prototypes"] is None


def test_settings_that_would_have_no_effect_are_refused():
    assert "has no effect" in problems({"base": {"use": "x", "train": {"steps": 3}}})[0]
    assert "names a method twice" in problems({"run": {"methods": ["tsc", "tsc"]}})[0]


def test_a_data_set_takes_its_own_keys_alone():
    assert problems({"data": {"name": "glyphs", "split": "paper"}}) == [
        "  - data.split: no such key. Known here: image_size, name."
    ]
    assert problems({"data": {"name": "cub", "spilt": "few-shot", "image_size": 8}}) == [
        "  - data.image_size: input should be greater than or equal to 16",
        "  - data.spilt: no such key. Did you mean 'split'?",
    ]
    assert problems({"base_data": {"name": "tiered-imagenet", "channels": 3}}) == [
        "  - base_data.channels: no such key. Known here: image_size, images_per_class, name, path."
    ]
    assert problems({"data": {"name": "cub", "split": "few-shots"}}) == [
        "  - data.split: input should be 'fscl', 'fscl-not-imagenet' or 'few-shot'. Did you mean 'few-shot'?"
    ]
    assert problems({"data": {"name": "folder"}}) == [
        "  - data.path: is needed: a folder with one sub-folder a class, or with train/val/test"
    ]
    assert "data: " in problems({"data": "omniglot"})[0]


def test_the_record_has_every_option_of_the_data_set_and_no_others():
    config = make_config({"data": {"name": "omniglot"}, "base_data": {"name": "cub", "path": "birds"}})
    content = config.resolved()
    assert content["data"] == {"name": "omniglot", "image_size": 32, "split": "paper"}
    assert content["base_data"] == {"name": "cub", "image_size": 64, "path": "birds", "split": "fscl"}
    again = Config.model_validate(content)
    assert (again.data, again.base_data) == (config.data, config.base_data)


def test_a_variant_is_a_method_under_a_name_of_its_own():
    config = make_config(
        {
            "run": {"methods": ["fsw", "fsw@k=20"], "reference": "fsw"},
            "settings": {"all": {"steps": 50}, "fsw": {"slow_rate": 0.5}, "fsw@k=20": {"embedding_steps": 20}},
        }
    )
    plain, variant = consolidation(config, "fsw"), consolidation(config, "fsw@k=20")
    assert (plain.embedding_steps, plain.slow_rate, plain.steps) == (100, 0.5, 50)
    assert (variant.embedding_steps, variant.slow_rate, variant.steps) == (20, 0.5, 50)
    assert Config.model_validate(config.resolved()).resolved() == config.resolved()
    assert "no method named 'fws'" in problems({"run": {"methods": ["fws@k=20"]}})[0]
    assert "needs a label of letters" in problems({"run": {"methods": ["tsc@a b"]}})[0]
    assert "no such key" in problems({"settings": {"prototypes@x": {"steps": 3}}})[0]


def test_a_variant_can_be_set_in_quotes_on_the_command_line():
    overrides = ['run.methods=["fsw@beta=0.001"]', "run.reference=fsw", 'settings."fsw@beta=0.001".slow_rate=0.001']
    settings = consolidation(load_config("glyphs-quick", overrides), "fsw@beta=0.001")
    assert settings.slow_rate == 0.001


def test_setting_one_value_of_the_generator_leaves_the_others():
    config = load_config("glyphs-quick", ["settings.gr.memory.generator.steps=7"])
    memory = consolidation(config, "gr").memory
    assert isinstance(memory, GeneratedImages)
    assert memory.generator == QUICK_GENERATOR.model_copy(update={"steps": 7})


def test_a_quick_run_stops_at_convergence_and_the_record_says_so():
    quick, paper = (make_config({"run": {"preset": preset}}) for preset in ("quick", "paper"))
    stops = {method: (consolidation(quick, method), consolidation(paper, method)) for method in ("joint", "tsc")}
    for method, (hasty, patient) in stops.items():
        assert (hasty.stop_loss == patient.stop_loss) == (method == "tsc")  # which is not trained by cross-entropy
    assert quick.resolved()["run"]["preset"] == "quick"
    assert quick.resolved()["settings"]["joint"]["stop_loss"] == EARLY_STOP_LOSS


def test_a_plan_is_its_parts_each_with_the_same_overrides(tmp_path: Path):
    (tmp_path / "one.toml").write_text('name = "one"\n[run]\nmethods = ["tsc"]\nn_sequences = 4\n')
    plan = tmp_path / "both.toml"
    path = (tmp_path / "one.toml").as_posix()
    plan.write_text(
        f'name = "both"\n[[parts]]\nconfig = "{path}"\nname = "first"\nrun.n_sequences = 7\n'
        f'[[parts]]\nconfig = "{path}"\nname = "second"\nbase.use = "glyphs-protonet-conv4"\n'
    )
    first, second = load_plan(str(plan), ["seed=3"]).configs
    assert (first.name, first.run.n_sequences, first.run.methods, first.seed) == ("first", 7, ("tsc",), 3)
    assert (second.name, second.run.n_sequences, second.base.use) == ("second", 4, "glyphs-protonet-conv4")
    folders = [folder for _, folder in load_plan(str(plan)).folders()]
    assert folders == [Path("runs/both/first"), Path("runs/both/second")]
    assert load_plan(str(plan)).folders(Path("out"))[0][1] == Path("out/first")
    assert load_plan(path).folders(Path("out"))[0][1] == Path("out")
    assert load_plan(path).folders()[0][1] == Path("runs/one")
    for out, expected in ((None, "runs/both/second"), (Path("out"), "out")):
        ((config, folder),) = load_plan(str(plan)).folders(out, "second")
        assert (config.name, folder) == ("second", Path(expected))
    with pytest.raises(MisuseError, match=r"no part of both named 'secnd'\. Did you mean 'second'\?"):
        load_plan(str(plan)).folders(Path("out"), "secnd")
    with pytest.raises(ConfigError, match="stands for several configurations"):
        load_config(str(plan))
    plan.write_text(plan.read_text().replace("second", "first"))
    with pytest.raises(ConfigError, match="two parts of the same name"):
        load_plan(str(plan))
    plan.write_text('name = "both"\nparts = ["one"]\n')
    with pytest.raises(ConfigError, match="parts that are tables with config and name"):
        load_plan(str(plan))


@pytest.mark.parametrize("section", ["probe"])
def test_a_misspelt_key_of_a_section_that_may_be_left_out_is_named(section: str):
    assert f"{section}.bogus: no such key. Known here:" in problems({section: {"bogus": 1}})[0]
    assert f"{section}: " in problems({section: 3})[0]


def test_natural_images_are_64_pixels_wide_unless_told_and_the_others_32():
    sizes = {
        name: make_config({"data": {"name": name, **({"path": "x"} if name == "folder" else {})}}).data.image_size
        for name in ("glyphs", "omniglot", "folder", "mini-imagenet", "cub", "tiered-imagenet")
    }
    assert sizes == dict(zip(sizes, [32, 32, 32, 64, 64, 64], strict=True))
    assert make_config({"data": {"name": "cub", "image_size": 84}}).data.image_size == 84
    assert make_config({}).data.image_size == 32
