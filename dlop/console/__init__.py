"""How jobs look: on a terminal with colours and live, elsewhere as plain lines, and as JSON for machines."""
