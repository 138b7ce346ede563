"""What the launcher starts for each rank, before and after the script; small imports only."""
