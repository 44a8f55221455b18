"""Objectives for pairs of texts, or for two views of a text: one frozen dataclass each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from nearfar.recipe.capabilities import NAME, Capabilities, Defaults, LearningRate, SecondView, Single, Temperature
from nearfar.recipe.keys import Key


@dataclass(frozen=True, kw_only=True)
class BatchSoftmax(Single):
    """Batch-softmax contrastive loss (InfoNCE with in-batch negatives), in both directions.

    Formula:  L = L0 + L1, L0 = -mean log of the diagonal of softmax over rows of (Q A^T / t), L1 the same with A Q^T;
              Q and A are the normalized embeddings of the left and of the right texts, t is the temperature
    Reads:    pairs with a label, a score or nothing; triplets, whose negatives join the batch
    Batches:  large ones; batches.shuffle = "neighbors" puts similar pairs into a batch, as hard negatives
    Related:  mnrl is one direction with scale 20; a blend with cosine-mse is the combination of the paper
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725
    """

    name: Annotated[Literal["batch-softmax"], NAME] = "batch-softmax"
    learning_rate: LearningRate = None
    temperature: Temperature = 0.1
    trainable: Annotated[bool, Key("Whether the temperature is trained.")] = False
    symmetric: Annotated[bool, Key("Whether the loss is computed in both directions.")] = True
    normalize: Annotated[
        Literal["row", "coordinate", "minmax", "none"],
        Key(
            'How embeddings are normalized: "row" to length 1 (cosine), "coordinate" and "minmax" each coordinate over '
            "the batch, for temperatures of 1 to 3."
        ),
    ] = "row"
    threshold: Annotated[
        float | None,
        Key(
            "The score, from 0 to 1, above which a pair is positive; unset means 0.5 for scores, and for ranking the "
            "grades that are relevant (data.relevant).",
            at_least=0,
            below=1,
        ),
    ] = None
    reduction: Annotated[
        Literal["positives", "all"],
        Key("Whether the loss is averaged over the positive pairs, or over all pairs, of which negative ones have 0."),
    ] = "positives"
    hard_negative_weight: Annotated[
        float, Key("The weight of the negative of a triplet: a number that is added to its similarity.")
    ] = 0.0
    groups: Annotated[
        bool, Key("Whether texts that are connected by positive pairs are never used as negatives of each other.")
    ] = True

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        return Capabilities(reads="pairs", in_batch=True, threshold=self.threshold)


@dataclass(frozen=True, kw_only=True)
class MultipleNegatives(Single):
    """Multiple negatives ranking loss (InfoNCE with in-batch negatives): one direction of batch-softmax, scale 20.

    Formula:  L = -mean log of the diagonal of softmax over rows of (scale * cos(q_i, a_j))
    Reads:    pairs with a label, a score or nothing; triplets, whose negatives join the batch
    Batches:  large ones, any composition
    Related:  batch-softmax has more settings
    Paper:    Henderson et al. 2017, arXiv:1705.00652
    """

    name: Annotated[Literal["mnrl"], NAME] = "mnrl"
    learning_rate: LearningRate = None
    scale: Annotated[float, Key("The factor on all cosines, 1 over the temperature.", above=0)] = 20.0
    groups: Annotated[
        bool, Key("Whether texts that are connected by positive pairs are never used as negatives of each other.")
    ] = False
    does = Capabilities(reads="pairs", in_batch=True)


@dataclass(frozen=True, kw_only=True)
class CosineMSE(Single):
    """Mean squared error between the cosine of a pair and its score.

    Formula:  L = mean (cos(q_i, a_i) - y_i)^2
    Reads:    pairs with a score or a binary label
    Batches:  any
    Related:  pearson is invariant to shift and scale; a blend with batch-softmax is the combination of the paper
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725
    """

    name: Annotated[Literal["cosine-mse"], NAME] = "cosine-mse"
    learning_rate: LearningRate = None
    does = Capabilities(reads="pairs")


@dataclass(frozen=True, kw_only=True)
class Pearson(Single):
    """Pearson correlation between the cosines of a batch and its scores.

    Formula:  L = 1 - correlation of cos(q_i, a_i) and y_i over the batch
    Reads:    pairs with a score or a binary label
    Batches:  a dozen rows or more, for a meaningful correlation
    Related:  cosine-mse fits the values themselves
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725
    """

    name: Annotated[Literal["pearson"], NAME] = "pearson"
    learning_rate: LearningRate = None
    does = Capabilities(reads="pairs")


@dataclass(frozen=True, kw_only=True)
class PairTriplet(Single):
    """Triplet loss: the right text of a pair should be nearer to the left one than a negative, by a margin.

    Formula:  L = mean [ d(q_i, a_i) - d(q_i, n) + margin ]+
    Reads:    triplets; or pairs, whose negatives are the hardest right texts of the batch, or labeled ones
    Batches:  any for triplets; large or hard ones for pairs
    Related:  batch-softmax compares with the whole batch; triplet reads texts with classes
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725
    """

    name: Annotated[Literal["pair-triplet"], NAME] = "pair-triplet"
    learning_rate: LearningRate = None
    margin: Annotated[float, Key("The margin between positive and negative distance.", above=0)] = 0.5
    distance: Annotated[Literal["euclidean", "squared", "cosine"], Key("The distance between two vectors.")] = (
        "euclidean"
    )
    negatives: Annotated[
        Literal["batch", "anchor"],
        Key(
            'The negatives of pairs: "batch" for the most similar right text of the batch that is no positive, '
            '"anchor" for labeled negatives of the same left text, each in a triplet with each of its positives.'
        ),
    ] = "batch"

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        return Capabilities(reads="pairs", in_batch=True, binary=True, by_anchor=self.negatives == "anchor")


@dataclass(frozen=True, kw_only=True)
class ContrastivePairs(Single):
    """Contrastive loss on labeled pairs: positives attract, negatives repel up to a margin.

    Formula:  L = mean of y d^2 / 2 + (1 - y) max(0, margin - d)^2 / 2 with d = 1 - cosine
    Reads:    pairs with a binary label
    Batches:  any
    Related:  contrastive reads texts with classes
    Paper:    Hadsell et al. 2006
    """

    name: Annotated[Literal["contrastive-pairs"], NAME] = "contrastive-pairs"
    learning_rate: LearningRate = None
    margin: Annotated[float, Key("The distance beyond which negative pairs have no loss.", above=0)] = 0.5
    does = Capabilities(reads="pairs", binary=True)


@dataclass(frozen=True, kw_only=True)
class SimCSE(Single):
    """SimCSE: two dropout masks give two views of a text, which are a positive pair among in-batch negatives.

    Formula:  L = -mean log [ exp(cos(h_i, h_i') / t) / sum over j of exp(cos(h_i, h_j') / t) ]
    Reads:    plain texts; positive pairs; triplets, whose negatives join the batch
    Batches:  large ones, any composition
    Related:  mirror also masks a span; mnrl is the same on pairs
    Paper:    Gao et al. 2021, arXiv:2104.08821
    """

    name: Annotated[Literal["simcse"], NAME] = "simcse"
    learning_rate: LearningRate = None
    temperature: Temperature = 0.05
    projection: Annotated[
        bool, Key("Whether there is a projection layer before the objective in training on plain texts.")
    ] = True
    hard_negative_weight: Annotated[
        float, Key("The weight of the negative of a triplet: a number that is added to its similarity.")
    ] = 0.0
    views: Annotated[
        Literal["dropout", "words", "synonyms"],
        Key(
            'The second view of a plain text: "dropout" for another dropout mask, "words" also for deleted words, '
            '"synonyms" also for synonyms of some words.'
        ),
    ] = "dropout"
    mlm_weight: Annotated[
        float, Key("The weight of the masked language modeling loss; 0 is none, and the paper has 0.1.", at_least=0)
    ] = 0.0

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        return Capabilities(
            reads="views",
            in_batch=True,
            binary=True,
            second_views=() if self.views == "dropout" else (SecondView(self.views, plain_only=True),),
            needs_negatives=bool(self.hard_negative_weight),
            projection=self.projection,
            masked_words=bool(self.mlm_weight),
            defaults=Defaults(batch_size=128, epochs=1, learning_rate=2e-5),
        )


@dataclass(frozen=True, kw_only=True)
class Mirror(Single):
    """Mirror-BERT: a text and its copy with a masked span and another dropout mask are a positive pair.

    Formula:  as simcse, with a span of the second view replaced by mask tokens
    Reads:    plain texts: sentences, phrases or words
    Batches:  large ones, any composition
    Related:  simcse has dropout alone
    Paper:    Liu et al. 2021, arXiv:2104.08027
    """

    name: Annotated[Literal["mirror"], NAME] = "mirror"
    learning_rate: LearningRate = None
    granularity: Annotated[
        Literal["sentences", "phrases", "words"],
        Key(
            "The kind of texts, which sets the defaults of temperature, masked, training.epochs and encoder.max_length."
        ),
    ] = "sentences"
    preset: Annotated[
        Literal["none", "as-published"],
        Key(
            '"as-published" sets the keys that are unset as in the authors\' code: negatives of both views, characters '
            "instead of tokens, batches of 200, a constant learning rate without warmup, and for phrases and words no "
            "mask and the first token as pooling."
        ),
    ] = "none"
    temperature: Annotated[
        float | None, Key("The temperature; unset means 0.04 for sentences and 0.2 for phrases and words.", above=0)
    ] = None
    masked: Annotated[
        int | None,
        Key("The number of tokens masked in the second view; unset means 5 for sentences and 2 otherwise.", at_least=0),
    ] = None
    unit: Annotated[
        Literal["tokens", "characters"] | None,
        Key(
            "Whether the length of the masked span is in tokens, or in characters as in the authors' code; unset means "
            "tokens, or characters with the preset."
        ),
    ] = None

    negatives: Annotated[
        Literal["other-view", "both-views"] | None,
        Key(
            '"other-view" compares first with second views; "both-views" is the loss of the authors\' code (NT-Xent): '
            "each view with all others, in both directions; unset means other-view, or both-views with the preset."
        ),
    ] = None

    @property
    def does(self) -> Capabilities:
        """What it reads, needs and does."""
        sentences, published = self.granularity == "sentences", self.preset == "as-published"
        masked = self.masked
        if masked is None:
            masked = 5 if sentences else 0 if published else 2
        unit = self.unit or ("characters" if published else "tokens")
        pooling: Literal["first", "mean"] | None = None
        if published:
            pooling = "mean" if sentences else "first"
        return Capabilities(
            reads="views",
            in_batch=True,
            binary=True,
            second_views=(SecondView("spans", {"length": masked, "mode": unit}),) if masked else (),
            fills={
                "temperature": self.temperature or (0.04 if sentences else 0.2),
                "masked": masked,
                "unit": unit,
                "negatives": self.negatives or ("both-views" if published else "other-view"),
            },
            defaults=Defaults(
                batch_size=200 if published else 128,
                epochs=1 if sentences else 2,
                learning_rate=2e-5,
                pooling=pooling,
                max_length=50 if sentences else 25,
                schedule="constant" if published else None,
                warmup=0.0 if published else None,
                published=published,
            ),
        )
