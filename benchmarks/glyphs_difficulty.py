"""How hard the glyphs are: nearest class mean on raw pixels, and on the base that comes with the package.

    python benchmarks/glyphs_difficulty.py

Prints accuracy on the test alphabets, mean ± 95 % interval over episodes, 15 queries a class, the same episodes for both.
"""

from collections.abc import Callable

from torch import Tensor

from fscl.data.episode import sample_episode
from fscl.data.sets.glyphs import load_glyphs
from fscl.evaluation.metrics import mean_interval
from fscl.meta.protonet import prototype_scores
from fscl.meta.shipped import load_base
from fscl.process import configure_process
from fscl.rng import generator

SHAPES = [(5, 5, 600), (5, 1, 600), (50, 5, 40)]  # ways, shots, episodes


def main() -> None:
    configure_process()
    pool = load_glyphs().test
    base = load_base("glyphs-protonet-conv4")
    features: dict[str, Callable[[Tensor], Tensor]] = {
        "raw pixels": lambda images: images.flatten(1).float() / 255,
        "glyphs-protonet-conv4": base.embed,
    }
    print(f"{'':<24}" + "".join(f"{f'{way}-way {shot}-shot':>18}" for way, shot, _ in SHAPES))
    for name, embed in features.items():
        cells = []
        for way, shot, n_episodes in SHAPES:
            accuracies = []
            for number in range(n_episodes):
                random = generator(0, "difficulty", way, shot, number)
                episode = sample_episode(pool, n_way=way, n_shot=shot, n_query=15, generator=random)
                support, query = embed(episode.support.images), embed(episode.query.images)
                scores = prototype_scores(support, episode.support.labels, query, way)
                accuracies.append((scores.argmax(1) == episode.query.labels).double().mean().item())
            result = mean_interval(accuracies)
            cells.append(f"{100 * result.mean:.1f} ± {100 * result.half_width:.1f}")
        print(f"{name:<24}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
