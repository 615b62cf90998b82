"""Tests of the lake."""
