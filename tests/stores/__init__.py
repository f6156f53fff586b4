"""Stores: one contract suite for all, and what files alone can suffer."""
