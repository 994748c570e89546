package main

// healthSafeguards cover announcements that are bound to a check of the program's.
func healthSafeguards() []safeguard {
	const pkg, file = "./client/recipe", "client/recipe/health.go"
	return []safeguard{
	}
}
