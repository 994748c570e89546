package main

// logSafeguards cover what a replica logs.
func logSafeguards() []safeguard {
	return []safeguard{
		{
			name: "no log line holds up a replica", file: "cell/replica.go",
			old: "	r.logs, r.log = newLogQueue(cfg.Logger.With(\"replica\", cfg.ID))\n",
			new: "	r.logs, _ = newLogQueue(cfg.Logger.With(\"replica\", cfg.ID))\n	r.log = cfg.Logger\n",
			pkg: "./cell", test: "TestLogIntoAFullPipe",
		},
		{
			name: "a log line that finds no room is dropped", file: "cell/logqueue.go",
			old: "	default:\n		h.queue.dropped.Add(1)\n	}", new: "	}",
			pkg: "./cell", test: "TestLogIntoAFullPipe",
		},
		{
			name: "a log line shows what was when it was logged", file: "cell/logqueue.go",
			old: "Value: settledValue(a.Value)})\n		return true", new: "Value: a.Value})\n		return true",
			pkg: "./cell", test: "TestLogQueue",
		},
		{
			name: "peers that are away are told of once a minute", file: "cell/internal/peer/raftlog.go",
			old: "		case isPeerAway(msg), msg", new: "		case msg == \"\", msg",
			pkg: "./cell/internal/peer", test: "TestRaftLogNamesReplicas",
		},
		{
			name: "peers that are away are told of once a minute (whole cell)", file: "cell/internal/peer/raftlog.go",
			old: "		case isPeerAway(msg), msg", new: "		case msg == \"\", msg",
			pkg: "./cell", test: "TestLogOfALoneReplica",
		},
		{
			name: "a peer that is away and needs a snapshot is told of once a minute", file: "cell/internal/peer/raftlog.go",
			old: "msg == \"failed to install snapshot\" &&", new: "false &&",
			pkg: "./cell/internal/peer", test: "TestRaftLogNamesReplicas",
		},
		{
			name: "a start without trouble warns of nothing", file: "cell/internal/peer/away.go",
			old: "	if now.Sub(a.since) < awayLogGrace {\n", new: "	if false {\n",
			pkg: "./cell/internal/peer", test: "TestRaftLogNamesReplicas",
		},
		{
			name: "sessions that are closed are no news", file: "cell/internal/master/occasions.go",
			old: "	if end.Reason == api.ByClose {\n		level", new: "	if false {\n		level",
			pkg: "./cell", test: "TestLogOfEndedSessions",
		},
		{
			name: "the last log lines are written", file: "cell/logqueue.go",
			old: "	case <-q.done:\n	case <-late.C:\n	}", new: "	default:\n	}",
			pkg: "./cell", test: "TestLogQueue",
		},
		{
			name: "that lines are missing is said at every level", file: "cell/logqueue.go",
			old: "		level = slog.LevelError // only", new: "		return // only",
			pkg: "./cell", test: "TestLogQueueSaysAtEveryLevelWhatIsMissing",
		},
		{
			name: "that the master's lines are missing is said at every level", file: "cell/internal/master/journal.go",
			old: "	if dropped > 0 { // lines", new: "	if false { // lines",
			pkg: "./cell/internal/master", test: "TestJournalSaysAtEveryLevelWhatWasDropped",
		},
		{
			name: "files of certificates that are missing are told of once", file: "cell/certificates.go",
			old: "	case err != nil && err.Error() == was:\n", new: "	case err != nil && err.Error() == was && false:\n",
			pkg: "./cell", test: "TestLogOfCertificates",
		},
		{
			name: "that no spare can help is told of once", file: "cell/membership.go",
			old: "		pause = rosterRemind\n", new: "		pause = rosterTell\n",
			pkg: "./cell", test: "TestLogOfSpares",
		},
		{
			name: "strangers at the http port do not fill the log", file: "cell/httperrors.go",
			old: "else if n, ok := e.failed.Next(); ok {", new: "else if n, ok := e.failed.Next(); ok || true {",
			pkg: "./cell", test: "TestConsoleOverTLSOnly",
		},
	}
}
