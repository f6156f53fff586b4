"""fencepost: an agent harness whose session log tells the truth after a crash."""
