"""What stands on a text vector: the class head used where the architecture's own does not serve."""

from __future__ import annotations

from torch import Tensor, nn

from nearfar.errors import SettingError


class LinearHead(nn.Module):
    """Dropout and one linear layer: (b, d) text vectors -> (b, c) class logits.

    Args:
        dim: width of the text vector.
        classes: how many classes there are.
        dropout: share of coordinates left out while training.
    """

    def __init__(self, dim: int, classes: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        if classes < 2:
            raise SettingError(f"LinearHead: classes must be 2 or more, got {classes}.")
        if not 0 <= dropout < 1:
            raise SettingError(f"LinearHead: dropout must be at least 0 and below 1, got {dropout}; try 0.1.")
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(dim, classes)

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, c)."""
        logits: Tensor = self.linear(self.dropout(vectors))
        return logits
