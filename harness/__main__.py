"""`python -m harness`."""

from harness.app import main

if __name__ == "__main__":
    main()
