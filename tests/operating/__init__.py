"""What operators met: each situation is told truly, in few clicks, with a remedy that ends it."""
