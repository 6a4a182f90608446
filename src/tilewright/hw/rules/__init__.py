"""Hardware rules, one module per topic; a rule is one row of its topic's ``RULES``."""
