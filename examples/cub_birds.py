"""Teach a classifier birds that its base has never seen, five at a time, from five photographs each (CUB-200-2011).

    FSCL_DATA=FOLDER python examples/cub_birds.py [--base BASE] [--method METHOD] [--lessons 4]

The birds are held out: the base knows none of them. The bases that come with the package know drawings, not photographs, so
expect little of them here; --base takes a network that was trained on photographs (docs/how-to/teach-your-own.md).
"""

import argparse

import fscl
from fscl.errors import DataError

N_WAY, N_SHOT, N_ASKED = 5, 5, 15


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--base", default="omniglot-protonet-conv4")
    arguments.add_argument("--method", default="tsc")
    arguments.add_argument("--lessons", type=int, default=4)
    given = arguments.parse_args()
    fscl.configure_process()
    try:
        birds = fscl.load_cub(split="few-shot", image_size=64).test  # birds that no one trains or chooses on
    except DataError as error:
        print(f"skipped: {error}")
        return
    classifier = fscl.ContinualClassifier(given.base, given.method)
    for lesson in range(given.lessons):
        new = range(lesson * N_WAY, (lesson + 1) * N_WAY)
        photos = [photo for bird in new for photo in birds.of_class(bird)[:N_SHOT].numpy()]
        classifier.partial_fit(photos, [birds.class_names[bird] for bird in new for _ in range(N_SHOT)])
        known = range((lesson + 1) * N_WAY)
        asked = [photo for bird in known for photo in birds.of_class(bird)[N_SHOT : N_SHOT + N_ASKED].numpy()]
        right = classifier.score(asked, [birds.class_names[bird] for bird in known for _ in range(N_ASKED)])
        estimate = classifier.estimated_accuracy_
        print(
            f"{len(known):>3} birds: {100 * right:.1f} % of other photographs right, "
            f"estimated {100 * (estimate or 0):.1f} %, by chance {100 / len(known):.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
