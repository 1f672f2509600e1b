"""Where training rows live, and who works on them."""
