"""Labelled traces for the detectors: written by hand (hand/, held_out/), played by the engine, and of a real model."""
