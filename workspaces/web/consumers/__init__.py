"""Sockets: each checks access, joins groups, and renders the very partials of its page. None changes anything."""
