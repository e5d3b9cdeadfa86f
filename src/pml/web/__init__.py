"""What every HTTP server and client of PML needs: listening, impatience, one shape of errors."""
