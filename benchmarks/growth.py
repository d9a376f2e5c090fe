"""What learning costs as classes pile up: seconds and bytes a task, from 5 to 600 classes of Omniglot.

    python benchmarks/growth.py                     # 120 tasks: a long run
    python benchmarks/growth.py --tasks 30 --ways bounded means

Three ways to learn the same stream. *full*: `tsc` with 40 steps a task, each of which sees every shot, so that a task costs
the more the more there are. *bounded*: the same 40 steps on mini-batches of 250 images (whole classes, the task's own and
some of the old ones); what still grows is one pass over the shots for the class means. *means*: class means on the frozen
embedding, where nothing is learned. One view and no early stop, so that batches are all that differs. Seconds are of the
processor, on one thread: other work on the machine does not count.
"""

import argparse
import time

import fscl
from fscl.continual.learner import ContinualLearner
from fscl.data.stream import Stream

FULL = {"embedding_steps": 40, "stop_loss": 0.0, "views": 1}
BOUNDED = {**FULL, "batch_size": 250}
SHOWN = (1, 2, 5, 10, 20, 40, 60, 80, 100, 120)
NEAR = 5  # tasks that a time is averaged over: single times are noisy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=120, help="of 5 classes, 5 shots each")
    parser.add_argument("--base", default="glyphs-protonet-conv4")
    parser.add_argument("--ways", nargs="+", choices=("full", "bounded", "means"), default=("bounded", "means", "full"))
    asked = parser.parse_args()
    fscl.configure_process()
    pool = fscl.load_omniglot(split="paper").test
    spec = fscl.StreamSpec(n_tasks=asked.tasks)
    stream = fscl.sample_stream(pool, spec, fscl.generator(0, "growth"))
    network = fscl.load_base(asked.base)
    for way in asked.ways:
        settings = {"bounded": BOUNDED, "full": FULL, "means": None}[way]
        learner = fscl.make_learner("prototypes" if way == "means" else "tsc", network, seed=0, settings=settings)
        print(f"\n{way}: {asked.tasks} tasks of Omniglot, base {asked.base}", flush=True)
        print(f"{'task':>5} {'classes':>8} {'CPU s/task':>10} {'KiB held':>9} {'accuracy %':>11}", flush=True)
        measure(learner, stream, pool)


def measure(learner: ContinualLearner, stream: Stream, pool: fscl.ClassPool) -> None:
    """Learn the stream; a line for each task shown, and how the cost grew from task 10 to the last."""
    seconds: list[float] = []
    for number in range(len(stream)):
        support = stream.task(pool, number).support
        begin = time.process_time()
        learner.learn_task(support)
        seconds.append(time.process_time() - begin)
        if number + 1 in SHOWN or number + 1 == len(stream):
            held = sum(tensor.nbytes for tensor in learner.state().tensors.values())
            near = sum(seconds[-NEAR:]) / len(seconds[-NEAR:])
            accuracy = 100 * _accuracy(learner, stream, pool, number + 1)
            print(
                f"{number + 1:>5} {learner.n_classes:>8} {near:>10.2f} {held / 2**10:>9,.0f} {accuracy:>11.2f}",
                flush=True,
            )
    if len(seconds) >= 10 + NEAR:
        growth = sum(seconds[-NEAR:]) / sum(seconds[9 : 9 + NEAR])
        print(f"CPU s/task over the last {NEAR} tasks, as a ratio to tasks 10 to {9 + NEAR}: {growth:.2f}", flush=True)


def _accuracy(learner: ContinualLearner, stream: Stream, pool: fscl.ClassPool, n_tasks: int) -> float:
    right = n_asked = 0
    for number in range(n_tasks):
        query = stream.task(pool, number).query
        right += int((learner.predict(query.images).argmax(1) == query.labels).sum())
        n_asked += len(query)
    return right / n_asked


if __name__ == "__main__":
    main()
