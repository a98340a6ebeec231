"""Peers as contenders. No file here imports this project.

So TVM is no part of their processes, and another interpreter's environment can have them.
"""
