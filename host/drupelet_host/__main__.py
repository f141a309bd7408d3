"""`python -m drupelet_host` is the `drupelet` command."""

from drupelet_host.cli import main

if __name__ == "__main__":
    main()
