"""The Python interface: estimators with the contract of scikit-learn, and saved models. Torch is loaded late."""

from nearfar.estimators.classifier import Classifier
from nearfar.estimators.encoder import Encoder, Hit
from nearfar.estimators.loading import load

__all__ = ["Classifier", "Encoder", "Hit", "load"]
