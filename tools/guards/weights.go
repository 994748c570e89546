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
			name: "a slot that is lost while others are waited for is let go of", file: "client/recipe/slots.go",
			old: "		defer context.AfterFunc(one.held.lock.Context(), cancel)()\n", new: "		_ = one\n",
			pkg: pkg, test: "TestSemaphoreOfWeightLosesASlot",
		},
		{
			name: "a slot that was waited for is let go of when it is lost", file: "client/recipe/slots.go",
			old: "		defer context.AfterFunc(had.lock.Context(), cancel)()\n", new: "",
			pkg: pkg, test: "TestSemaphoreOfWeightLosesASlot",
		},
		{
			name: "a permit of several slots ends with the first", file: "client/recipe/permit.go",
			old: "	if p.all != nil {\n		return p.all.Context()\n	}\n", new: "",
			pkg: pkg, test: "TestSemaphoreOfWeight$",
		},
		{
			name: "several slots are all or none", file: "client/recipe/semaphore.go",
			old: "		letGo(ctx, mine)\n", new: "",
			pkg: pkg, test: "TestSemaphoreOfWeight$",
		},
	}
}
