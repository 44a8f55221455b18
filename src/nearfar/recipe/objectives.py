"""The objectives a recipe can name: one frozen dataclass each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from nearfar.recipe.keys import Key

ClassWeights: TypeAlias = Literal["none", "balanced"] | dict[str, float]

# Keys that several objectives share.
_Name = Key("The objective; it decides which other keys this table has.")
_LearningRate = Key(
    "The learning rate of the objective's own weights; unset means 100 times training.learning_rate.",
    above=0,
    at_most=10,
)
_LabelSmoothing = Key("The share of each target that is spread evenly over all classes.", at_least=0, below=1)
_ClassWeights = Key(
    '"balanced" weighs every class by the inverse of its frequency in the training texts; a table has the weights of '
    "classes by their names, and the others count 1.",
    at_least=0,
)
_Temperature = Key("The divisor of all similarities; lower listens more to the nearest texts.", above=0)
_Centers = Key("The centers of each class, K in the paper.", at_least=1)
_Gamma = Key("How softly a text is shared among the centers of a class.", above=0)
_Scale = Key("The factor on all similarities, lambda in the paper.", above=0)
_CenterMargin = Key("How much nearer the own class has to be, delta in the paper.", at_least=0)
_Spread = Key("The weight of the regularizer that merges needless centers.", at_least=0)
_Level = Key("Whether SoftTriple sees every token vector or one vector per text.")


@dataclass(frozen=True, kw_only=True)
class Auto:
    """What suits the data: the objective, its batches and how long to learn are chosen when the data has been read.

    Formula:  that of the chosen objective, which the run prints and the saved recipe states
    Reads:    anything
    Batches:  those of the chosen objective
    Related:  supcon for few labeled texts, cross-entropy for many, cosine-mse for scored pairs, batch-softmax for pairs
    Paper:    docs/why/few-shot-defaults.md has the measurements behind the choice
    """

    name: Annotated[Literal["auto"], _Name] = "auto"
    learning_rate: Annotated[float | None, _LearningRate] = None


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """Cross-entropy on the classes: each text's own class should be the likely one.

    Formula:  L = -mean log softmax(logits)[own class]
    Reads:    single texts or pairs joined by the tokenizer, one class each
    Batches:  any
    Related:  triple-entropy adds centers on the tokens, cross-entropy+supcon compares the texts of a batch
    Paper:    the usual objective of fine-tuning: Devlin et al. 2019, arXiv:1810.04805
    """

    name: Annotated[Literal["cross-entropy"], _Name] = "cross-entropy"
    learning_rate: Annotated[float | None, _LearningRate] = None
    label_smoothing: Annotated[float, _LabelSmoothing] = 0.0
    class_weights: Annotated[ClassWeights, _ClassWeights] = "none"


@dataclass(frozen=True, kw_only=True)
class TripleEntropy:
    """Cross-entropy blended with SoftTriple, which gives every class several centers.

    Formula:  L = beta * cross-entropy + (1 - beta) * SoftTriple, the latter on every token with its text's class
    Reads:    single texts or pairs joined by the tokenizer, one class each
    Batches:  any
    Related:  cross-entropy is the same without centers; cross-entropy+supcon needs classmates in the batch instead
    Paper:    Sosnowski et al. 2022 (FedCSIS, arXiv:2112.08462); SoftTriple: Qian et al. 2019, arXiv:1909.05235
    """

    name: Annotated[Literal["triple-entropy"], _Name] = "triple-entropy"
    preset: Annotated[
        Literal["none", "as-published"],
        Key(
            '"as-published" fills what is unset with the paper\'s settings: 2,000 centers, batches of 64, '
            "learning rate 1e-5 for everything, first-token pooling."
        ),
    ] = "none"
    learning_rate: Annotated[float | None, _LearningRate] = None
    beta: Annotated[float, Key("The weight of cross-entropy; SoftTriple gets the rest.", at_least=0, at_most=1)] = 0.9
    centers: Annotated[
        int | None, Key("The centers of each class, K in the paper; unset means 10, as published 2,000.", at_least=1)
    ] = None
    gamma: Annotated[float, _Gamma] = 0.1
    scale: Annotated[float, _Scale] = 3.3
    margin: Annotated[float, _CenterMargin] = 0.3
    spread: Annotated[float, _Spread] = 0.0
    level: Annotated[Literal["tokens", "text"], _Level] = "tokens"
    padding: Annotated[
        bool, Key("Whether padding tokens count as tokens, as in the authors' code; it needs encoder.fast = false.")
    ] = False
    label_smoothing: Annotated[float, _LabelSmoothing] = 0.0
    class_weights: Annotated[ClassWeights, _ClassWeights] = "none"


@dataclass(frozen=True, kw_only=True)
class SoftTriple:
    """SoftTriple alone: every class has several trained centers, and a text goes to those of its own class.

    Formula:  L = -mean log softmax over classes of scale * (soft similarity to the class's centers - margin if own)
    Reads:    single texts or joined pairs, one class each; the class head is fitted to the vectors afterwards
    Batches:  any
    Related:  triple-entropy blends it with cross-entropy; proxy-nca has one center a class
    Paper:    Qian et al. 2019, arXiv:1909.05235
    """

    name: Annotated[Literal["soft-triple"], _Name] = "soft-triple"
    learning_rate: Annotated[float | None, _LearningRate] = None
    centers: Annotated[int, _Centers] = 10
    gamma: Annotated[float, _Gamma] = 0.1
    scale: Annotated[float, _Scale] = 20.0
    margin: Annotated[float, _CenterMargin] = 0.01
    spread: Annotated[float, _Spread] = 0.0
    level: Annotated[Literal["tokens", "text"], _Level] = "text"


@dataclass(frozen=True, kw_only=True)
class CrossEntropySupCon:
    """Cross-entropy blended with the supervised contrastive objective: classmates come near each other.

    Formula:  L = (1 - weight) * cross-entropy + weight * SupCon on the L2-normalized text vectors
    Reads:    single texts or pairs joined by the tokenizer, one class each
    Batches:  two or more texts of a class; a text without a classmate in its batch counts for cross-entropy only
    Related:  triple-entropy compares with trained centers, so it does not depend on the batch
    Paper:    Gunel et al. 2021, arXiv:2011.01403; SupCon: Khosla et al. 2020, arXiv:2004.11362
    """

    name: Annotated[Literal["cross-entropy+supcon"], _Name] = "cross-entropy+supcon"
    learning_rate: Annotated[float | None, _LearningRate] = None
    weight: Annotated[
        float, Key("The share of the contrastive part; cross-entropy gets the rest.", at_least=0, at_most=1)
    ] = 0.9
    temperature: Annotated[float, _Temperature] = 0.3
    label_smoothing: Annotated[float, _LabelSmoothing] = 0.0
    class_weights: Annotated[ClassWeights, _ClassWeights] = "none"


@dataclass(frozen=True, kw_only=True)
class SupCon:
    """The supervised contrastive objective alone: texts of a class come near each other and leave the others.

    Formula:  L = -mean over classmates p of log [ exp(h_i.h_p / t) / sum over k != i of exp(h_i.h_k / t) ]
    Reads:    single texts or joined pairs, one class each; the class head is fitted to the vectors afterwards
    Batches:  two or more texts of a class; chosen so by itself
    Related:  the choice of auto for few labels; cross-entropy+supcon trains a head beside it
    Paper:    Khosla et al. 2020, arXiv:2004.11362
    """

    name: Annotated[Literal["supcon"], _Name] = "supcon"
    learning_rate: Annotated[float | None, _LearningRate] = None
    temperature: Annotated[float, _Temperature] = 0.1


@dataclass(frozen=True, kw_only=True)
class LabelAware:
    """Label-aware contrastive: classes that are easily confused push each other away harder.

    Formula:  L = weight * CE of the model + (1 - weight) * LCL + weight * CE of the weighting network
    Reads:    single texts or joined pairs, one class each
    Batches:  two or more texts of a class; every text is seen in two views, so each has at least one positive
    Related:  cross-entropy+supcon weighs all negatives the same and needs no second encoder
    Paper:    Suresh and Ong 2021, arXiv:2109.05427
    """

    name: Annotated[Literal["label-aware"], _Name] = "label-aware"
    learning_rate: Annotated[float | None, _LearningRate] = None
    weight: Annotated[
        float,
        Key("The share of both cross-entropies, lambda in the paper; the contrastive part gets the rest.",
            at_least=0, at_most=1),
    ] = 0.5  # fmt: skip
    temperature: Annotated[float, _Temperature] = 0.3
    views: Annotated[
        Literal["dropout", "spans", "synonyms"],
        Key("How the second view of a text differs: dropout alone, a masked span as well, or synonyms as well."),
    ] = "dropout"
    weighting: Annotated[
        str | None, Key("The encoder of the weighting network; unset means the same as encoder.name.")
    ] = None
    label_smoothing: Annotated[float, _LabelSmoothing] = 0.0
    class_weights: Annotated[ClassWeights, _ClassWeights] = "none"


@dataclass(frozen=True, kw_only=True)
class ProxyNCA:
    """Proxy-NCA: one trained proxy a class draws its texts and repels the others.

    Formula:  L = -mean log [ exp(-s d(z_i, own proxy)) / sum over other proxies of exp(-s d(z_i, p)) ]
    Reads:    single texts or joined pairs, one class each; the class head is fitted to the vectors afterwards
    Batches:  any
    Related:  soft-triple has several centers a class
    Paper:    Movshovitz-Attias et al. 2017, arXiv:1703.07464
    """

    name: Annotated[Literal["proxy-nca"], _Name] = "proxy-nca"
    learning_rate: Annotated[float | None, _LearningRate] = None
    scale: Annotated[float, Key("The factor on all distances.", above=0)] = 1.0


@dataclass(frozen=True, kw_only=True)
class Triplet:
    """Triplets of a batch: a classmate should be nearer than a text of another class, by a margin.

    Formula:  L = mean [ d(anchor, positive) - d(anchor, negative) + margin ]+ over the chosen triplets
    Reads:    single texts or joined pairs, one class each; the class head is fitted to the vectors afterwards
    Batches:  two or more texts of a class; chosen so by itself
    Related:  supcon compares each pair with all others at once; pair-triplet reads pairs of texts
    Paper:    Hermans et al. 2017, arXiv:1703.07737
    """

    name: Annotated[Literal["triplet"], _Name] = "triplet"
    learning_rate: Annotated[float | None, _LearningRate] = None
    margin: Annotated[float, Key("How much farther a text of another class has to be.", above=0)] = 0.5
    select: Annotated[Literal["all", "hard", "semihard"], Key("Which triplets of the batch count.")] = "all"
    distance: Annotated[Literal["euclidean", "squared"], Key("The distance between two vectors.")] = "euclidean"


@dataclass(frozen=True, kw_only=True)
class Contrastive:
    """All pairs of a batch: classmates come together, others leave until a margin is between them.

    Formula:  L = mean of d^2 / 2 over classmates and max(0, margin - d)^2 / 2 over the others
    Reads:    single texts or joined pairs, one class each; the class head is fitted to the vectors afterwards
    Batches:  two or more texts of a class; chosen so by itself
    Related:  supcon compares each pair with all others at once; contrastive-pairs reads labeled pairs
    Paper:    Hadsell et al. 2006
    """

    name: Annotated[Literal["contrastive"], _Name] = "contrastive"
    learning_rate: Annotated[float | None, _LearningRate] = None
    margin: Annotated[float, Key("The distance beyond which texts of different classes are left alone.", above=0)] = 1.0


@dataclass(frozen=True, kw_only=True)
class BatchSoftmax:
    """Batch-softmax contrastive: a text finds its partner among all right texts of the batch, and the other way round.

    Formula:  L = L0 + L1, L0 = -mean log of the diagonal of softmax over rows of (Q A^T / t), L1 the same with A Q^T
    Reads:    pairs with a label, a score or nothing; triplets, whose negatives join the batch
    Batches:  the harder the better: batches.shuffle = "neighbors" puts like pairs together
    Related:  mnrl is one direction with scale 20; blend it with cosine-mse for the paper's combo
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725
    """

    name: Annotated[Literal["batch-softmax"], _Name] = "batch-softmax"
    learning_rate: Annotated[float | None, _LearningRate] = None
    temperature: Annotated[float, _Temperature] = 0.1
    trainable: Annotated[bool, Key("Whether the temperature is learned, too.")] = False
    symmetric: Annotated[bool, Key("Whether right texts look for their left ones as well.")] = True
    normalize: Annotated[
        Literal["row", "coordinate", "minmax", "none"],
        Key("How vectors are scaled before they are compared; by coordinate, temperatures of 1 to 3 fit."),
    ] = "row"
    threshold: Annotated[
        float | None,
        Key(
            "A pair whose target, from 0 to 1, is above counts as a positive; unset means 0.5 for graded scores.",
            at_least=0,
            below=1,
        ),
    ] = None
    reduction: Annotated[
        Literal["positives", "all"], Key("Whether labeled negatives count as zeros in the mean or not at all.")
    ] = "positives"
    hard_negative_weight: Annotated[
        float, Key("What is added to the similarity of a row's own negative, for triplets.")
    ] = 0.0
    groups: Annotated[bool, Key("Whether texts known to belong together are never each other's negatives.")] = True


@dataclass(frozen=True, kw_only=True)
class MultipleNegatives:
    """Multiple negatives ranking: one direction of batch-softmax with cosine scale 20.

    Formula:  L = -mean log of the diagonal of softmax over rows of (scale * cos(q_i, a_j))
    Reads:    pairs with a label, a score or nothing; triplets, whose negatives join the batch
    Batches:  large ones, any composition
    Related:  batch-softmax has all variations of it
    Paper:    Henderson et al. 2017, arXiv:1705.00652
    """

    name: Annotated[Literal["mnrl"], _Name] = "mnrl"
    learning_rate: Annotated[float | None, _LearningRate] = None
    scale: Annotated[float, Key("The factor on all cosines, 1 over the temperature.", above=0)] = 20.0
    groups: Annotated[bool, Key("Whether texts known to belong together are never each other's negatives.")] = False


@dataclass(frozen=True, kw_only=True)
class CosineMSE:
    """The cosine of a pair should be its score.

    Formula:  L = mean (cos(q_i, a_i) - y_i)^2
    Reads:    pairs with a score or a yes-or-no label
    Batches:  any
    Related:  pearson asks for the order and spacing only; blended with batch-softmax it is the paper's combo
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725
    """

    name: Annotated[Literal["cosine-mse"], _Name] = "cosine-mse"
    learning_rate: Annotated[float | None, _LearningRate] = None


@dataclass(frozen=True, kw_only=True)
class Pearson:
    """The cosines of a batch should correlate with its scores.

    Formula:  L = 1 - correlation of cos(q_i, a_i) and y_i over the batch
    Reads:    pairs with a score or a yes-or-no label
    Batches:  of a dozen or more, so that a correlation means something
    Related:  cosine-mse asks for the values themselves
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725
    """

    name: Annotated[Literal["pearson"], _Name] = "pearson"
    learning_rate: Annotated[float | None, _LearningRate] = None


@dataclass(frozen=True, kw_only=True)
class PairTriplet:
    """A pair's right text should be nearer to the left one than a negative, by a margin.

    Formula:  L = mean [ d(q_i, a_i) - d(q_i, n) + margin ]+
    Reads:    triplets; or pairs, whose negatives are the hardest right texts of the batch
    Batches:  any for triplets; large or hard ones for pairs
    Related:  batch-softmax compares with the whole batch; triplet reads texts with classes
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725
    """

    name: Annotated[Literal["pair-triplet"], _Name] = "pair-triplet"
    learning_rate: Annotated[float | None, _LearningRate] = None
    margin: Annotated[float, Key("How much farther a negative has to be.", above=0)] = 0.5
    distance: Annotated[Literal["euclidean", "squared", "cosine"], Key("The distance between two vectors.")] = (
        "euclidean"
    )


@dataclass(frozen=True, kw_only=True)
class ContrastivePairs:
    """Positive pairs come together, negative ones leave until a margin is between them.

    Formula:  L = mean of y d^2 / 2 + (1 - y) max(0, margin - d)^2 / 2 with d = 1 - cosine
    Reads:    pairs with a yes-or-no label
    Batches:  any
    Related:  contrastive reads texts with classes
    Paper:    Hadsell et al. 2006
    """

    name: Annotated[Literal["contrastive-pairs"], _Name] = "contrastive-pairs"
    learning_rate: Annotated[float | None, _LearningRate] = None
    margin: Annotated[float, Key("The distance beyond which negative pairs are left alone.", above=0)] = 0.5


@dataclass(frozen=True, kw_only=True)
class SimCSE:
    """Two dropout masks make two views of a text, which must find each other among all texts of the batch.

    Formula:  L = -mean log [ exp(cos(h_i, h_i') / t) / sum over j of exp(cos(h_i, h_j') / t) ]
    Reads:    plain texts; pairs that belong together; triplets, whose negatives join the batch
    Batches:  large ones, any composition
    Related:  mirror also masks a span; mnrl is the same on pairs
    Paper:    Gao et al. 2021, arXiv:2104.08821
    """

    name: Annotated[Literal["simcse"], _Name] = "simcse"
    learning_rate: Annotated[float | None, _LearningRate] = None
    temperature: Annotated[float, _Temperature] = 0.05
    projection: Annotated[
        bool, Key("Whether a layer stands between the vectors and the objective while training on plain texts.")
    ] = True
    hard_negative_weight: Annotated[
        float, Key("What is added to the similarity of a row's own negative, for triplets.")
    ] = 0.0
    views: Annotated[
        Literal["dropout", "words", "synonyms"],
        Key("How the second view of a plain text differs: dropout alone, or dropped words or synonyms as well."),
    ] = "dropout"
    mlm_weight: Annotated[
        float,
        Key("How much naming masked words counts beside it; 0 leaves that out, and the paper takes 0.1.", at_least=0),
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """Mirror-BERT: a text and itself with a masked span and another dropout mask must find each other in the batch.

    Formula:  that of simcse, the second view with a span replaced by mask tokens
    Reads:    plain texts: sentences, phrases or words
    Batches:  large ones, any composition
    Related:  simcse relies on dropout alone
    Paper:    Liu et al. 2021, arXiv:2104.08027
    """

    name: Annotated[Literal["mirror"], _Name] = "mirror"
    learning_rate: Annotated[float | None, _LearningRate] = None
    granularity: Annotated[
        Literal["sentences", "phrases", "words"],
        Key("What the texts are; it sets what is unset: temperature, masked, epochs, and how much of a text is read."),
    ] = "sentences"
    preset: Annotated[
        Literal["none", "as-published"],
        Key(
            '"as-published" fills what is unset with the settings of the authors\' code: characters instead of tokens, '
            "batches of 200, and for phrases and words no mask and the first token as pooling."
        ),
    ] = "none"
    temperature: Annotated[
        float | None,
        Key("The divisor of all similarities; unset means 0.04 for sentences and 0.2 for phrases and words.", above=0),
    ] = None
    masked: Annotated[
        int | None,
        Key("How many tokens are masked in the second view; unset means 5 for sentences and 2 otherwise.", at_least=0),
    ] = None
    unit: Annotated[
        Literal["tokens", "characters"] | None,
        Key("Whether tokens are masked, or characters as in the authors' code; unset means tokens without a preset."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Blend:
    """A weighted sum of objectives; the combo of the batch-softmax paper is batch-softmax with cosine-mse.

    Formula:  L = sum over parts of weight * L of the part
    Reads:    what its parts read; all of them must read the same shape
    Batches:  those of the part that asks for most
    Related:  stages train with one objective after the other
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725, eq. 6
    """

    name: Annotated[Literal["blend"], _Name] = "blend"
    learning_rate: Annotated[float | None, _LearningRate] = None
    weights: Annotated[
        dict[str, float], Key("How much each part counts; a part that is not named here counts 1.", at_least=0)
    ] = field(default_factory=dict)
    parts: Annotated[
        dict[str, Single], Key("The objectives that are added up, by names of your choice for the journal.")
    ] = field(default_factory=dict)


Single: TypeAlias = (
    CrossEntropy
    | TripleEntropy
    | SoftTriple
    | CrossEntropySupCon
    | SupCon
    | LabelAware
    | ProxyNCA
    | Triplet
    | Contrastive
    | BatchSoftmax
    | MultipleNegatives
    | CosineMSE
    | Pearson
    | PairTriplet
    | ContrastivePairs
    | SimCSE
    | Mirror
)
"""Objectives that a blend can hold."""

Objective: TypeAlias = Auto | Single | Blend

PairObjective: TypeAlias = (
    BatchSoftmax | MultipleNegatives | CosineMSE | Pearson | PairTriplet | ContrastivePairs | SimCSE | Mirror
)
"""Objectives that compare the two texts of a pair, each encoded by itself."""

ViewObjective: TypeAlias = SimCSE | Mirror
"""Objectives for which two views of a text are a pair."""

OBJECTIVES: dict[str, type[Objective]] = {
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
"""Every objective by the name a recipe uses."""
