"""A stand-in for Google Cloud Storage on a port of this machine, in memory: ``python google_server.py PORT BUCKET``."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer

from gcp_storage_emulator import server

if __name__ == "__main__":
    server.server.HTTPServer = ThreadingHTTPServer  # pyarrow keeps several connections open
    server.create_server("127.0.0.1", int(sys.argv[1]), in_memory=True, default_bucket=sys.argv[2]).run()
