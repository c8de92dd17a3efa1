"""A project written for Takahe's Stator: ``before`` stands in for that package, with its names and columns."""
