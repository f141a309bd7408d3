"""`python -m drupelet_host` is the `drupelet` command."""

from drupelet_host.entry import main

if __name__ == "__main__":
    main()
