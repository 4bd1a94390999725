"""Measurements behind docs/benchmarks.md. Not part of the package: ``make bench`` runs them."""
