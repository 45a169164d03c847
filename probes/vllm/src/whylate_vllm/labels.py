"""Whose a request is, and what kind of one, in keyed hashes: what a header or the request itself says never reaches a ring."""

import os
from hashlib import blake2b

KINDS = "tenant", "class", "route"
KEY_SIZE = 32


class Labels:
    """Which headers say them, and the key; without one nothing is recorded."""

    def __init__(self):
        self.key, self.why = read_key(os.environ.get("WHYLATE_KEY_FILE", ""))
        named = {kind: os.environ.get(f"WHYLATE_{kind.upper()}_HEADER", "").strip().lower().encode() for kind in KINDS}
        self.headers = {kind: header for kind, header in named.items() if header}

    def capabilities(self) -> dict[str, bool]:
        """The tenant may also come from the request's `user`."""
        return {kind: bool(self.key) and (kind in self.headers or kind == "tenant") for kind in KINDS}

    def of(self, headers: dict) -> tuple[int, int, int]:
        """From the headers of a request, as `(tenant, class, route)`; 0 where nothing is said."""
        if not self.key:
            return 0, 0, 0
        return tuple(self.hash(kind, headers.get(self.headers.get(kind), b"")) for kind in KINDS)

    def hash(self, kind: str, value: bytes) -> int:
        if not value:
            return 0
        digest = blake2b(value, digest_size=8, key=self.key, person=kind.encode()).digest()
        return int.from_bytes(digest, "little") or 1


def read_key(path: str) -> tuple[bytes, str]:
    """The key, or why there is none; the file is the agent's own: 64 hex digits."""
    if not path:
        return b"", ""
    try:
        with open(path) as file:
            key = bytes.fromhex(file.read().strip())
    except (OSError, ValueError) as error:
        return b"", f"WHYLATE_KEY_FILE {path}: {error}"
    if len(key) != KEY_SIZE:
        wanted = f"{2 * KEY_SIZE} hex digits are wanted, make them with 'openssl rand -hex {KEY_SIZE}'"
        return b"", f"WHYLATE_KEY_FILE {path}: {wanted}"
    return key, ""
