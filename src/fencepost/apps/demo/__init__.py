"""`fencepost demo`: kill a real agent at every interesting point, and compare what its log says with the world."""
