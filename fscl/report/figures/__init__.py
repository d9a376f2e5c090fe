"""The figures of a page that belong to no measure; those of measures are in `fscl.report.measures`."""

from fscl.report.figures.confusion import CONFUSION
from fscl.report.figures.drift import DRIFT
from fscl.report.figures.fisher import FISHER
from fscl.report.figures.penalties import PENALTIES
from fscl.report.figures.two_sides import TRANSFER, TWO_SIDES
from fscl.report.spec import FigureSpec

FIGURES: list[FigureSpec] = [TWO_SIDES, TRANSFER, CONFUSION, DRIFT, FISHER, PENALTIES]
