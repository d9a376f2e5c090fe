"""What a place of a figure says when it is pointed at: invisible elements over the drawing that carry the words.

A point is a circle with a <title>, which browsers show by themselves after a while and the script of the page at once. A
matrix is one rectangle with its counts in an attribute, from which the script makes the words for the cell pointed at.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

SVG = "http://www.w3.org/2000/svg"
RADIUS = 7  # points; of the circle that can be hit
MOST_CELLS = 50_000  # not zero, in one matrix; with more, the page would be heavy
UNSEEN = {"fill": "none", "pointer-events": "all"}

Values = NDArray[np.float64]


class _Tips(Artist, ABC):
    """Draws nothing: it remembers places in the coordinates of the axes until their limits are final."""

    def __init__(self, places: Values) -> None:
        super().__init__()
        self.places = places

    def draw(self, renderer: Any) -> None:
        """Nothing to see."""

    @abstractmethod
    def put_into(self, root: Element, places: Values) -> None:
        """Add the elements to the SVG, at these places of it."""


class _Points(_Tips):
    def __init__(self, places: Values, texts: Sequence[str]) -> None:
        super().__init__(places)
        self.texts = texts

    def put_into(self, root: Element, places: Values) -> None:
        group = SubElement(root, f"{{{SVG}}}g", {"class": "tips"})
        for (x, y), text in zip(places, self.texts, strict=True):
            if np.isfinite((x, y)).all():
                circle = SubElement(group, f"{{{SVG}}}circle", {"cx": f"{x:.2f}", "cy": f"{y:.2f}", "r": f"{RADIUS}"})
                circle.attrib.update(UNSEEN)
                SubElement(circle, f"{{{SVG}}}title").text = text


class _Cells(_Tips):
    def __init__(self, counts: NDArray[np.int64], text: str) -> None:
        super().__init__(np.array([(0.0, 0.0), (len(counts), len(counts))]))
        self.counts, self.text = counts, text

    def put_into(self, root: Element, places: Values) -> None:
        (left, top), (right, bottom) = places
        rectangle = SubElement(root, f"{{{SVG}}}rect", {"class": "cells", **UNSEEN})
        for key, length in (("x", left), ("y", top), ("width", right - left), ("height", bottom - top)):
            rectangle.set(key, f"{length:.2f}")
        if np.count_nonzero(self.counts) <= MOST_CELLS:
            rectangle.set("data-cells", sparse(self.counts))
        SubElement(rectangle, f"{{{SVG}}}title").text = self.text


def tip_points(axes: Axes, x: Values, y: Values, texts: Sequence[str]) -> None:
    """Let each point of a line say its text; points that are NaN say nothing."""
    axes.add_artist(_Points(np.column_stack([x, y]), texts))


def tip_cells(axes: Axes, counts: NDArray[np.int64], text: str) -> None:
    """Let each cell of a square matrix say its count; `text` is for readers without script. Axes from 0 to n, down."""
    axes.add_artist(_Cells(counts, text))


def add_tips(figure: Figure, root: Element) -> None:
    """Put the tips of all axes into the SVG that was made of the figure, on top of the drawing."""
    width, height = 72 * figure.get_size_inches()  # an SVG of matplotlib's is in points, and y goes down
    for axes in figure.axes:
        to_figure = axes.transData + figure.transFigure.inverted()
        for tips in axes.get_children():
            if isinstance(tips, _Tips):
                places = to_figure.transform(tips.places)
                tips.put_into(root, np.column_stack([width * places[:, 0], height * (1 - places[:, 1])]))


def sparse(counts: NDArray[np.int64]) -> str:
    """Rows apart by ";", in each "column:count" for what is not zero: [[5, 0], [1, 4]] is "0:5;0:1,1:4"."""
    return ";".join(",".join(f"{column}:{row[column]}" for column in np.flatnonzero(row)) for row in counts)
