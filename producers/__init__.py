"""What clients run: the library (`client/`, imported as `hilcast`), the command line, `verify` and the demo."""
