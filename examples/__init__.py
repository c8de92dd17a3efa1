"""Small projects that use Stator."""
