"""Filters for the templates of admin pages."""
