package main

// cronSafeguards cover the adapter to gocron.
func cronSafeguards() []safeguard {
	const pkg = "./contrib/gocron"
	return []safeguard{
		{
			name: "one scheduler at a time has the lock of a job", file: "contrib/gocron/locker.go",
			old: "client.Try(), client.LockDelay(k.delay)", new: "client.Try(), client.Shared(), client.LockDelay(k.delay)",
			pkg: pkg, test: "TestDistributed|TestLock$",
		},
		{
			name: "each job has a lock of its own", file: "contrib/gocron/locker.go",
			old: "k.dir.String() + \"/\" + component(name)", new: "k.dir.String() + \"/\" + component(\"job\")",
			pkg: pkg, test: "TestLock$",
		},
		{
			name: "the lock of a job that has ended is kept", file: "contrib/gocron/locker.go",
			old: "kept := one.kept.Err() == nil &&", new: "kept := false &&",
			pkg: pkg, test: "TestClocksDiffer|TestLock$",
		},
		{
			name: "the lock of a job is taken in another session", file: "contrib/gocron/session.go",
			old: "if !errors.Is(err, api.SessionExpired) || ctx.Err() != nil {", new: "if true {",
			pkg: pkg, test: "TestLockOutlivesASession",
		},
		{
			name: "the work of a scheduler ends before its lock", file: "contrib/gocron/locker.go",
			old: "within, end := l.With(ctx)", new: "within, end := context.WithCancel(ctx)",
			pkg: pkg, test: "TestLockerTask|TestLostLeadership",
		},
		{
			name: "the work of a scheduler has a token", file: "contrib/gocron/locker.go",
			old: "	within, end := l.With(ctx)\n	defer end()\n", new: "	within, end := context.WithCancel(ctx)\n	defer context.AfterFunc(l.Context(), end)()\n	defer end()\n",
			pkg: pkg, test: "TestElectorStorm",
		},
		{
			name: "an elector says no before another leads", file: "contrib/gocron/elector.go",
			old: "	if err := l.Err(); err != nil {\n		e.leave()\n", new: "	if err := l.Err(); err != nil && false {\n		e.leave()\n",
			pkg: pkg, test: "TestLostLeadership|TestTakenLeadership",
		},
		{
			name: "an elector that is closed says no", file: "contrib/gocron/elector.go",
			old: "	case e.life.Err() != nil:\n		e.leave()\n", new: "	case false:\n		e.leave()\n",
			pkg: pkg, test: "TestCloseAwaitsWork",
		},
		{
			name: "a scheduler leads until its work has stopped", file: "contrib/gocron/elector.go",
			old: "		if e.work == 0 {\n			e.lock = nil\n", new: "		if true {\n			e.lock = nil\n",
			pkg: pkg, test: "TestCloseAwaitsWork",
		},
		{
			name: "a scheduler leads until its work has stopped (masters are killed)", file: "contrib/gocron/elector.go",
			old: "		if e.work == 0 {\n			e.lock = nil\n", new: "		if true {\n			e.lock = nil\n",
			pkg: pkg, test: "TestKills",
		},
		{
			name: "a scheduler that has lost leads again", file: "contrib/gocron/elector.go",
			old: "	for e.life.Err() == nil {\n		l, err", new: "	for first := true; first; first = false {\n		l, err",
			pkg: pkg, test: "TestLostLeadership|TestElectorTriesAgain",
		},
		{
			name: "an elector tries again after an error", file: "contrib/gocron/elector.go",
			old: "			case <-time.After(retryPause):\n			}\n			continue\n", new: "			case <-time.After(retryPause):\n			}\n			return\n",
			pkg: pkg, test: "TestElectorTriesAgain",
		},
	}
}
