"""Objectives for texts with classes: one frozen dataclass each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from nearfar.recipe.capabilities import (
    NAME,
    Capabilities,
    ClassWeight,
    Defaults,
    LearningRate,
    SecondView,
    Single,
    Temperature,
)
from nearfar.recipe.keys import Key

LabelSmoothing: TypeAlias = Annotated[
    float, Key("The label smoothing: the share of a target that is spread over all classes.", at_least=0, below=1)
]
ClassWeightKey: TypeAlias = Annotated[
    ClassWeight,
    Key(
        '"balanced" weights every class by its inverse frequency in the training data; a table has the weights of '
        "classes by their names, 1 for the others.",
        at_least=0,
    ),
]
FittedWeightKey: TypeAlias = Annotated[
    ClassWeight,
    Key(
        'The weights of classes in the head that is fitted afterwards: "balanced" for the inverse frequency, or a '
        "table of weights by class name, 1 for the others.",
        at_least=0,
    ),
]
Centers: TypeAlias = Annotated[int, Key("The number of centers of each class, K in the paper.", at_least=1)]
Gamma: TypeAlias = Annotated[
    float, Key("The softness of the assignment to the centers of a class, gamma in the paper.", above=0)
]
Scale: TypeAlias = Annotated[float, Key("The factor on all similarities, lambda in the paper.", above=0)]
CenterMargin: TypeAlias = Annotated[float, Key("The margin to the other classes, delta in the paper.", at_least=0)]
Spread: TypeAlias = Annotated[
    float, Key("The weight of the regularizer that merges centers, tau in the paper.", at_least=0)
]
Level: TypeAlias = Annotated[
    Literal["tokens", "text"], Key("Whether SoftTriple is computed on token embeddings or on the text embedding.")
]
Views: TypeAlias = Annotated[
    Literal["none", "dropout", "spans", "synonyms"],
    Key(
        'A second view of each text, which is a positive of it: "none" for no second view, "dropout" for another '
        'dropout mask, "spans" also for a masked span, "synonyms" also for synonyms of some words.'
    ),
]
PUBLISHED = Defaults(
    batch_size=64, epochs=5, learning_rate=1e-5, head_learning_rate=1e-5, pooling="first", published=True
)
"""What the paper of triple-entropy trained with."""


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Single):
    """Cross-entropy over the classes; of texts with several labels, the binary cross-entropy of each label.

    Formula:  L = -mean log softmax(logits)[class of the text]; several labels: sigmoid and BCE of each
    Reads:    single texts or pairs joined by the tokenizer, one class or several labels each
    Batches:  any
    Related:  triple-entropy adds centers on the tokens, cross-entropy+supcon compares the texts of a batch
    Paper:    the usual objective of fine-tuning: Devlin et al. 2019, arXiv:1810.04805
    """

    name: Annotated[Literal["cross-entropy"], NAME] = "cross-entropy"
    learning_rate: LearningRate = None
    label_smoothing: LabelSmoothing = 0.0
    class_weight: ClassWeightKey = "none"

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        return Capabilities(reads="classes", head_weight=1.0, multilabel=True)


@dataclass(frozen=True, kw_only=True)
class ScoreMSE(Single):
    """The squared error of the score that a linear head predicts of a text (regression).

    Formula:  L = mean of ((predicted score - score) / s)^2, with s the standard deviation of the training scores
    Reads:    single texts, one score of any range each
    Batches:  any
    Related:  cosine-mse for the score of a pair; cross-entropy for classes
    Paper:    the usual objective of regression, e.g. Devlin et al. 2019, arXiv:1810.04805, on STS-B
    """

    name: Annotated[Literal["score-mse"], NAME] = "score-mse"
    learning_rate: LearningRate = None
    does = Capabilities(reads="text-scores", head_weight=1.0)


@dataclass(frozen=True, kw_only=True)
class TripleEntropy(Single):
    """Cross-entropy blended with SoftTriple, which gives every class several centers.

    Formula:  L = beta * cross-entropy + (1 - beta) * SoftTriple, the latter on every token with its text's class
    Reads:    single texts or pairs joined by the tokenizer, one class each
    Batches:  any
    Related:  cross-entropy is the same without centers; cross-entropy+supcon needs positives in the batch instead
    Paper:    Sosnowski et al. 2022 (FedCSIS, arXiv:2112.08462); SoftTriple: Qian et al. 2019, arXiv:1909.05235
    """

    name: Annotated[Literal["triple-entropy"], NAME] = "triple-entropy"
    preset: Annotated[
        Literal["none", "as-published"],
        Key(
            '"as-published" sets the keys that are unset as in the paper: 2,000 centers, batches of 64, learning rate '
            "1e-5 for everything, first-token pooling."
        ),
    ] = "none"
    learning_rate: LearningRate = None
    beta: Annotated[float, Key("The weight of cross-entropy; SoftTriple gets the rest.", at_least=0, at_most=1)] = 0.9
    centers: Annotated[
        int | None, Key("The number of centers of each class; unset means 10, or 2,000 with the preset.", at_least=1)
    ] = None
    gamma: Gamma = 0.1
    scale: Scale = 3.3
    margin: CenterMargin = 0.3
    spread: Spread = 0.0
    level: Level = "tokens"
    padding: Annotated[
        bool, Key("Whether padding tokens count as tokens, as in the authors' code; it needs encoder.fast = false.")
    ] = False
    label_smoothing: LabelSmoothing = 0.0
    class_weight: ClassWeightKey = "none"

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        published = self.preset == "as-published"
        problem = None
        if self.padding and self.level == "text":
            problem = (
                'objective.padding counts padding tokens, and objective.level = "text" counts none: set '
                'objective.level = "tokens", or objective.padding = false.'
            )
        return Capabilities(
            reads="classes",
            head_weight=self.beta,
            text_vector=self.level == "text",
            counts_padding=self.padding,
            problem=problem,
            fills={
                "centers": self.centers or (2_000 if published else 10),
                "learning_rate": self.learning_rate or (PUBLISHED.learning_rate if published else None),
            },
            defaults=PUBLISHED if published else Defaults(),
        )


@dataclass(frozen=True, kw_only=True)
class SoftTriple(Single):
    """SoftTriple alone: every class has several trained centers, which attract the texts of the class.

    Formula:  L = -mean log softmax over classes of scale * (soft similarity to its centers - margin for the true class)
    Reads:    single texts or joined pairs, one class each; the head is fitted to the embeddings afterwards
    Batches:  any
    Related:  triple-entropy blends it with cross-entropy; proxy-nca has one center per class
    Paper:    Qian et al. 2019, arXiv:1909.05235
    """

    name: Annotated[Literal["soft-triple"], NAME] = "soft-triple"
    learning_rate: LearningRate = None
    centers: Centers = 10
    gamma: Gamma = 0.1
    scale: Scale = 20.0
    margin: CenterMargin = 0.01
    spread: Spread = 0.0
    level: Level = "text"
    class_weight: FittedWeightKey = "none"

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        return Capabilities(reads="classes", text_vector=self.level == "text")


@dataclass(frozen=True, kw_only=True)
class CrossEntropySupCon(Single):
    """Cross-entropy blended with the supervised contrastive objective.

    Formula:  L = (1 - weight) * cross-entropy + weight * SupCon on the L2-normalized text embeddings
    Reads:    single texts or pairs joined by the tokenizer, one class or several labels each
    Batches:  two or more texts of a class; an anchor without a positive in its batch counts for cross-entropy only
    Related:  triple-entropy compares with trained centers, so it does not depend on the batch
    Paper:    Gunel et al. 2021, arXiv:2011.01403; SupCon: Khosla et al. 2020, arXiv:2004.11362
    """

    name: Annotated[Literal["cross-entropy+supcon"], NAME] = "cross-entropy+supcon"
    learning_rate: LearningRate = None
    weight: Annotated[
        float, Key("The share of the contrastive part; cross-entropy gets the rest.", at_least=0, at_most=1)
    ] = 0.9
    temperature: Temperature = 0.3
    views: Views = "none"
    label_smoothing: LabelSmoothing = 0.0
    class_weight: ClassWeightKey = "none"

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        return Capabilities(
            reads="classes",
            in_batch=True,
            needs_positives=True,
            two_views=self.views != "none",
            second_views=_second_views(self.views),
            text_vector=True,
            multilabel=True,
            head_weight=1 - self.weight,
        )


@dataclass(frozen=True, kw_only=True)
class SupCon(Single):
    """Supervised contrastive loss alone: texts of a class attract each other and repel the others.

    Formula:  L = -mean over positives p of log [ exp(h_i.h_p / t) / sum over k != i of exp(h_i.h_k / t) ]; with
              several labels, a mean weighted by the Jaccard index of the labels
    Reads:    single texts or joined pairs, one class or several labels each; the head is fitted afterwards
    Batches:  two or more texts of a class (the default)
    Related:  the choice of auto for few labels; cross-entropy+supcon also trains a head
    Paper:    Khosla et al. 2020, arXiv:2004.11362
    """

    name: Annotated[Literal["supcon"], NAME] = "supcon"
    learning_rate: LearningRate = None
    temperature: Temperature = 0.1
    views: Views = "none"
    class_weight: FittedWeightKey = "none"

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        return Capabilities(
            reads="classes",
            in_batch=True,
            needs_positives=True,
            idle_without_positives=self.views == "none",
            two_views=self.views != "none",
            second_views=_second_views(self.views),
            text_vector=True,
            multilabel=True,
        )


@dataclass(frozen=True, kw_only=True)
class LabelAware(Single):
    """Label-aware contrastive loss: negatives of easily confused classes have a higher weight.

    Formula:  L = weight * CE of the model + (1 - weight) * LCL + weight * CE of the weighting network
    Reads:    single texts or joined pairs, one class each
    Batches:  two or more texts of a class; every text has two views, so each has at least one positive
    Related:  cross-entropy+supcon has equal weights for all negatives and no second encoder
    Paper:    Suresh and Ong 2021, arXiv:2109.05427
    """

    name: Annotated[Literal["label-aware"], NAME] = "label-aware"
    learning_rate: LearningRate = None
    weight: Annotated[
        float,
        Key(
            "The share of both cross-entropies, lambda in the paper; the contrastive part gets the rest.",
            at_least=0,
            at_most=1,
        ),
    ] = 0.5
    temperature: Temperature = 0.3
    views: Annotated[
        Literal["dropout", "spans", "synonyms"],
        Key(
            'The second view of each text: "dropout" for another dropout mask, "spans" also for a masked span, '
            '"synonyms" also for synonyms of some words.'
        ),
    ] = "dropout"
    weighting: Annotated[
        str | None,
        Key(
            "The encoder of the weighting network, which computes the weights of the negatives; unset means the same "
            "as encoder.name.",
            encoder=True,
        ),
    ] = None
    label_smoothing: LabelSmoothing = 0.0
    class_weight: ClassWeightKey = "none"

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        return Capabilities(
            reads="classes",
            in_batch=True,
            needs_positives=True,
            text_vector=True,
            two_views=True,
            second_views=_second_views(self.views),
            head_weight=self.weight,
            weighting=True,
            encoder=self.weighting,
        )


@dataclass(frozen=True, kw_only=True)
class ProxyNCA(Single):
    """Proxy-NCA: one trained proxy per class attracts the texts of the class and repels the others.

    Formula:  L = -mean log [ exp(-s d(z_i, proxy of the class)) / sum over other proxies of exp(-s d(z_i, p)) ]
    Reads:    single texts or joined pairs, one class each; the head is fitted to the embeddings afterwards
    Batches:  any
    Related:  soft-triple has several centers per class
    Paper:    Movshovitz-Attias et al. 2017, arXiv:1703.07464
    """

    name: Annotated[Literal["proxy-nca"], NAME] = "proxy-nca"
    learning_rate: LearningRate = None
    scale: Annotated[float, Key("The factor on all distances.", above=0)] = 1.0
    distance: Annotated[
        Literal["squared", "euclidean"],
        Key("The distance d: squared Euclidean as in the paper, or Euclidean as in that of triple-entropy."),
    ] = "squared"
    class_weight: FittedWeightKey = "none"
    does = Capabilities(reads="classes", text_vector=True)


@dataclass(frozen=True, kw_only=True)
class Triplet(Single):
    """Triplet loss on the triplets of a batch: positives should be nearer than negatives, by a margin.

    Formula:  L = mean [ d(anchor, positive) - d(anchor, negative) + margin ]+ over the chosen triplets
    Reads:    single texts or joined pairs, one class each; the head is fitted to the embeddings afterwards
    Batches:  two or more texts of a class (the default)
    Related:  supcon compares each pair with all others at once; pair-triplet reads pairs of texts
    Paper:    Hermans et al. 2017, arXiv:1703.07737
    """

    name: Annotated[Literal["triplet"], NAME] = "triplet"
    learning_rate: LearningRate = None
    margin: Annotated[float, Key("The margin between positive and negative distance.", above=0)] = 0.5
    select: Annotated[Literal["all", "hard", "semihard"], Key("Which triplets of the batch are used.")] = "all"
    distance: Annotated[Literal["euclidean", "squared"], Key("The distance between two vectors.")] = "euclidean"
    class_weight: FittedWeightKey = "none"
    does = Capabilities(
        reads="classes", in_batch=True, needs_positives=True, idle_without_positives=True, text_vector=True
    )


@dataclass(frozen=True, kw_only=True)
class Contrastive(Single):
    """Contrastive loss on all pairs of a batch: positives attract, negatives repel up to a margin.

    Formula:  L = mean of d^2 / 2 over pairs of a class and max(0, margin - d)^2 / 2 over the others
    Reads:    single texts or joined pairs, one class each; the head is fitted to the embeddings afterwards
    Batches:  two or more texts of a class (the default)
    Related:  supcon compares each pair with all others at once; contrastive-pairs reads labeled pairs
    Paper:    Hadsell et al. 2006
    """

    name: Annotated[Literal["contrastive"], NAME] = "contrastive"
    learning_rate: LearningRate = None
    margin: Annotated[float, Key("The distance beyond which negatives have no loss.", above=0)] = 1.0
    class_weight: FittedWeightKey = "none"
    does = Capabilities(reads="classes", in_batch=True, needs_positives=True, text_vector=True)


def _second_views(views: Literal["none", "dropout", "spans", "synonyms"]) -> tuple[SecondView, ...]:
    match views:
        case "spans" | "synonyms":
            return (SecondView(views),)
    return ()
