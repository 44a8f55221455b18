"""All objectives of recipes: tables for classes and for pairs, blends, and the automatic choice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from nearfar.recipe.capabilities import (
    NAME,
    OBJECTIVES,
    Capabilities,
    ClassWeight,
    LearningRate,
    Objective,
    Single,
    combine,
)
from nearfar.recipe.class_objectives import (
    ClassWeightKey,
    Contrastive,
    CrossEntropy,
    CrossEntropySupCon,
    LabelAware,
    ProxyNCA,
    ScoreMSE,
    SoftTriple,
    SupCon,
    TripleEntropy,
    Triplet,
)
from nearfar.recipe.keys import Key
from nearfar.recipe.pair_objectives import (
    BatchSoftmax,
    ContrastivePairs,
    CosineMSE,
    Mirror,
    MultipleNegatives,
    PairTriplet,
    Pearson,
    SimCSE,
)


@dataclass(frozen=True, kw_only=True)
class Auto(Objective):
    """The default objective of the data; it is chosen together with batches and epochs when the data is read.

    Formula:  that of the chosen objective, which the run prints and the saved recipe has
    Reads:    anything
    Batches:  those of the chosen objective
    Related:  supcon for few labeled texts, cross-entropy for many, score-mse for scored texts,
              cosine-mse for scored pairs, batch-softmax for pairs
    Paper:    docs/why/few-shot-defaults.md has the measurements behind the choice
    """

    name: Annotated[Literal["auto"], NAME] = "auto"
    learning_rate: LearningRate = None
    class_weight: ClassWeightKey = "none"
    does = Capabilities(reads="any")


@dataclass(frozen=True, kw_only=True)
class Blend(Objective):
    """A weighted sum of objectives; the batch-softmax paper has batch-softmax with cosine-mse.

    Formula:  L = sum over parts of weight * L of the part
    Reads:    what its parts read; all of them must read the same type of rows
    Batches:  those of the part that needs most
    Related:  stages train with one objective after the other
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725, eq. 6
    """

    name: Annotated[Literal["blend"], NAME] = "blend"
    learning_rate: LearningRate = None
    weights: Annotated[
        dict[str, float], Key("The weight of each part; 1 for a part that is not named here.", at_least=0)
    ] = field(default_factory=dict)
    parts: Annotated[dict[str, Single], Key("The objectives of the sum, by names of your choice for the journal.")] = (
        field(default_factory=dict)
    )

    @property
    def class_weight(self) -> ClassWeight:
        """That of the first part that has one."""
        return next((part.class_weight for part in self.parts.values() if part.class_weight != "none"), "none")

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        made = combine((self.weights.get(name, 1.0), part.does) for name, part in self.parts.items())
        parts = {name: part.filled() for name, part in self.parts.items()}
        return replace(made, problem=self._problem() or made.problem, fills={"parts": parts})

    def _problem(self) -> str | None:
        if not self.parts:
            return 'objective.name is "blend", which needs parts: [objective.parts.NAME] with a name = "..." for each.'
        strange = sorted(set(self.weights) - set(self.parts))
        if strange:
            known = ", ".join(self.parts)
            return f"objective.weights names {strange[0]!r}, which is no part; the parts are {known}."
        if not any(self.weights.get(name, 1.0) for name in self.parts):
            return "objective.weights are all zero, so nothing would be learned; give some part a weight."
        apart = [name for name, part in self.parts.items() if not part.does.in_batch]
        if apart and any(part.does.by_anchor for part in self.parts.values()):
            return (
                f'negatives = "anchor" makes triplets of pairs, which have no labels for {self.parts[apart[0]].name}; '
                'set negatives = "batch", or train in stages.'
            )
        return None


def parts_of(objective: Objective) -> dict[str, Objective]:
    """The parts of a blend by their keys in a recipe, or the objective itself."""
    if isinstance(objective, Blend):
        return {f"objective.parts.{name}": part for name, part in objective.parts.items()}
    return {"objective": objective}


OBJECTIVES.update(
    {
        "auto": Auto,
        "cross-entropy": CrossEntropy,
        "triple-entropy": TripleEntropy,
        "soft-triple": SoftTriple,
        "cross-entropy+supcon": CrossEntropySupCon,
        "supcon": SupCon,
        "label-aware": LabelAware,
        "proxy-nca": ProxyNCA,
        "triplet": Triplet,
        "contrastive": Contrastive,
        "score-mse": ScoreMSE,
        "batch-softmax": BatchSoftmax,
        "mnrl": MultipleNegatives,
        "cosine-mse": CosineMSE,
        "pearson": Pearson,
        "pair-triplet": PairTriplet,
        "contrastive-pairs": ContrastivePairs,
        "simcse": SimCSE,
        "mirror": Mirror,
        "blend": Blend,
    }
)
