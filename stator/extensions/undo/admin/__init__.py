"""What undoes actions in the admin: the buttons above a list, and the page that asks before."""
