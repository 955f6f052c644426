"""Where disks lie and how their states are saved: one protocol, two stores. Knows no engine and starts no command."""
