"""Text to vectors: encoders, poolings, heads, and the model folder that everyone can open."""

from nearfar.encoding.bundle import Card, save
from nearfar.encoding.encoder import Built, Output, TextModel, build
from nearfar.encoding.heads import CenterHead, Head, LinearHead, LogisticHead, NeighborHead, make_head
from nearfar.encoding.model import Model, Prediction, load
from nearfar.encoding.packed import Stream
from nearfar.encoding.pooling import POOLINGS, Pooling, pool
from nearfar.encoding.sources import find
from nearfar.encoding.tokens import Inputs, Padded, TokenTable, tokenize
from nearfar.encoding.transform import Transform, TransformedModel

__all__ = [
    "POOLINGS", "Built", "Card", "CenterHead", "Head", "Inputs", "LinearHead", "LogisticHead", "Model", "NeighborHead",
    "Output", "Padded", "Pooling", "Prediction", "Stream", "TextModel", "TokenTable", "Transform", "TransformedModel",
    "build", "find", "load", "make_head", "pool", "save", "tokenize",
]  # fmt: skip
