"""Small projects that show Stator at work."""
