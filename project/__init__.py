"""The runnable site of this repository; not part of the distribution."""
