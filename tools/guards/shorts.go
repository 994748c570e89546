package main

// shortSafeguards cover the short forms of the Go client: locks and files by their paths, versions, and the Keeper.
func shortSafeguards() []safeguard {
	return []safeguard{
		{
			name: "work under a lock ends with the lock", file: "client/lock.go",
			old: "	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })\n", new: "	stop := func() {}\n",
			pkg: "./client", test: "TestLockWith$",
		},
		{
			name: "With reads the clock", file: "client/lock.go",
			old: "	if why := l.Err(); why != nil && ctx.Err() == nil {\n", new: "	if why := l.ctx.Err(); why != nil && ctx.Err() == nil {\n",
			pkg: "./client", test: "TestLockWithReadsTheClock",
		},
		{
			name: "the context of a lock has its sequencer", file: "client/lock.go",
			old: "context.WithCancelCause(sequencer.NewContext(ctx, l))", new: "context.WithCancelCause(ctx)",
			pkg: "./client", test: "TestLockWith$|TestDo$",
		},
		{
			name: "a panic under a lock releases it", file: "client/do.go",
			old: "		released := l.Release(ctx)\n		err = doError", new: "		if why := recover(); why != nil {\n			panic(why)\n		}\n		released := l.Release(ctx)\n		err = doError",
			pkg: "./client", test: "TestDo$",
		},
		{
			name: "Do tells of the loss before all else", file: "client/do.go",
			old: "		return errors.Join(lost, err)\n", new: "		return errors.Join(err, lost)\n",
			pkg: "./client", test: "TestDoTellsOfTheLoss",
		},
	}
}
