"""What several test modules share; none of them imports another."""
