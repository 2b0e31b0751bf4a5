"""Tests of peers and their clients as processes."""
