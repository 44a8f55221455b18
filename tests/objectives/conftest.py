"""One thread: these tensors are tiny, and sharing them out costs more than the arithmetic."""

import torch

torch.set_num_threads(1)
