"""The logger of the probe."""

import logging

log = logging.getLogger("whylate_vllm")
if not log.level:
    log.setLevel(logging.WARNING)  # vLLM's API server raises the root's level to errors only
