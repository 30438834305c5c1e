"""`grid`: the Hilbert grid of a type as JSON, all that a client needs to map events and subscriptions itself."""

from __future__ import annotations

import argparse

from producers.cli import config_path
from producers.commands.open_choices import with_choices
from producers.commands.output import print_json
from state.config import load
from state.errors import HilcastError
from state.space.grid import Grid


def grid(chosen: argparse.Namespace) -> int:
    """Print the description of a type's grid."""
    config = with_choices(load(config_path(chosen)))
    if chosen.type not in config.types:
        raise HilcastError("unknown-type", f"{chosen.type!r} is none of {', '.join(config.types)}")
    print_json(Grid.of(config.types[chosen.type]).describe())
    return 0
