"""Hardware facts as plain data: spaces, grains, targets, prices, descriptor rules. Each fact appears once, with its
source."""
