"""``python -m tvm_rammer``: the command line."""

from tvm_rammer.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
