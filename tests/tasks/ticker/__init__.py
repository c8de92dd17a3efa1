"""An app that only the workers of some tests have: functions that are called, and a stop between work and write."""
