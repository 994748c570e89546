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
			name: "a start without trouble warns of nothing", file: "cell/internal/peer/raftlog.go",
			old: "	case now.Sub(s.since) < awayLogGrace:\n", new: "	case false:\n",
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
	}
}
