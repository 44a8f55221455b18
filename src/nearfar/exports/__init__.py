"""Models for other runtimes: an ONNX graph with its tokenizer, and the small library that uses it without torch."""
