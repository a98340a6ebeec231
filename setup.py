"""Builds the distribution; what it is made of stands in pyproject.toml."""

from setuptools import setup

setup()
