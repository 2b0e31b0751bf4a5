"""Tests of peers that host topics."""
