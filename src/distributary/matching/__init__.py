"""Match events against filters: which filters match, and which links need the event."""

from distributary.matching.axes import event_schema, event_table
from distributary.matching.covering import CoverIndex
from distributary.matching.inference import infer_schema
from distributary.matching.links import LinkMatcher
from distributary.matching.matcher import Folding, Matcher
from distributary.matching.printing import print_filter
from distributary.matching.sql import parse_filter
from distributary.matching.tree import SearchTree, TreeOptions

__all__ = [
    "CoverIndex",
    "Folding",
    "LinkMatcher",
    "Matcher",
    "SearchTree",
    "TreeOptions",
    "event_schema",
    "event_table",
    "infer_schema",
    "parse_filter",
    "print_filter",
]
