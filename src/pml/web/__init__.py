"""What every HTTP server of PML needs: listening, impatience, one shape of errors. Decides nothing."""
