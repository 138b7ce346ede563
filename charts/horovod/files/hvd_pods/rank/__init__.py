"""The programs that the launcher starts for each rank, around the script; small imports only."""
