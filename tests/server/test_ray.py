"""The application of ``deploy/ray_serve.py`` on a local cluster of Ray."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DEPLOY = Path(__file__).parents[2] / "deploy" / "ray_serve.py"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_replicas_answer_as_one_server(monkeypatch):
    """All paths behind one address; each replica is a whole server."""
    import httpx
    import ray
    from ray import serve

    import nearfar

    for name in ("ready", "health"):  # a busy machine starts the proxy of Ray slowly
        monkeypatch.setenv(f"RAY_SERVE_PROXY_{name.upper()}_CHECK_TIMEOUT_S", "90")
    monkeypatch.setattr("ray.serve._private.api.HTTP_PROXY_TIMEOUT", 400)
    spec = importlib.util.spec_from_file_location("ray_serve", DEPLOY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    encoder: Any = nearfar.load("toy")
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": 8765})
        serve.run(module.build({"model": "toy", "replicas": "2", "cores": "0.5", "key": "a-key"}))
        header = {"authorization": "Bearer a-key"}
        with httpx.Client(base_url="http://127.0.0.1:8765", timeout=60, headers=header) as client:
            texts = ["a saw", "an apple"]
            own = encoder.encode(texts, normalize=True)
            for _ in range(20):
                answer = client.post("/embed", json={"inputs": texts}).json()
                np.testing.assert_allclose(answer, own, atol=1e-5)
            assert client.get("/health/ready").status_code == 200
            assert client.post("/embed", json={"inputs": []}).json()["error_type"] == "Empty"
            assert client.post("/embed", json={"inputs": "a"}, headers={"authorization": "no"}).status_code == 401
            pages = [client.get("/metrics").text.splitlines() for _ in range(40)]
            seen = {line for page in pages for line in page if line.startswith("process_start_time_seconds ")}
            assert len(seen) == 2
    finally:
        serve.shutdown()
        ray.shutdown()
