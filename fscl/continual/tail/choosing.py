"""How far to follow what a lesson taught, and which head shall answer: both by shots that were left out.

Two tails learn side by side. Each leaves a third of every class's shots out, for ever and with all of their views, so that
those can say whether moving was worth it, and how good the answers are. What answers is the mean of the two.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fscl.continual.heads import AnyHead
from fscl.continual.held_out import with_company
from fscl.continual.memory import balanced, turns_of
from fscl.continual.tail.codes import Body, rounded
from fscl.continual.tail.settings import TailSettings
from fscl.nets.params import Params, interpolate

N_TAILS = 2
THIRDS = 3  # each tail leaves one of them out; the last is seen by both
IN_NO_FOLD = -1
MAX_JUDGED = 200  # shots that moves are judged by, or THIRDS of every class where these are more
MIN_JUDGED = 10  # left-out shots, below which nothing moves
TEMPERATURES = torch.logspace(-3, 2, 41, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen.

    Attributes:
        slow: the weights of each tail from now on.
        moved: whether they are other than the base's.
        slow_rate: how far they followed what was learned (β); 0 where they stayed, or went back to the base's.
        head: its position among the settings' heads.
        positions: of the shots that were left out.
        scores: of each of them by the chosen head, learned without it.
        shift: what more shots are worth to the share of right answers: a tail leaves a third out, and leaving one of each
            class out on the frozen features says what that costs.
        gain: what the chosen weights gain over the base's on left-out shots, in nats a shot.
    """

    slow: Sequence[Params]
    moved: bool
    slow_rate: float
    head: int
    positions: Tensor
    scores: Tensor
    shift: float = 0.0
    gain: float = 0.0


def folds_for(labels: Tensor, groups: Tensor, known: Tensor) -> Tensor:
    """Which tail leaves each shot out: each class's shots in turn, and all of a group of duplicates together.

    Args:
        labels: of all shots, those that are known already first.
        groups: of duplicates, numbered in order of appearance.
        known: the folds of the first of them, which they keep.
    """
    first = firsts(groups)
    folds = torch.full_like(labels, IN_NO_FOLD)
    turns = turns_of(labels[first]) % THIRDS
    folds[first] = torch.where(turns < N_TAILS, turns, torch.tensor(IN_NO_FOLD))
    folds[: len(known)] = known
    return torch.cat([known, folds[first][groups][len(known) :]])


def n_judged(n_classes: int) -> int:
    """How many shots moves are judged by at most."""
    return max(MAX_JUDGED, THIRDS * n_classes)


def firsts(groups: Tensor) -> Tensor:
    """The position of the first shot of each group."""
    return torch.tensor([positions[0] for positions in _members(groups)], dtype=torch.int64)


def _members(groups: Tensor) -> list[list[int]]:
    members: dict[int, list[int]] = {}
    for position, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(position)
    return list(members.values())


