package main

// loggingSafeguards cover what replicas log of what happens: that it is there once, bounded, and holds nobody up.
func loggingSafeguards() []safeguard {
	return []safeguard{
		{
			name: "lines about locks are sampled", file: "cell/internal/master/journal.go",
			old: "j.counts[o].Add(1) <= maxLines", new: "j.counts[o].Add(1) > 0",
			pkg: "./cell/internal/master", test: "TestJournalSamples",
		},
		{
			name: "what is left out of the log is counted", file: "cell/internal/master/journal.go",
			old: "	if len(left) > 0 || dropped > 0 {\n", new: "	if false {\n",
			pkg: "./cell/internal/master", test: "TestJournalSamples",
		},
		{
			name: "a master does not wait for its log", file: "cell/internal/master/journal.go",
			old: "	case j.lines <- line:\n	default:\n		j.dropped.Add(1)\n", new: "	case j.lines <- line:\n",
			pkg: "./cell/internal/master", test: "TestJournalThatIsStuck",
		},
		{
			name: "a line that is left out costs no memory", file: "cell/internal/master/occasions.go",
			old: "	if !l.epoch.journal.admits(lockGranted, slog.LevelInfo) {\n		return\n	}\n", new: "	if !l.epoch.journal.admits(lockGranted, slog.LevelInfo) {\n		l.epoch.path(claim.Answer.Lock.Name)\n	}\n",
			pkg: "./cell/internal/master", test: "TestJournalCostsNothing",
		},
		{
			name: "a lock that is lost is in the log before the next grant", file: "cell/internal/master/observer.go",
			old: "	o.locks.noteLeft(r.Left, o.asked)\n", new: "	defer o.locks.noteLeft(r.Left, o.asked)\n",
			pkg: "./cell", test: "TestLogOfLocks",
		},
		{
			name: "what the log has of an end is what the cell remembers", file: "raftfsm/sessions.go",
			old: "		r.Left = append(r.Left, left...)\n", new: "		_ = left\n",
			pkg: "./raftfsm", test: "TestStateAgainstModel",
		},
		{
			name: "a call keeps its id in all attempts", file: "client/dispatcher.go",
			old: "	caller.Request = k.request\n", new: "	caller.Request = d.requests.Add(1)\n",
			pkg: "./client", test: "TestRequestIDs",
		},
		{
			name: "errors have the ids of their calls", file: "client/dispatcher.go",
			old: "	return result, withRequest(err, k.request)\n", new: "	return result, err\n",
			pkg: "./client", test: "TestRequestIDs",
		},
		{
			name: "a grant names its call", file: "cell/internal/master/epoch.go",
			old: "	one := newProposal(c, e.state().Level, false, nil)\n	one.request = steps.RequestOf(ctx)\n", new: "	one := newProposal(c, e.state().Level, false, nil)\n	_ = steps.RequestOf\n",
			pkg: "./cell", test: "TestLogOfRequests",
		},
		{
			name: "refusals do not fill the log", file: "cell/internal/wire/calllog.go",
			old: "	n, ok := s.refused.Next()\n	if !ok {\n", new: "	n, ok := s.refused.Next()\n	if !ok && n > 0 {\n",
			pkg: "./cell", test: "TestLogOfRequests",
		},
		{
			name: "a slow call says what it waited for", file: "cell/internal/master/trace.go",
			old: "	if late := steps.LateOf(ctx, now.Sub(began)); late != nil {\n		late.Step(step)\n	}\n", new: "",
			pkg: "./cell", test: "TestLogOfSlowCalls",
		},
		{
			name: "who waits for a lock is not slow", file: "cell/internal/wire/calllog.go",
			old: "		if c.slow == nil {\n			return 0\n		}\n		return took - (*c.slow)[steps.Queue]\n", new: "		return took\n",
			pkg: "./cell", test: "TestLogOfSlowCalls",
		},
		{
			name: "a call is told of what it waited for if that was long", file: "cell/internal/steps/steps.go",
			old: "	if took < Slow {\n		return nil\n	}\n", new: "",
			pkg: "./cell/internal/master", test: "TestSlowEntries",
		},
	}
}
