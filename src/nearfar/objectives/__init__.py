"""Objectives: embeddings to a loss. They see tensors only, never texts, files or encoders."""

from nearfar.objectives.batch_softmax import BatchSoftmax
from nearfar.objectives.blend import Blend
from nearfar.objectives.contrastive import Contrastive
from nearfar.objectives.cosine_mse import CosineMSE
from nearfar.objectives.cross_entropy import CrossEntropy, balanced_weights
from nearfar.objectives.label_aware import LabelAware
from nearfar.objectives.multi_label import BinaryCrossEntropy, MultiLabelSupCon, positive_weights
from nearfar.objectives.nt_xent import NTXent
from nearfar.objectives.pair_contrastive import PairContrastive
from nearfar.objectives.pair_triplet import PairTriplet
from nearfar.objectives.pearson import Pearson
from nearfar.objectives.proxy_nca import ProxyNCA
from nearfar.objectives.soft_triple import SoftTriple
from nearfar.objectives.supcon import SupCon
from nearfar.objectives.triplet import Triplet

__all__ = [
    "BatchSoftmax",
    "BinaryCrossEntropy",
    "Blend",
    "Contrastive",
    "CosineMSE",
    "CrossEntropy",
    "LabelAware",
    "MultiLabelSupCon",
    "NTXent",
    "PairContrastive",
    "PairTriplet",
    "Pearson",
    "ProxyNCA",
    "SoftTriple",
    "SupCon",
    "Triplet",
    "balanced_weights",
    "positive_weights",
]
