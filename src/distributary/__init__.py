"""Decides which message flows travel together, over which few channels, to which receivers."""

__version__ = "0.1.0"
