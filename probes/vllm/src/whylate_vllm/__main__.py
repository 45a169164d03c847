"""`python -m whylate_vllm check [--json]`: what the probe would see of the vLLM installed here (check.py)."""

import sys

from . import check

USAGE = "usage: python -m whylate_vllm check [--json]"


def main() -> int:
    match sys.argv[1:]:
        case ["check"] | ["check", "--json"] as arguments:
            return check.main(as_json="--json" in arguments)
        case ["-h" | "--help"]:
            print(f"{USAGE}\n\n{check.__doc__}\nExit status: 0 all is well, 1 something is to be changed, 2 wrong usage.")
            return 0
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
