"""How soon a command answers: what it imports, and the processor time beyond importing torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.classifier.models import classifier, examples

PROBE = """
import json, sys, time
import torch
before = time.process_time()
from fscl.cli import main
sys.argv = ["fscl", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code
seconds = time.process_time() - before
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}), file=sys.stderr)
"""
CAN_WAIT = ("matplotlib", "jinja2", "pooch", "onnx", "onnxruntime", "torch._dynamo", "sympy", "pillow_heif", "timm")
MOST_SECONDS = 2


@pytest.mark.parametrize("command", ["predict", "info"])
def test_a_command_needs_under_two_seconds_beyond_torch_and_no_library_that_it_does_not_use(
    command: str, tmp_path: Path
):
    classifier().fit(*examples(0, 1)).save(tmp_path / "model")
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(tmp_path / "a.png")
    asked = [str(tmp_path / "a.png")] if command == "predict" else []
    done = subprocess.run(
        [sys.executable, "-c", PROBE, command, str(tmp_path / "model"), *asked],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found = json.loads(done.stderr.splitlines()[-1])
    assert [name for name in CAN_WAIT if name in found["modules"]] == []
    assert found["seconds"] < MOST_SECONDS
