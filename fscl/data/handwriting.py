"""A small generative model of handwriting: alphabets with habits, characters as stroke programs, drawings by noisy hands.

An alphabet has habits: an anchor grid, preferred directions, roundness, and a few shapes and whole strokes ("radicals")
that its characters share. A character is a stroke program: splines through control points, hung on anchors. A drawing is
one noisy execution of it by one of the alphabet's hands, which slants, turns, stretches and presses in its own way.
After the idea of Lake, Salakhutdinov and Tenenbaum, "Human-level concept learning through probabilistic program
induction", Science 2015.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscl.rng import numpy_generator

Array = NDArray[np.float64]

_KNOTS = 9  # control points of a stroke
_MAX_STROKES = 4
_SETTINGS = 13  # what a hand does in its own way: see `_execute`
_WAVES = np.cos(np.pi * np.outer([1, 2, 3], np.linspace(0, 1, _KNOTS))) / [[1], [1.3], [2]]  # how a stroke wobbles
_PEN = 0.030  # mean radius of the pen, in image sides
_MARGIN = 0.06  # kept free of ink at every border, in image sides
_BODY = 0.68  # side of the box that a character fills, in image sides

# Noise of the drawings in units of the character's box: (habit of a hand, scatter from drawing to drawing).
_SLANT = (0.16, 0.07)
_TURN = (0.09, 0.07)  # radians
_STRETCH = (0.10, 0.08)  # of the logarithm of width and of height
_SHIFT = (0.03, 0.04)
_WARP = (0.10, 0.06)  # of the quadratic bending of the page
_PRESS = (0.16, 0.06)  # of the logarithm of the pen's radius
_STROKE_SHIFT, _STROKE_TURN, _STROKE_STRETCH, _WOBBLE = 0.065, 0.14, 0.14, 0.028


@dataclass(frozen=True)
class _Alphabet:
    """The habits that the characters of one alphabet share."""

    anchors: Array  # (n_anchors, 2) in the unit box
    directions: Array  # (n_directions,) angles, radians, that strokes prefer
    fidelity: float  # how strongly they do
    shapes: Array  # (n_shapes, knots, 2): strokes from (0, 0) to (1, 0)
    radicals: Array  # (n_radicals, knots, 2): strokes in the unit box
    stroke_odds: Array  # of 1, 2, … strokes
    radical_rate: float
    joined_rate: float  # how often a stroke starts where another one passes
    roundness: float  # 0 = straight between the control points, 1 = a smooth spline


def draw_alphabet(index: int, *, n_characters: int, n_drawings: int, size: int, seed: int) -> Tensor:
    """Drawings (n_characters · n_drawings, size, size) of one alphabet, uint8, ink = 255; drawing i is by hand i."""
    alphabet = _invent_alphabet(numpy_generator(seed, "glyphs", "alphabet", index))
    characters = _invent_characters(alphabet, n_characters, numpy_generator(seed, "glyphs", "characters", index))
    hands = numpy_generator(seed, "glyphs", "hands", index).standard_normal((n_drawings, _SETTINGS))
    points, pens = [], []
    for number, strokes in enumerate(characters):
        knots, pen = _execute(strokes, hands, numpy_generator(seed, "glyphs", "drawings", index, number))
        line = _along(knots, alphabet.roundness, _n_points(strokes, size)).reshape(n_drawings, -1, 2)
        points.append(_keep_inside(line, pen))
        pens.append(pen)
    return _render(points, pens, size)


# ---- alphabets and characters ------------------------------------------------------------------------------------------


def _invent_shape(random: np.random.Generator, curved: float) -> Array:
    """A stroke from (0, 0) to (1, 0) through `_KNOTS` control points."""
    t = np.linspace(0, 1, _KNOTS)
    turn = 2 * np.pi * t
    bend, corner = random.uniform(0.25, 0.6), random.uniform(0.2, 0.8)
    straight = {
        "line": (t, 0 * t),
        "corner": (np.interp(t, [0, 0.5, 1], [0, corner, 1]), 1.2 * bend * np.interp(t, [0, 0.5, 1], [0, 1, 0])),
        "zigzag": (t, 0.8 * bend * np.interp(t, [0, 0.25, 0.75, 1], [0, 1, -1, 0])),
    }
    hook = np.array([[0, 0.2, 0.4, 0.6, 0.8, 0.95, 1, 0.92, 0.8], [0, 0, 0, 0, 0, 0.08, 0.3, 0.5, 0.52]])
    radius = 0.5 * (1 - 0.65 * t)
    round_ = {
        "arc": (t, 4 * bend * t * (1 - t)),
        "wave": (t, 0.55 * bend * np.sin(turn)),
        "loop": (t - 0.3 * np.sin(turn), 0.75 * bend * (1 - np.cos(turn))),
        "ring": (0.5 - 0.5 * np.cos(turn), bend * np.sin(turn)),
        "hook": (hook[0], bend * hook[1]),
        "spiral": (0.5 - radius * np.cos(1.4 * turn), radius * np.sin(1.4 * turn)),
    }
    if random.random() < curved:
        kind = random.choice(list(round_), p=[0.36, 0.18, 0.12, 0.11, 0.17, 0.06])
        return np.stack(round_[kind], 1)
    return np.stack(straight[random.choice(list(straight), p=[0.5, 0.3, 0.2])], 1)


def _invent_alphabet(random: np.random.Generator) -> _Alphabet:
    columns, rows, width = random.integers(2, 4), random.integers(3, 5), random.uniform(0.62, 1.0)
    x = 0.5 + width * (np.linspace(0, 1, columns) - 0.5)
    anchors = np.stack(np.meshgrid(x, np.linspace(0, 1, rows)), -1).reshape(-1, 2)
    anchors = anchors + random.normal(0, 0.05, anchors.shape)
    curved = random.uniform(0.1, 0.95)
    directions = random.uniform(0, np.pi) + np.array([0, np.pi / 2, random.uniform(0.3, 1.2)])
    upright = random.random() < 0.6
    shapes = np.stack([_invent_shape(random, curved) for _ in range(7)])
    odds = np.exp(-0.5 * ((np.arange(1, _MAX_STROKES + 1) - random.uniform(1.8, 3.4)) / 0.7) ** 2)
    alphabet = _Alphabet(
        anchors=anchors,
        directions=np.array([0, np.pi / 2, directions[2]]) if upright else directions,
        fidelity=random.uniform(0.0, 3.0),
        shapes=shapes,
        radicals=np.zeros((0, _KNOTS, 2)),
        stroke_odds=odds / odds.sum(),
        radical_rate=random.uniform(0.35, 0.7),
        joined_rate=random.uniform(0.5, 0.95),
        roundness=float(np.clip(0.2 + curved + random.normal(0, 0.2), 0, 1)),
    )
    radicals = np.stack([_place_stroke(alphabet, [], random) for _ in range(random.integers(6, 11))])
    return replace(alphabet, radicals=radicals)


def _place_stroke(alphabet: _Alphabet, others: list[Array], random: np.random.Generator) -> Array:
    """One of the alphabet's shapes between two anchors, often starting on another stroke."""
    start = alphabet.anchors[random.integers(len(alphabet.anchors))]
    if others and random.random() < alphabet.joined_rate:
        other = others[random.integers(len(others))]
        start = other[random.choice([0, _KNOTS // 2, _KNOTS - 1])]
    step = alphabet.anchors - start
    length = np.hypot(step[:, 0], step[:, 1])
    angle = np.arctan2(step[:, 1], step[:, 0])
    agreement = np.max(np.cos(2 * (angle[:, None] - alphabet.directions)), axis=1)
    odds = np.where(length > 0.3, np.exp(alphabet.fidelity * agreement - 1.2 * length), 0.0)
    step = step[random.choice(len(odds), p=odds / odds.sum())]
    shape = alphabet.shapes[random.integers(len(alphabet.shapes))] * [1, random.choice([-1, 1])]
    normal = np.array([-step[1], step[0]])
    return np.asarray(start + shape[:, :1] * step + shape[:, 1:] * normal)


def _signature(strokes: Array) -> Array:
    """A blurred 7 × 7 picture as a unit vector, to tell how alike two characters are."""
    ticks = np.linspace(0, 1, 7)
    points = strokes.reshape(-1, 2)
    near_x = np.exp(-(((points[:, :1] - ticks) / 0.13) ** 2))
    near_y = np.exp(-(((points[:, 1:] - ticks) / 0.13) ** 2))
    picture = np.minimum(near_y.T @ near_x, 1.5).ravel()
    return np.asarray(picture / np.linalg.norm(picture))


def _fit_box(strokes: Array) -> Array:
    """Move the strokes to the middle of the unit box and bring the longer side to between 0.75 and 1."""
    low, high = strokes.reshape(-1, 2).min(0), strokes.reshape(-1, 2).max(0)
    side = float((high - low).max())
    return np.asarray(0.5 + (strokes - (low + high) / 2) * min(max(side, 0.75), 1.0) / side)


def _invent_characters(alphabet: _Alphabet, n_characters: int, random: np.random.Generator) -> list[Array]:
    """Stroke programs (n_strokes, knots, 2), none too like an earlier one."""
    characters: list[Array] = []
    signatures: list[Array] = []
    limit = 0.93
    while len(characters) < n_characters:
        n_strokes = 1 + random.choice(_MAX_STROKES, p=alphabet.stroke_odds)
        strokes: list[Array] = []
        overlap = 0.75
        while len(strokes) < n_strokes:
            if random.random() < alphabet.radical_rate:
                stroke = alphabet.radicals[random.integers(len(alphabet.radicals))]
            else:
                stroke = _place_stroke(alphabet, strokes, random)
            if all(_signature(stroke) @ _signature(other) < overlap for other in strokes):
                strokes.append(stroke)
            overlap += 0.005  # so that it ends
        character = _fit_box(np.stack(strokes))
        signature = _signature(character)
        if not signatures or np.max(np.stack(signatures) @ signature) < limit:
            characters.append(character)
            signatures.append(signature)
        else:
            limit += 0.0005  # a poor alphabet runs out of characters that differ so much
    return characters


# ---- drawings ----------------------------------------------------------------------------------------------------------


def _execute(strokes: Array, hands: Array, random: np.random.Generator) -> tuple[Array, Array]:
    """Control points (n_drawings, n_strokes, knots, 2) in image sides, and pen radii, of one drawing by each hand."""
    noise = random.standard_normal((len(hands), _SETTINGS + _MAX_STROKES * (4 + 2 * len(_WAVES))))
    n = len(strokes)

    def setting(column: int, spread: tuple[float, float]) -> Array:
        return np.asarray(spread[0] * hands[:, column] + spread[1] * noise[:, column])[:, None, None]

    # Each stroke by itself: turned, stretched, moved and wobbling.
    own = noise[:, _SETTINGS:].reshape(len(hands), _MAX_STROKES, -1)[:, :n]
    knots = strokes[None] - 0.5
    middle = knots.mean(2, keepdims=True)
    turn = _STROKE_TURN * own[:, :, 0, None, None]
    stretch = np.exp(_STROKE_STRETCH * own[:, :, 1, None, None])
    local = (knots - middle) * stretch
    local = local + turn * np.stack([-local[..., 1], local[..., 0]], -1)
    knots = middle + local + _STROKE_SHIFT * own[:, :, None, 2:4]
    knots = knots + _WOBBLE * (_WAVES.T @ own[:, :, 4:].reshape(len(hands), n, len(_WAVES), 2))

    # The character as a whole: bent, slanted, stretched, turned and moved.
    x, y = knots[..., 0], knots[..., 1]
    x, y = (
        x + setting(0, _WARP) * 2 * x * y + setting(1, _WARP) * (y * y - 0.1) + setting(2, _WARP) * (x * x - 0.1),
        y + setting(3, _WARP) * 2 * x * y + setting(4, _WARP) * (x * x - 0.1) + setting(5, _WARP) * (y * y - 0.1),
    )
    x = (x + setting(6, _SLANT) * y) * np.exp(setting(7, _STRETCH))
    y = y * np.exp(setting(8, _STRETCH))
    cosine, sine = np.cos(setting(9, _TURN)), np.sin(setting(9, _TURN))
    x, y = cosine * x - sine * y + setting(10, _SHIFT), sine * x + cosine * y + setting(11, _SHIFT)
    return 0.5 + _BODY * np.stack([x, y], -1), _PEN * np.exp(setting(12, _PRESS)[:, 0, 0])


def _along(knots: Array, roundness: float, n_points: int) -> Array:
    """Points (..., n_points, 2) along strokes (..., knots, 2): straight pieces blended with a Catmull-Rom spline."""
    position = np.linspace(0, _KNOTS - 1, n_points)
    piece = np.minimum(position.astype(int), _KNOTS - 2)
    u = position - piece
    cubic = 0.5 * np.stack([-u + 2 * u**2 - u**3, 2 - 5 * u**2 + 3 * u**3, u + 4 * u**2 - 3 * u**3, u**3 - u**2])
    straight = np.stack([0 * u, 1 - u, u, 0 * u])
    weights = roundness * cubic + (1 - roundness) * straight
    basis = np.zeros((n_points, _KNOTS + 2))
    for offset in range(4):
        basis[np.arange(n_points), piece + offset] = weights[offset]
    first, last = 2 * knots[..., :1, :] - knots[..., 1:2, :], 2 * knots[..., -1:, :] - knots[..., -2:-1, :]
    return np.asarray(basis @ np.concatenate([first, knots, last], -2))


def _n_points(strokes: Array, size: int) -> int:
    """As many points a stroke as keep neighbours within a pixel in all but the most stretched drawings."""
    longest = np.sqrt((np.diff(strokes, axis=-2) ** 2).sum(-1).max())
    return 2 + int(1.8 * _BODY * size * (_KNOTS - 1) * longest)


def _keep_inside(points: Array, pens: Array) -> Array:
    """Shrink and move drawings (n_drawings, n_points, 2) that would come too near to a border."""
    border = _MARGIN + pens[:, None, None]
    low, high = points.min(1, keepdims=True), points.max(1, keepdims=True)
    middle = (low + high) / 2
    scale = np.minimum(1, (1 - 2 * border) / (high - low).max(-1, keepdims=True))
    half = scale * (high - low) / 2
    return np.asarray(np.clip(middle, border + half, 1 - border - half) + scale * (points - middle))


def _render(points: list[Array], pens: list[Array], size: int) -> Tensor:
    """Images (all drawings of all characters, size, size) as uint8: at each point, a soft disc of the pen's radius.

    `points` (n_drawings, n_points, 2) and `pens` (n_drawings,) of each character are in image sides.
    """
    n_points = np.concatenate([np.full(len(line), line.shape[1]) for line in points])  # of each picture
    picture = np.repeat(np.arange(len(n_points)), n_points)
    pen = np.repeat(np.maximum(np.concatenate(pens) * size, 0.7) + 0.5, n_points).astype(np.float32)
    reach = int(np.ceil(pen.max()))
    side = size + 2 * reach  # with a frame, so that no disc leaves its picture
    spot = np.concatenate([line.reshape(-1, 2) for line in points])
    spot = spot * size - 0.5 + reach  # pixel centres are at whole numbers
    corner = np.floor(spot).astype(np.int64)
    offsets = range(1 - reach, reach + 1)
    square = {offset: ((corner + offset - spot) ** 2).astype(np.float32) for offset in offsets}
    first = (picture * side + corner[:, 1]) * side + corner[:, 0]
    canvas = np.zeros((len(n_points), side, side), dtype=np.float32)
    for dy in offsets:
        for dx in offsets:
            ink = np.minimum(pen - np.sqrt(square[dx][:, 0] + square[dy][:, 1]), 1)
            inked = np.flatnonzero(ink > 0)
            np.maximum.at(canvas.reshape(-1), first[inked] + (dy * side + dx), ink[inked])
    inner = canvas[:, reach:-reach, reach:-reach]
    return torch.from_numpy(np.round(255 * inner).astype(np.uint8))
