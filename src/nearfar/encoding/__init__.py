"""Text to vectors: encoders, poolings, heads, and the model folder that everyone can open."""

from nearfar.encoding.encoder import Built, Output, TextModel, build
from nearfar.encoding.heads import CenterHead, Head, LinearHead, LogisticHead, NeighborHead, make_head
from nearfar.encoding.model import Model, Prediction, load
from nearfar.encoding.model_folder import Card, save
from nearfar.encoding.pooling_modes import POOLINGS, Pooling, pool
from nearfar.encoding.sources import find
from nearfar.encoding.tokens import Inputs, Padded, TokenTable, tokenize
from nearfar.encoding.transform import Transform, TransformedModel
from nearfar.encoding.unpadded import Stream

__all__ = [
    "POOLINGS", "Built", "Card", "CenterHead", "Head", "Inputs", "LinearHead", "LogisticHead", "Model", "NeighborHead",
    "Output", "Padded", "Pooling", "Prediction", "Stream", "TextModel", "TokenTable", "Transform", "TransformedModel",
    "build", "find", "load", "make_head", "pool", "save", "tokenize",
]  # fmt: skip
