"""What all tests share: no network, no thread warnings, Ctrl-C that works, and room for torch to start slowly."""

from __future__ import annotations

import os
import signal

os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
    OMP_NUM_THREADS="1",  # several test processes run side by side: threads that wait for each other only slow them
)  # fmt: skip

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells leave it to what they start in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import settings

settings.register_profile("nearfar", deadline=None)  # the first call into torch takes as long as it takes
settings.load_profile("nearfar")
