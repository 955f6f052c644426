"""Intake: brings uploads, archives and git repositories into a sandbox. Trusts no name, link, size or address."""
