"""`python -m glassgear`: the same as the `glassgear` command."""

from glassgear.cli import main

if __name__ == "__main__":
    main()
