package main

// reentrySafeguards cover a lock that functions under it may take again, and the order of candidates.
func reentrySafeguards() []safeguard {
	const pkg, file = "./client/recipe", "client/recipe/reentry.go"
	return []safeguard{
	}
}