def choose(
    body: Body,
    slow: Sequence[Params],
    fast: Sequence[Params] | None,
    codes: Mapping[str, Tensor],
    labels: Tensor,
    folds: Tensor,
    groups: Tensor,
    settings: TailSettings,
    *,
    n_classes: int,
    moved: bool,
    extras: Params,
) -> Choice:
    """Judge how far to follow by the first head, then every head there.

    To follow, the weights must gain more over the base's than chance would; where they do not, they stay where they are, or
    go back to the base's, whichever is better. The left-out shots judge each tail by itself; their mean, which answers, is
    better than either, so that staying is not preferred to following for a better figure.

    Args:
        body: the network.
        slow: the weights of each tail before the lesson.
        fast: those that it has learned; None where there was no time to.
        codes: of the stored shots.
        labels: their classes.
        folds: which tail has left each of them out.
        groups: of duplicates, which count once.
        settings: the candidates.
        n_classes: how many are known; where one has no stored shot any more, nothing can be judged.
        moved: whether the slow weights are other than the base's.
        extras: what the base carries, for heads that use it.
    """
    judged = balanced(labels, None, n_judged(n_classes))
    counts = torch.isin(judged, firsts(groups))
    judge = _Judge(labels[judged], folds[judged], counts, n_classes, extras)
    if len(judge.positions) == 0 or not judge.whole:
        nothing = judge.positions[:0]
        return Choice(slow, moved, 0.0, 0, nothing, torch.zeros(0, n_classes))

    def tried(params: Sequence[Params] | None, rate: float = 0.0) -> _Candidate:
        """The slow weights at some place; None is the base's."""
        if params is None:
            features = [codes["base"][judged]] * N_TAILS
        else:
            features = [body.features(codes["whole"][judged], each) for each in params]
        losses = negative_log_likelihood(judge.scores(settings.heads[0], features), judge.labels)
        return _Candidate(params, rate, losses)

    frozen = tried(None)
    chosen = frozen
    if fast is not None and len(judge.positions) >= MIN_JUDGED:
        for rate in settings.slow_rates:
            candidate = tried([rounded(body.base, interpolate(body.base, each, rate)) for each in fast], rate)
            if candidate.loss < chosen.loss and candidate.gain(frozen) > settings.confidence * candidate.error(frozen):
                chosen = candidate
    if moved and chosen is frozen:  # nothing to follow: stay, or go back
        chosen = min(tried(slow), frozen, key=lambda each: each.loss)
    # how good the answers are, by all shots
    judge = _Judge(labels, folds, torch.isin(torch.arange(len(labels)), firsts(groups)), n_classes, extras)
    if chosen.params is None:
        head, scores = judge.best_head(settings, [codes["base"]] * N_TAILS)
        one_out = _one_of_each(settings.heads[head], codes["base"], labels, groups, n_classes, extras)
        left_out = (judge.positions, scores) if one_out is None else one_out
        return Choice([body.base] * N_TAILS, False, 0.0, head, *left_out)
    features = [body.features(codes["whole"], each) for each in chosen.params]
    head, scores = judge.best_head(settings, features)
    shift, gain = judge.worth_of_more(settings.heads[0], codes["base"], groups), chosen.gain(frozen)
    return Choice(chosen.params, True, chosen.rate, head, judge.positions, scores, shift, gain)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Weights of the tails, and the loss of every left-out shot."""

    params: Sequence[Params] | None
    rate: float
    losses: Tensor

    @property
    def loss(self) -> float:
        return float(self.losses.mean())

    def gain(self, other: "_Candidate") -> float:
        """By how much its loss is lower."""
        return other.loss - self.loss

    def error(self, other: "_Candidate") -> float:
        """The standard error of that."""
        return standard_error(other.losses - self.losses)


def _one_of_each(
    head: AnyHead, features: Tensor, labels: Tensor, groups: Tensor, n_classes: int, extras: Params
) -> tuple[Tensor, Tensor] | None:
    """Positions and scores of shots, one of each class left out at a time; None where many have duplicates."""
    alone = torch.bincount(groups)[groups] == 1
    asked = torch.where(alone & with_company(labels, n_classes))[0]
    if len(asked) < len(labels) / 2:
        return None
    return asked, head.in_folds(features, labels, n_classes, extras)[asked]


class _Judge:
    """Scores of left-out shots: fitted on what a tail has seen, asked for what it has not."""

    def __init__(self, labels: Tensor, folds: Tensor, counts: Tensor, n_classes: int, extras: Params) -> None:
        self.n_classes, self.extras, self.all_labels = n_classes, extras, labels
        # a class without a stored shot cannot be fitted here, and then nothing is judged
        self.whole = bool((torch.bincount(labels, minlength=n_classes) > 0).all())
        company = with_company(labels, n_classes)
        self.left_out = [(folds == number) & company for number in range(N_TAILS)]
        for number, held in enumerate(self.left_out):  # a class of which nothing would be left is not left out
            others = torch.bincount(labels[~held], minlength=n_classes)
            self.left_out[number] = held & (others[labels] > 0)
        self.asked = [held & counts for held in self.left_out]
        self.positions = torch.cat([torch.where(asked)[0] for asked in self.asked])
        self.labels = labels[self.positions]

    def scores(self, head: AnyHead, features: Sequence[Tensor]) -> Tensor:
        """Of the left-out shots, in the order of `positions`; `features` are of all shots, by each tail."""
        found = []
        for held, asked, own in zip(self.left_out, self.asked, features, strict=True):
            if bool(asked.any()):
                fitted = head.fit(own[~held], self.all_labels[~held], self.n_classes, self.extras)
                found.append(head.scores(fitted, own[asked]))
        return torch.cat(found)

    def best_head(self, settings: TailSettings, features: Sequence[Tensor]) -> tuple[int, Tensor]:
        """The position of the head that shall answer, and its scores of the left-out shots."""
        best, scores = 0, self.scores(settings.heads[0], features)
        first = least = negative_log_likelihood(scores, self.labels)
        for position, head in enumerate(settings.heads[1:], start=1):
            others = self.scores(head, features)
            losses = negative_log_likelihood(others, self.labels)
            better = float((first - losses).mean()) > settings.confidence * standard_error(first - losses)
            if better and float(losses.mean()) < float(least.mean()):
                best, scores, least = position, others, losses
        return best, scores

    def worth_of_more(self, head: AnyHead, features: Tensor, groups: Tensor) -> float:
        """What the share of right answers gains where one shot of a class is left out instead of a third.

        Only shots without a duplicate are asked: with one of two alike left out, the other would know the answer. 0 where
        all have duplicates.
        """
        alone = (torch.bincount(groups)[groups] == 1)[self.positions]
        if not bool(alone.any()):
            return 0.0
        in_thirds = self.scores(head, [features] * N_TAILS).argmax(1) == self.labels
        by_one = head.in_folds(features, self.all_labels, self.n_classes, self.extras)[self.positions].argmax(1)
        return float(((by_one == self.labels)[alone].double() - in_thirds[alone].double()).mean())


def standard_error(values: Tensor) -> float:
    """Of the mean of values; 0 of a single one."""
    return float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def negative_log_likelihood(scores: Tensor, labels: Tensor) -> Tensor:
    """Of each label, in nats, at the temperature that suits all of them best."""
    exact = scores.double()
    spread = exact.std().clamp_min(1e-12)
    tried = [
        -torch.log_softmax(exact / (spread * temperature), 1).gather(1, labels[:, None])[:, 0]
        for temperature in TEMPERATURES
    ]
    return min(tried, key=lambda losses: float(losses.mean()))
