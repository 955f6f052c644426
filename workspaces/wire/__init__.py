"""Requests from this machine to servers elsewhere: driven so that an order can drop them, and guarded."""
