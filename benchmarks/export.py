"""An exported classifier beside its bare backbone, all run by onnxruntime on one thread.

    python benchmarks/export.py

The classifier has 50 classes of noise on EfficientNet-Lite0. The backbone is exported alone twice, as torch writes it: on
float pictures that somebody has normalised already, and on uint8 pixels, which it normalises itself. The classifier's file
takes pixels, too, and adds the head, the temperature and the unknown score. Runs take turns, and a ratio of speeds is the
median over turns, in seconds of the processor.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

import fscl
from fscl.classifier.export import onnx_bytes

N_CLASSES, N_SHOT = 50, 2


def session(content: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def seconds(job: Callable[[], object]) -> float:
    """Of the processor, which a busy machine stretches less than those of the clock."""
    begin = time.process_time()
    job()
    return time.process_time() - begin


class FromPixels(nn.Module):
    """A base from uint8 pixels to features."""

    def __init__(self, base: fscl.Network) -> None:
        super().__init__()
        self.base = base

    def forward(self, pixels: Tensor) -> Tensor:
        return self.base.embed(pixels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="prototypes", help="of the classifier")
    parser.add_argument("--turns", type=int, default=60, help="for each number of pictures")
    given = parser.parse_args()
    fscl.configure_process()
    base = fscl.load_base("efficientnet_lite0")
    X = np.random.default_rng(0).integers(0, 256, (N_CLASSES * N_SHOT, 3, 224, 224), dtype=np.uint8)
    model = fscl.ContinualClassifier(base, given.method).fit(X, np.repeat(np.arange(N_CLASSES), N_SHOT))
    pixels, floats = torch.zeros(2, 3, 224, 224, dtype=torch.uint8), torch.zeros(2, 3, 224, 224)
    bare = session(onnx_bytes(base.module, floats, input_name="x", outputs=["features"]))
    scaled = session(onnx_bytes(FromPixels(base), pixels, input_name="x", outputs=["features"]))
    with tempfile.TemporaryDirectory() as folder:
        whole = session(model.export(Path(folder) / "model.onnx").path.read_bytes())
    for n in (1, 8):
        x = ((X[:n] - 127.0) / 128).astype(np.float32)
        jobs = (
            lambda x=x: bare.run(None, {"x": x}),
            lambda n=n: scaled.run(None, {"x": X[:n]}),
            lambda n=n: whole.run(None, {"pixels": X[:n]}),
        )
        turns = np.array([[seconds(job) for job in jobs] for _ in range(given.turns + 1)])[
            1:
        ]  # the first makes buffers
        of_floats, of_pixels, exported = 1e3 * np.median(turns, axis=0) / n
        ratios = np.median(turns / turns[:, 2:], axis=0)
        print(
            f"{n} at once, ms a picture: backbone {of_floats:.2f} on floats, {of_pixels:.2f} on pixels; exported "
            f"{given.method} {exported:.2f}, × {ratios[0]:.3f} and × {ratios[1]:.3f} their speeds"
        )


if __name__ == "__main__":
    main()
