"""What an exported classifier says of pictures, with numpy, Pillow and onnxruntime: run_exported.py MODEL.onnx PICTURE …"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def scale_deep_grey(image, largest):
    if image.mode[0] not in "IF":  # whole numbers of 16 or 32 bits, and floating-point numbers
        return image
    values = np.asarray(image, dtype=np.float32)
    if image.mode == "F" or values.min() < 0 or values.max() > largest:
        sys.exit(f"a grey picture has whole numbers from 0 to {largest}, but this one has others; save it anew.")
    return Image.fromarray((values * 255 / largest).round().astype(np.uint8))


def flatten_transparency(image, background):
    ground = Image.new("RGBA", image.size, background)
    return Image.alpha_composite(ground, image.convert("RGBA")) if image.has_transparency_data else image


STEPS = {
    "open_first_frame": Image.open,
    "turn_as_exif_says": ImageOps.exif_transpose,
    "scale_deep_grey": scale_deep_grey,
    "flatten_transparency": flatten_transparency,
    "convert": lambda image, mode: image.convert(mode),
    "resize": lambda image, size, filter: image.resize(size, Image.Resampling[filter]),
    "uint8_channels_first": lambda image: np.atleast_3d(np.asarray(image, dtype=np.uint8)).transpose(2, 0, 1),
}

about = json.loads(Path(sys.argv[1]).with_suffix(".json").read_text(encoding="utf-8"))
steps = [(step.pop("step"), step) for step in about["steps"]]
if strange := [name for name, _ in steps if name not in STEPS]:
    sys.exit(f"this script does not know the step {strange[0]!r}; take the script of the fscl that exported the file.")
session = onnxruntime.InferenceSession(sys.argv[1])
names, unknown = [output["name"] for output in about["outputs"]], about["unknown"]
for picture in sys.argv[2:]:
    pixels = picture
    for name, settings in steps:
        run = STEPS[name]
        pixels = run(pixels, **settings)
    answers = dict(zip(names, session.run(names, {about["input"]["name"]: pixels[None]}), strict=True))
    (chances,), verdict = answers["probabilities"], "cannot tell"
    if unknown and unknown["above"] is not None:
        verdict = "unknown" if answers[unknown["output"]][0] > unknown["above"] else "known"
    print(picture, about["labels"][chances.argmax()], f"{chances.max():.6f}", verdict, sep="\t")
