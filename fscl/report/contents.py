"""What a page holds, and under which headings: tables, figures, pictures and files to download."""

from markupsafe import Markup

from fscl.report.figures import FIGURES
from fscl.report.figures.confusion import class_rows
from fscl.report.measures import BOTH_SIDES, COST, RESULTS
from fscl.report.probes import probed_sides, probes_in_words, probing_share
from fscl.report.results import Results
from fscl.report.spec import DataFile, FigureSpec, Gallery, Picture, TableSpec
from fscl.report.table import ACCURACY, SIGNIFICANT

SECTIONS = [
    "Results",
    "Both sides",
    "Accuracy along the stream",
    "What is taken for what",
    "The worst confusions",
    "What it costs",
    "Time to learn a task",
    "Interference",
    "Generated images",
]
"""The order of headings; one that is not listed comes last."""

INTRODUCTIONS = {
    "Interference": "What learning does inside: seen on the first sequence, of every method that trains its embedding.",
    "The worst confusions": (
        "In each picture, from the left: test images that were answered wrongly, shots of their true class, and shots of "
        "the class that was answered. The worst of all sequences."
    ),
}


def _results_note(results: Results) -> str:
    accuracy = ACCURACY.format(prediction=results.prediction)
    note = f"A is {accuracy}, in %; forgetting, backward transfer and differences in percentage points."
    if results.has_reference:
        note += f" Differences are paired by sequence; bold with *, {SIGNIFICANT}."
    return note


def _both_sides_note(results: Results) -> str:
    if results.stream.interval == 1:
        keeps = (
            "accuracy on the tasks before the newest, on the newest, and the harmonic mean of the two, averaged over the "
            "stream from the second task on."
        )
    else:
        keeps = (
            "accuracy over everything at the end. Classes return with the same test images, so there is no accuracy on old "
            "and on new tasks; FWT is how far above chance a task is answered before it is learned."
        )
    if not probed_sides(results):
        return Markup(
            "What a method keeps: {} How well it goes on learning was not probed in this run; a <code>[probe]</code> "
            "section in the configuration asks for it."
        ).format(keeps)
    one = " Intervals are over the problems of its one sequence, and say nothing of other sequences."
    return Markup(
        "What a method keeps: {} And how well it goes on learning: fresh problems, learned from where it stood after so "
        "many tasks ({}), on classes that the stream does not have (<i>novel</i>) and on classes of "
        "meta-training (<i>base</i>); every method and every moment meets the same ones. Bold with *, "
        "{}.{}"
    ).format(
        keeps,
        probes_in_words(results.about["config"]),
        SIGNIFICANT,
        one if results.n_sequences == 1 else "",
    )


def _cost_note(results: Results) -> str:
    note = (
        "To learn one class, mean over the stream, on one processor thread. Multiply-adds are those of convolutions and "
        "linear heads, forward and backward. Kept is what the method holds after the last task; a generator is discarded "
        "once its images are made, and its training is not counted (a dash)."
    )
    if probed_sides(results):
        note += (
            f" Probing took {probing_share(results):.2f} s for each second of learning in this run; weights that were "
            "probed before are not probed again."
        )
    return note


TABLES: list[TableSpec] = [
    TableSpec("table", f"A is {ACCURACY}, in %.", "Results", RESULTS, _results_note, finished_only=False),
    TableSpec("two-sides", "Accuracy and probes in %, changes in points.", "Both sides", BOTH_SIDES, _both_sides_note),
    TableSpec("cost", "Seconds, multiply-adds and bytes.", "What it costs", COST, _cost_note),
]
DATA_FILES: list[DataFile] = [DataFile("classes", "Both sides", "each class as CSV", class_rows)]


def figure_specs(results: Results) -> list[FigureSpec]:
    """The figures that a run has: those of its measures, and the others. Nothing is drawn before a cell has finished."""
    of_measures = [measure.figure for table in TABLES for measure in table.measures_of(results)]
    specs = [figure for figure in [*of_measures, *FIGURES] if figure is not None]
    return [spec for spec in specs if results.n_done and spec.when(results)]


def _confused(results: Results) -> list[Picture]:
    return [
        Picture(
            pair.png(),
            f"Images of {pair.true} taken for {pair.answered}",
            Markup("<b>{}</b> took {} of {} images of {} for {}.").format(
                method, pair.count, pair.of, pair.true, pair.answered
            ),
        )
        for method, pairs in results.confusions.items()
        for pair in pairs
    ]


CAPTIONS = {
    "generated.png": "in each row the shots of a class on the left, and on the right the images generated from them, which "
    "are replayed instead."
}  # of pictures that methods leave, by name


def _of_methods(results: Results) -> list[Picture]:
    return [
        Picture(content, f"{name} of {method}", f"{method}, first sequence: {CAPTIONS.get(name, name)}")
        for method, pictures in results.pictures.items()
        for name, content in pictures.items()
    ]


GALLERIES: list[Gallery] = [
    Gallery("The worst confusions", _confused),
    Gallery("Pictures of methods", _of_methods, side_by_side=False),
]
