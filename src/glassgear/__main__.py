"""`python -m glassgear`: the same as the `glassgear` command."""

if __name__ == "__main__":
    try:
        from glassgear.cli import main

        main()
    except KeyboardInterrupt:  # outside of what `main` itself catches
        raise SystemExit(130) from None
