"""What the machine is: gears, their ledger, families and presets. No arrays, no files."""
