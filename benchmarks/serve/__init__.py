"""Load for ``nearfar serve``: speed beside a plain server, a long run, and clients that misbehave."""
