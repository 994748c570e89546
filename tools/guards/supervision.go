package main

// supervisionSafeguards cover chubbyctl and its guardian, which cover for each
// other.
func supervisionSafeguards() []safeguard {
	const supervision = "cmd/chubbyctl/internal/supervise/"
	return []safeguard{
		{
			name: "a process whose main thread has ended is alive", file: supervision + "family_linux.go",
			old: "		return err == nil && n > 1\n", new: "		return err == nil && n > 1 && false\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestHeadlessDescendants",
		},
		{
			name: "a guardian that is late is ended", file: supervision + "deadline_unix.go",
			old: "chubbyctl kills both\")\n		_ = p.guardian.Process.Kill()", new: "chubbyctl kills both\")",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestStoppedGuardian",
		},
		{
			name: "reports never wait for their reader", file: supervision + "outbox_unix.go",
			old: "unix.SetNonblock(o.fd, !r.Gone)", new: "unix.SetNonblock(o.fd, false)",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestReportsDoNotBlock",
		},
		{
			name: "the guardian passes no signals on", file: supervision + "guardian_unix.go",
			old: "	signal.Notify(ignored, forwarded()...)\n", new: "	signal.Notify(ignored, forwarded()...)\n	go func() {\n		for s := range ignored {\n			g.passSignal(s.(syscall.Signal))\n		}\n	}()\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestGuardianPassesNothingOn",
		},
		{
			name: "real-time signals are passed on", file: supervision + "signals_linux.go",
			old: "const lastSignal = syscall.Signal(64)", new: "const lastSignal = syscall.Signal(31)",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestEverySignalIsPassedOn",
		},
		{
			name: "a stop for one process stops one", file: supervision + "foreground_unix.go",
			old: "		suspendSelf(os.Getpid())\n", new: "		suspendSelf(0)\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestStopOfOneProcess",
		},
		{
			name: "a foreign stop of the command suspends nobody", file: supervision + "process_unix.go",
			old: "	case r.Suspended == int(unix.SIGSTOP):\n", new: "	case r.Suspended == -1:\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestForeignStopDoesNotSuspend",
		},
		{
			name: "nothing listens is no outage", file: "client/locaterefused.go",
			old: "limit == 0 || reached ||", new: "limit == 0 || reached && false ||",
			pkg: "./client", test: "TestNothingListens",
		},
		{
			name: "a silent server is not one that refuses", file: "client/locaterefused.go",
			old: "slices.ContainsFunc(answers, mayAnswer)", new: "slices.ContainsFunc(answers, mayAnswer) && false",
			pkg: "./client", test: "TestNothingListens",
		},
		{
			name: "another cell's replicas do not answer for this one", file: "client/status.go",
			old: "	if _, err := t.data.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: cell}); err != nil {\n", new: "	if _, err := t.data.cell.Locate(ctx, &chubbypb.LocateRequest{Cell: cell}); false {\n",
			pkg: "./client", test: "TestStatusOfAnotherCell",
		},
		{
			name: "one frozen replica does not hide the others", file: "client/status.go",
			old: "	case v := <-arrived:\n		return v\n	case <-ctx.Done():\n	}\n", new: "	case <-ctx.Done():\n	}\n",
			pkg: "./client", test: "TestStatusWithAFrozenReplica",
		},
		{
			name: "--wait 0 is one try", file: "cmd/chubbyctl/takelock.go",
			old: "o.try || o.waits && o.wait <= o.begun()", new: "o.try",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "Ctrl-C ends what is typed", file: "cmd/chubbyctl/put.go",
			old: "	signal.Reset(supervise.Interrupts()...)\n", new: "	_ = supervise.Interrupts()\n	signal.Stop(nil)\n",
			pkg: "./e2e", test: "TestCtrlCWhileTyping",
		},
		{
			name: "nobody locks himself out by a slip", file: "cmd/chubbyctl/consent.go",
			old: "	return !has, err\n", new: "	return !has && false, err\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "a flag of long ago restores nothing", file: "cell/epochs.go",
			old: "	if r.clock().Sub(r.begun) > restoreWindow {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestRestoreAccess",
		},
		{
			name: "restored lists can be written", file: "raftfsm/access.go",
			old: "		names = append(names, list.Name)\n", new: "		_ = append(names, list.Name)\n",
			pkg: "./raftfsm", test: "TestRestoreAccess",
		},
		{
			name: "the farewell is bounded by the lease", file: "cmd/chubbyctl/held.go",
			old: "min(o.timeout, max(c.Left(), farewellBound))", new: "o.timeout",
			pkg: "./e2e", test: "TestFarewellInAnOutage",
		},
	}
}
