"""whylate's probe for vLLM: installed is on, `WHYLATE_PROBE=off` is off."""

import logging

_registered = False


def register() -> None:
    """The entry point of `vllm.general_plugins`. Whatever happens here, vLLM goes on."""
    global _registered
    try:
        from . import identity

        if _registered or identity.switched_off():
            return
        _registered = True
        identity.incarnate()
        from . import plugin

        plugin.install()
    except Exception as error:
        logging.getLogger("whylate_vllm").warning("whylate is not installed in this process: %s", error, exc_info=error)
