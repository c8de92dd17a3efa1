"""System checks of settings, graphs, models and databases. ``stator.E...`` must be fixed, ``stator.W...`` reviewed."""
