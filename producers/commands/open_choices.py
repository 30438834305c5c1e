"""What a file leaves to the router (`cubes`, `index`, cells by quantiles), as the running router chose it."""

from __future__ import annotations

import sys

import redis

from state.config import Config
from state.errors import ConfigError
from state.redis_index import RedisIndex


def with_choices(config: Config) -> Config:
    """The configuration with what its running deployment chose; said on standard error where that cannot be known."""
    if not any(event_type.is_open for event_type in config.types.values()):
        return config
    index = RedisIndex(config)
    try:
        _, generation = index.current()
        shared = None if generation is None else index.configuration(generation)
        return config if shared is None else config.fitted_with(config.adopting(shared).fitted)
    except redis.RedisError:
        print("Redis is away: what the router may choose itself is shown as the file alone has it", file=sys.stderr)
        return config
    except ConfigError:  # the file is for another overlay than the one that runs: nothing of it applies
        return config
    finally:
        index.close()
