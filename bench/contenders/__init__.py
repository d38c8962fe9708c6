"""Who is compared. Each file imports its library only when one of its contenders is built."""
