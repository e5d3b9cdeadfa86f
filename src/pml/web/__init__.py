"""HTTP for every server and client of PML: listening, impatience, one shape of errors."""
