"""Compile every kernel the workers use, by running the worker's own stages on a few documents."""
