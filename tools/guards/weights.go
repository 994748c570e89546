package main

// weightSafeguards cover permits of several slots.
func weightSafeguards() []safeguard {
	const pkg = "./client/recipe"
	return []safeguard{
		{
			name: "who loses the turn does not wait with slots", file: "client/recipe/slots.go",
			old: "		defer context.AfterFunc(turn, cancel)()\n", new: "		_ = turn\n",
			pkg: pkg, test: "TestSemaphoreOfWeightLosesItsTurn",
		},
		{
			name: "several slots are all or none", file: "client/recipe/semaphore.go",
			old: "		letGo(ctx, mine)\n", new: "",
			pkg: pkg, test: "TestSemaphoreOfWeight$",
		},
	}
}
