"""What the documentation says is what the library does."""

import re
from pathlib import Path

import pytest
import torch

from fscl.continual.base import ContinualLearner
from fscl.continual.methods import METHODS
from fscl.data.stream import StreamSpec, sample_stream
from fscl.evaluation.metrics import final_accuracy
from fscl.evaluation.protocol import evaluate_stream
from fscl.experiment.config import shipped_configs
from fscl.nets.network import NetworkSpec, init_network
from fscl.rng import generator
from tests.conftest import ROOT, noise_pool

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_readme_example_runs_as_it_is(capsys: pytest.CaptureFixture[str]):
    (block,) = python_blocks("README.md")
    exec(compile(block, "README.md", "exec"), {})
    curve = [float(number) for number in re.findall(r"\d\.\d+", capsys.readouterr().out)]
    assert len(curve) == 4
    assert curve[-1] > 0.75  # chance is 0.05


def test_the_example_of_adding_a_method_keeps_the_contract():
    names: dict[str, type[ContinualLearner]] = {}
    exec(compile(python_blocks("docs/adding-a-method.md")[1], "adding-a-method.md", "exec"), names)
    network = init_network(NetworkSpec(width=8, image_size=16), generator(0, "base"))
    learner = names["NearestExample"](network)  # type: ignore[call-arg]
    pool = noise_pool()
    stream = sample_stream(pool, StreamSpec(n_tasks=3, n_way=3, n_shot=3, n_query=5), generator(0, "stream"))
    assert final_accuracy(evaluate_stream(learner, stream, pool).top1) > 0.4
    again = names["NearestExample"](network)  # type: ignore[call-arg]
    again.restore(learner.state())
    assert torch.equal(again.predict(pool.images[:9]), learner.predict(pool.images[:9]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_architecture_page_lists_the_table_of_methods():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name, method in METHODS.items():
        if method.dials is not None:
            beta, k = f"{method.dials.slow_rate:g}", method.dials.embedding_steps
            assert f"| {name} | {beta} | {k} | " in text, name
        else:
            assert f"`{name}`" in text


def test_every_shipped_configuration_is_named_in_the_readme():
    text = (ROOT / "README.md").read_text()
    for name in shipped_configs():
        assert f"`{name}`" in text, name


def test_every_public_name_can_be_imported():
    import fscl

    for name in fscl.__all__:
        assert getattr(fscl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fscl.nothing
