"""The settings of this process: ``load()`` reads every environment variable once into a frozen ``Config``.

settings   Config and load(), and what contradicts what
table      every variable: one row each
row        what is known of a variable
parsers    from the text of a variable to a value
endpoint   hosts and ports as people write them
"""

from __future__ import annotations

from byteps.config.row import Variable, show
from byteps.config.settings import Config, load, lookup, parse, unknown_names
from byteps.config.table import VARIABLES

__all__ = ["VARIABLES", "Config", "Variable", "load", "lookup", "parse", "show", "unknown_names"]
