"""Encoders with random weights, of the families that the encoding tests have."""

from tests.encoding.conftest import tiny as tiny
