"""Base learners are plug-ins: one file, in the package or outside, found by name, by entry point or by reference."""

import json
from pathlib import Path

import pytest

from fscl.errors import ConfigError, MisuseError
from fscl.experiment.config import Config, make_config
from fscl.meta.base import EmbeddingLearner
from fscl.meta.learners import base_learners, find_learner, summary_of
from fscl.meta.maml import Maml
from fscl.meta.protonet import ProtoNet
from fscl.meta.shipped import load_base_with_details
from tests.children import FSCL, run_child

TOY = '''
"""A base learner of another package."""

from torch.nn.functional import cross_entropy, normalize

from fscl.meta.protonet import ProtoNet, prototype_scores


class Cosine(ProtoNet):
    """Meta-trains the embedding so that cosines to class means classify."""

    method: str = "toy-cosine"
    scale: float = 10.0

    def loss(self, spec, meta, episode, done=0.0):
        network = self.network(spec, meta)
        support, query = (network.features(network.to_input(part.images)) for part in (episode.support, episode.query))
        scores = self.feature_scores(support, episode.support.labels, query, episode.n_way)
        return cross_entropy(scores, episode.query.labels)

    def feature_scores(self, support, labels, query, n_way):
        return self.scale * prototype_scores(normalize(support), labels, normalize(query), n_way)
'''
REFERENCE = "toy_bases.cosine:Cosine"
EXPERIMENT = """
name = "toy"
base.network.width = 4
base.learner.scale = 5.0
base.train = {steps = 2, n_query = 2, validate_every = 2, validation_episodes = 2, test_episodes = 2}
stream = {n_tasks = 2, n_way = 2, n_shot = 2, n_query = 3}
run = {methods = ["prototypes", "head"], reference = "head", n_sequences = 2}
settings.all.steps = 3
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A folder with a package of one file, to be put on the path."""
    package = tmp_path / "site" / "toy_bases"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "cosine.py").write_text(TOY)
    (tmp_path / "toy.toml").write_text(EXPERIMENT)
    return package.parent


def install(site: Path, entry: str = f"toy-cosine = {REFERENCE}") -> None:
    """What pip would leave of a package that offers the learner."""
    about = site / "toy_bases-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-bases\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[fscl.bases]\n{entry}\n")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["by reference", "by entry point"])
def test_a_learner_of_another_package_is_trained_and_run_with_two_workers(how: str, toy: Path, tmp_path: Path):
    method = REFERENCE if how == "by reference" else "toy-cosine"
    if how == "by entry point":
        install(toy)
    path, config = {"PYTHONPATH": str(toy)}, str(tmp_path / "toy.toml")
    learner = {"method": method, "both_ways": False, "scale": 5.0}
    override = f"base.learner.method={method}"

    run_child([*FSCL, "train", config, override, "--out", tmp_path / "base"], env=path)
    about = load_base_with_details(tmp_path / "base" / "network.safetensors")[1]
    assert about["learner"] == learner
    assert about["summary"].startswith(f"{method} on glyphs, validation accuracy")

    ended = run_child([*FSCL, "run", config, override, "--workers", "2", "--out", tmp_path / "run"], env=path)
    assert f"meta-trained for this run: {method} on glyphs" in ended.stdout
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["base"]["learner"] == learner
    assert len((tmp_path / "run" / "cells.jsonl").read_text().splitlines()) == 4

    listed = run_child([*FSCL, "bases"], env=path).stdout
    sentence = "toy-cosine: Meta-trains the embedding so that cosines to class means classify."
    assert (sentence in listed) is (how == "by entry point")


def problems(learner: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        make_config({"base": {"learner": learner}})
    return str(caught.value)


def test_keys_and_values_are_checked_by_the_learner_that_is_named(toy: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(toy))
    for method in (REFERENCE, "maml"):
        assert "base.learner.scal: no such key." in problems({"method": method, "scal": 3})
    assert "Did you mean 'scale'?" in problems({"method": REFERENCE, "scal": 3})
    assert "base.learner.scale: input should be a valid number" in problems({"method": REFERENCE, "scale": "much"})
    both = problems({"method": "maml", "inner_steps": 0, "inner_rate": -1})
    assert "base.learner.inner_steps: input should be greater than or equal to 1" in both
    assert "base.learner.inner_rate: input should be greater than 0" in both


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("toy_bases.cosine:Cosin", "Did you mean 'Cosine'?"),
        ("no_such_package:Learner", "no module 'no_such_package'"),
        ("pathlib:Path", "pathlib:Path is no base learner"),
        ("fscl.meta.base:EmbeddingLearner", "is no base learner: it must be a subclass of fscl.meta.base.BaseLearner"),
        ("protonett", "there is no 'protonett'. Did you mean 'protonet'?"),
    ],
)
def test_a_name_that_leads_to_no_learner_is_one_line(
    method: str, sentence: str, toy: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(toy))
    message = problems({"method": method})
    assert "base.learner.method: " in message
    assert sentence in message
    assert len(message.splitlines()) == 2


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (f"maml = {REFERENCE}", "has the name of a base learner of fscl"),
        (f"other = {REFERENCE}", "whose `method` is 'toy-cosine'. Give both the same name."),
        ("toy-cosine = toy_bases.cosine:Sine", "the entry point 'toy-cosine' of the group 'fscl.bases' is broken"),
        ("toy-cosine = pathlib:Path", "pathlib:Path is no base learner"),
    ],
)
def test_an_entry_point_that_cannot_serve_is_named(
    entry: str, sentence: str, toy: Path, monkeypatch: pytest.MonkeyPatch
):
    install(toy, entry)
    monkeypatch.syspath_prepend(str(toy))
    with pytest.raises(MisuseError) as caught:
        base_learners()
    assert sentence in str(caught.value)


def test_every_value_in_force_is_serialised_and_read_back_as_the_same_learner():
    config = make_config({"base": {"learner": {"method": "maml", "inner_steps": 3}}})
    resolved = config.resolved()
    assert resolved["base"]["learner"] == Maml(inner_steps=3).model_dump(mode="json")
    assert Config.model_validate({"base": resolved["base"]}).base.learner == Maml(inner_steps=3)
    assert make_config({}).resolved()["base"]["learner"] == ProtoNet().model_dump(mode="json")


def test_the_learners_of_the_package_are_found_by_their_names_and_abstract_ones_are_not():
    learners = base_learners()
    assert list(learners) == ["ida", "maml", "maml++", "protonet", "supervised"]
    assert all(learner(method=name).method == name for name, learner in learners.items())
    assert EmbeddingLearner not in learners.values()
    assert all(summary_of(learner).endswith(".") for learner in learners.values())
    assert find_learner("maml") is Maml


def test_a_learner_bears_no_name_but_its_own():
    with pytest.raises(ValueError, match="Maml is named 'maml', not 'protonet'"):
        Maml(method="protonet")
