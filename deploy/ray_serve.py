"""``nearfar serve`` on several machines: replicas of the model behind one address, by Ray Serve.

serve run deploy.ray_serve:build model=/shared/model replicas=4 cores=2
"""

from __future__ import annotations

from ray import serve
from ray.serve import Application
from starlette.types import ASGIApp

from nearfar.server import Limits, Settings, application


def build(arguments: dict[str, str]) -> Application:
    """The application for ``serve run`` and ``serve.run``.

    Args:
        arguments: ``model``, a folder that all machines reach; ``replicas``, how many hold the model; ``cores`` and
            ``gpus`` of each; ``key``, which requests must have.
    """
    cores, gpus = float(arguments.get("cores", 1)), float(arguments.get("gpus", 0))
    key = arguments.get("key")
    limits = Limits()
    settings = Settings(arguments["model"], keys=() if key is None else (key,), limits=limits)

    def replica() -> ASGIApp:
        return application(settings, eager=True)  # start-up of a replica waits for its model

    deployment = serve.deployment(
        serve.ingress(replica)(),
        name="nearfar",
        num_replicas=int(arguments.get("replicas", 1)),
        max_ongoing_requests=256,  # a replica batches the requests that it has, so it should have many
        ray_actor_options={"num_cpus": cores, "num_gpus": gpus},
        graceful_shutdown_timeout_s=limits.timeout + 10,
    )
    return deployment.bind()
