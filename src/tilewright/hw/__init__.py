"""Hardware facts as plain data: spaces, targets, prices, and the rules (``rules``). Each fact appears once, with its
source."""
