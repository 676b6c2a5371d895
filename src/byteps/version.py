"""The version of this package; written here alone: the build reads it."""

__version__ = "0.1.0"
