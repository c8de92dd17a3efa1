"""The picture of a graph on pages of the admin: with the way of an object, and with the numbers of a model."""
