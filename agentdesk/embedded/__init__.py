"""Postgres and Valkey from Python packages, and the supervisor that runs the whole product on one machine."""
