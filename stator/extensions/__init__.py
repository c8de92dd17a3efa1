"""Extensions: each is a folder that hands the core one value, ``EXTENSION``; ``stator.batteries`` lists them."""
