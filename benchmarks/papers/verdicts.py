"""The rule by which a claim is confirmed, not confirmed, or cannot be told. It was written down before the runs.

A claim says that a sum of scores, such as contender minus baseline, is above zero. Its units are pairs of runs: one for
each data set and draw of training texts (seed), with the same texts, steps and test rows for all contenders. Then

* **confirmed**: the mean of the units is above zero, and significantly so: paired t-test, two-sided p below 0.05 after
  Holm's correction over all claims of the paper's page that were run, controls aside;
* **not confirmed**: the mean is significantly below zero by the same test, or the 95 % interval of the mean ends below
  the published gain (where no figure was published: below the smallest gain that would count, stated with the claim);
* **cannot be told**: all else, and fewer than five units.

An encoder with random weights is a control: its rows have no verdict, and no part in the correction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from benchmarks.papers.studies import Claim, Known, Run, Study
from nearfar.experiments.statistics import corrected_t_test, holm

FEWEST = 5
LEVEL = 0.05
CONFIRMED, NOT_CONFIRMED, UNKNOWN = "confirmed", "not confirmed", "cannot be told"
NOT_RUN, CONTROL = "not run", "control"
RANDOM = ":random"
"""The end of the name of an encoder with random weights."""


@dataclass(frozen=True)
class Judged:
    """A claim on an encoder with a number of training rows."""

    study: Study
    claim: Claim
    encoder: str
    rows: int
    units: tuple[float, ...]
    p: float = 1.0
    """After Holm's correction."""

    @property
    def control(self) -> bool:
        return self.encoder.endswith(RANDOM)

    @property
    def mean(self) -> float:
        return fmean(self.units)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % of the mean, not corrected; None for a single unit."""
        return corrected_t_test(self.units, test_to_train=0.0).interval

    @property
    def verdict(self) -> str:
        """In words."""
        if not self.units:
            return NOT_RUN
        return CONTROL if self.control else verdict(self.units, self.claim.gain, self.p)


def verdict(units: Sequence[float], gain: float, p: float) -> str:
    """What the rule says; ``p`` is corrected.

    >>> verdict([1.0, 1.2, 0.9, 1.1, 1.0], 0.8, 0.001), verdict([0.1, -0.1, 0.2, -0.2, 0.0], 0.8, 1.0)
    ('confirmed', 'not confirmed')
    >>> verdict([3.0, -2.0, 1.0, -1.0, 0.0], 0.8, 1.0), verdict([1.0, 1.2, 0.9], 0.8, 0.001)
    ('cannot be told', 'cannot be told')
    """
    if len(units) < FEWEST:
        return UNKNOWN
    if p < LEVEL:
        return CONFIRMED if fmean(units) > 0 else NOT_CONFIRMED
    interval = corrected_t_test(units, test_to_train=0.0).interval
    return NOT_CONFIRMED if interval is not None and interval.high < gain else UNKNOWN


def units(known: Known, claim: Claim, encoder: str, rows: int) -> dict[tuple[str, int], float]:
    """The value of a claim for each data set and seed that all its contenders have finished."""
    study, found = known.study, dict[tuple[str, int], float]()
    for data, seed in product(claim.data or study.data, study.seeds):
        scores = [known.judged(Run(encoder, data, rows, name, seed)) for name in claim.contrast]
        name = claim.score or study.score
        complete = [one[name] for one in scores if one is not None]
        if len(complete) == len(scores):
            found[data, seed] = sum(
                factor * score for factor, score in zip(claim.contrast.values(), complete, strict=True)
            )
    return found


def judge(studies: Iterable[Known]) -> list[Judged]:
    """All claims of the studies of a page, corrected together."""
    found = [
        Judged(known.study, claim, encoder, rows, tuple(units(known, claim, encoder, rows).values()))
        for known in studies
        for claim in known.study.claims
        for encoder, rows in product(known.study.encoders, known.study.rows)
    ]
    family = [place for place, one in enumerate(found) if one.units and not one.control]
    adjusted = holm([corrected_t_test(found[place].units, test_to_train=0.0).p for place in family])
    for place, p in zip(family, adjusted, strict=True):
        found[place] = replace(found[place], p=p)
    return found
