"""Filters and events: who gets this event, and along which links."""

from distributary.matching.sql import parse_filter, print_filter

__all__ = ["parse_filter", "print_filter"]
