"""New weights for engines that serve: none is left half-updated, and a dead one holds up nobody."""
