"""Where code runs that calls tools: TypeScript in Deno, Python in Monty."""
