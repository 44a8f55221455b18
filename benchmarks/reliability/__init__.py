"""What is tried to break a run or a model: run by ``make torture``."""
