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
			name: "several locks show no sequencer", file: "sequencer/context.go",
			old: "	case Source:\n", new: "	case Source, nil:\n		if of == nil {\n			return Sequencer{Generation: 1}, true\n		}\n		of = of.(Source)\n",
			pkg: "./sequencer", test: "TestFromContext",
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
		{
			name: "Release closes the handle that Acquire has opened", file: "client/lock.go",
			old: "	if closing := l.handle.Close(ctx); err == nil {\n		err = closing\n	}\n	return err\n", new: "	return err\n",
			pkg: "./client", test: "TestClientAcquire$",
		},
		{
			name: "what is cached is not got without the right to it", file: "client/cache.go",
			old: "	return e.readable == c.rightsChanges+1 && c.changing[api.ACLDir] == 0\n", new: "	return e.readable != 0\n",
			pkg: "./client", test: "TestGetAfterTheRightIsGone",
		},
		{
			name: "a file that is put is created with its contents", file: "client/paths.go",
			old: "Kind: api.File, Contents: contents}\n	switch absent", new: "Kind: api.File}\n	switch absent",
			pkg: "./client", test: "TestPut",
		},
		{
			name: "on a condition no file is created", file: "client/paths.go",
			old: "		opening.Create, opening.Contents = Existing, nil\n", new: "		opening.Contents = nil\n",
			pkg: "./client", test: "TestPut$",
		},
		{
			name: "directories that go while others are made are made again", file: "client/paths.go",
			old: "		err := makeDirectories(ctx, c, p)\n		if !errors.Is(err, api.NotFound) || round == maxReopen {", new: "		err := makeDirectories(ctx, c, p)\n		if true || round == maxReopen {",
			pkg: "./client", test: "TestMkdirAllIsBounded",
		},
		{
			name: "the root is not emptied", file: "client/paths.go",
			old: "	if p.IsRoot() {\n		return &api.Error{Code: api.InvalidArgument, Op: \"remove all\"", new: "	if false {\n		return &api.Error{Code: api.InvalidArgument, Op: \"remove all\"",
			pkg: "./client", test: "TestMkdirAllRemoveAll",
		},
		{
			name: "a fail-over is told to those who watch", file: "client/recipe/change.go",
			old: "	case s.restarted():\n", new: "	case false:\n",
			pkg: "./client/recipe", test: "TestWatchFile",
		},
		{
			name: "a Keeper repeats nothing that may have been done", file: "client/keep.go",
			old: " && changes.Load() == before, err\n", new: " && (true || changes.Load() == before), err\n",
			pkg: "./client", test: "TestKeeperCallsAgain|TestKeeperAfterALostAnswer",
		},
		{
			name: "a change whose answer was lost may have been made", file: "client/mutate.go",
			old: "(result == outcomeUncertain || attempts > 1 || err == nil", new: "(err == nil",
			pkg: "./client", test: "TestKeeperAfterALostAnswer",
		},
		{
			name: "a Keeper releases no lock for its program", file: "client/keep.go",
			old: "		if errors.Is(s.client.Err(), EndedByCell) && len(s.client.handles.unreleasedLocks()) > 0 {\n			continue\n		}\n", new: "",
			pkg: "./client", test: "TestKeeperWaitsForTheReleaseOfLostLocks|TestKeeperBoundsLostSessions",
		},
	}
}
