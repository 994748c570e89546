package main

// uncertainSafeguards cover what a call says whose context has ended, and calls that are given nothing.
func uncertainSafeguards() []safeguard {
	const (
		pkg     = "./client"
		recipes = "./client/recipe"
	)
	return []safeguard{
		{
			name: "Uncertain of Do is of the release alone", file: "client/do.go",
			old: "return nil, notOpened(ctx, err)\n", new: "return nil, err\n",
			pkg: pkg, test: "TestWhatChangesNothingIsNotUncertain",
		},
		{
			name: "Do that does not open is not Uncertain, though its context goes on", file: "client/do.go",
			old: "	if !errors.As(err, &e) || e.Code != api.Uncertain {\n", new: "	if ctx.Err() == nil || !errors.As(err, &e) || e.Code != api.Uncertain {\n",
			pkg: pkg, test: "TestDoThatDoesNotOpenIsNotUncertain",
		},
		{
			name: "metadata by a path is for those who may read", file: "client/cache.go",
			old: " || instance == 0 && answers(c, e, e.stat.Instance, 0)) {", new: " || instance == 0) {",
			pkg: pkg, test: "TestGetAfterTheRightIsGone",
		},
		{
			name: "who was cut off before the file was open knows that the lock is not held", file: "client/recipe/rwlock.go",
			old: "		err = ended(ctx, err, \"acquire\", l.path) // the file was not open yet\n", new: "",
			pkg: recipes, test: "TestRWLockCutOff",
		},
		{
			name: "a Counter is closed also after the end of its context", file: "client/recipe/counter.go",
			old: "		ctx, cancel := c.CleanupContext(ctx)\n		defer cancel()\n", new: "",
			pkg: recipes, test: "TestCounterEndedContext",
		},
		{
			name: "a nil Keeper does not end the program", file: "client/recipe/upkeep.go",
			old: "from == nil || is && keeper == nil", new: "from == nil && is && keeper == nil",
			pkg: recipes, test: "TestWatchConfigOfNothing",
		},
	}
}
