"""The runnable site of this repository; no part of the distribution."""
