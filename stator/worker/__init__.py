"""When things happen: claiming, executing, recording, and the chores."""
