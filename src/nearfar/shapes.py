"""The axis legend, and the one check that reads it.

========  =====================================================
axis      meaning
========  =====================================================
``b``     texts of a batch (pairs: rows of the left side)
``n``     embeddings of any kind: texts, or tokens
``t``     real tokens of a batch, padding left out
``l``     length of the longest text of a batch
``d``     width of an embedding
``c``     classes
``k``     centers of a class
========  =====================================================
"""

from __future__ import annotations

from typing import Protocol

from nearfar.errors import ShapeError


class Shaped(Protocol):
    """Whatever has a shape: a tensor or an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""


def expect(**named: tuple[Shaped, str]) -> dict[str, int]:
    """Check tensors against the legend and return the size of every axis.

    >>> import numpy as np
    >>> expect(embeddings=(np.ones((4, 3)), "b d"), labels=(np.ones(4), "b"))
    {'b': 4, 'd': 3}
    >>> expect(embeddings=(np.ones((4, 3)), "b d"), labels=(np.ones(5), "b"))
    Traceback (most recent call last):
    nearfar.errors.ShapeError: labels must be (b) with b = 4 as in embeddings, got shape (5)
    """
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for name, (tensor, legend) in named.items():
        axes = legend.split()
        shape = tuple(tensor.shape)  # sizes stay symbols while a graph is traced
        if len(shape) != len(axes):
            number = "1 axis" if len(axes) == 1 else f"{len(axes)} axes"
            raise ShapeError(f"{name} must have {number} ({', '.join(axes)}), got shape {_show(shape)}")
        for axis, size in zip(axes, shape, strict=True):
            if axis.isdigit():
                if size != int(axis):
                    raise ShapeError(f"{name} must be ({', '.join(axes)}), got shape {_show(shape)}")
            elif sizes.setdefault(axis, size) != size:
                raise ShapeError(
                    f"{name} must be ({', '.join(axes)}) with {axis} = {sizes[axis]} as in {origin[axis]}, "
                    f"got shape {_show(shape)}"
                )
            else:
                origin.setdefault(axis, name)
    return sizes


def _show(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
