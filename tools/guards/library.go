package main

// libraryGuards are those of the client library: how calls end, and what they leave
// to others.
func libraryGuards() []guard {
	return []guard{
		{
			name: "what is given back outlives the context", file: "client/parting.go",
			old: "	ctx = context.WithValue(ctx, partingKey{}, true)\n", new: "	if true {\n		return ctx, func() {}\n	}\n",
			pkg: "./client", test: "TestPartingWithEndedContext",
		},
		{
			name: "one call waits for a cell that is away", file: "client/parting.go",
			old: "ctx.Err() != nil && c.session.silent()", new: "false && c.session.silent()",
			pkg: "./client", test: "TestPartingFromACellThatIsAway",
		},
		{
			name: "what a recipe gives back outlives the context", file: "client/recipe/held.go",
			old: "	ctx, cancel := c.Parting(ctx)\n", new: "	ctx, cancel := context.WithCancel(ctx)\n",
			pkg: "./client/recipe", test: "TestGivenBackWithEndedContext",
		},
		{
			name: "a handle that is used is not kept", file: "client/cached.go",
			old: " || h.running > 0", new: "",
			pkg: "./client", test: "TestHandleInUseIsNotKept",
		},
		{
			name: "a handle that locks is not kept", file: "client/cached.go",
			old: "used := h.locked || h.bound", new: "used := h.bound",
			pkg: "./client", test: "TestHandleInUseIsNotKept",
		},
	}
}
