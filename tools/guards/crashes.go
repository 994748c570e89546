package main

// crashSafeguards cover a replica that is killed between two operations on its data.
func crashSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a log that does not go on from the newest snapshot is emptied", file: "cell/internal/disk/overtaken.go",
			old: "	case unreadable || at.Term == term:", new: "	case unreadable || at.Term > 0:",
			pkg: "./cell/internal/disk", test: "TestKilledAtEachStep",
		},
		{
			name: "bbolt's log is emptied for a snapshot of the master's, too", file: "cell/internal/disk/failstoplogs.go",
			old: "func (l *failStopLogs) IsMonotonic() bool { return true }",
			new: "func (l *failStopLogs) IsMonotonic() bool {\n	m, ok := l.inner.(raft.MonotonicLogStore)\n	return ok && m.IsMonotonic()\n}",
			pkg: "./cell/internal/disk", test: "TestKilledAtEachStep",
		},
		{
			name: "a replica whose log went on behind a snapshot of the master's is started again", file: "cell/internal/disk/commitmark.go",
			old: "newest.index == 0 || last < newest.index ||", new: "newest.index == 0 || last != newest.index ||",
			pkg: "./cell/internal/disk", test: "TestCommittedEntriesStay",
		},
		{
			name: "a replica whose log ended where a snapshot of the master's does, with another entry, is started again", file: "cell/internal/disk/commitmark.go",
			old: "last == newest.index && term == newest.term {", new: "last == newest.index && term > 0 {",
			pkg: "./cell/internal/disk", test: "TestSnapshotOfTheLastEntry",
		},
		{
			name: "a replica holds what its own snapshot holds while it has an older one of the master's", file: "cell/internal/disk/stores.go",
			old: "return max(r.LastIndex(), s.mark.snapshotIndex())", new: "return r.LastIndex()",
			pkg: "./cell/internal/disk", test: "TestKilledAtEachStep",
		},
		{
			name: "the end of a log is noted before the log is cut back", file: "cell/internal/disk/logend.go",
			old: "	if last >= end {", new: "	if last >= end {\n		defer func() { _ = n.write(first - 1) }()\n	} else if false {",
			pkg: "./cell/internal/disk", test: "TestKilledAtEachStep",
		},
		{
			name: "what went with the whole log is not wanted replaced", file: "cell/internal/disk/failstoplogs.go",
			old: "		if err != nil || begin == 0 || last < begin {", new: "		if err != nil {",
			pkg: "./cell/internal/disk", test: "TestSnapshotArrivesDuringCompaction",
		},
		{
			name: "a file that a store cannot read is damage", file: "cell/internal/disk/stores.go",
			old: "errors.Join(openError(dir, store, err), s.Close())", new: "errors.Join(err, s.Close())",
			pkg: "./cell/internal/disk", test: "TestDataDirRefusesLoss",
		},
		{
			name: "what Raft cannot go on from is damage", file: "cell/internal/disk/raftstart.go",
			old: "	case s.failStop.failure() != nil:\n		return nil, err", new: "	case true:\n		return nil, err",
			pkg: "./cell/internal/disk", test: "TestSnapshotThatCannotBeRestored",
		},
	}
}
