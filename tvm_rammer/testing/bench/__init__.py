"""Benchmarks as data: what was measured, where, tables, plots and goals."""
