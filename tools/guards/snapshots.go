package main

// snapshotSafeguards cover the replicated state, which is changed in place between its snapshots.
func snapshotSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a snapshot of a map stays as it is", file: "internal/cowmap/map.go",
			old: "	return Map[K, V]{tree: m.tree.Copy()}\n", new: "	return *m\n",
			pkg: "./internal/cowmap", test: "TestMapAgainstPlainMap",
		},
		{
			name: "the records of a snapshot stay as they are", file: "session/table.go",
			old: "		t.editor = new(editor) // the records that there are belong to the snapshot, too\n", new: "",
			pkg: "./session", test: "TestTableAgreesWithItsNaiveTwin",
		},
		{
			name: "a record is copied with its requests", file: "session/table.go",
			old: "	next.Open, next.editor = slices.Clone(s.Open), t.editor\n", new: "	next.Open, next.editor = slices.Clip(s.Open), t.editor\n",
			pkg: "./session", test: "TestTableAgreesWithItsNaiveTwin",
		},
		{
			name: "a copy between two times of changes in place has its records for itself", file: "session/table.go",
			old: "	t.numbers.Settle()\n	t.editor = nil\n", new: "	t.numbers.Settle()\n",
			pkg: "./session", test: "TestCopyAfterChangesInPlace",
		},
		{
			name: "the indexes of a snapshot stay as they are", file: "namespace/edit.go",
			old: "usage: t.usage.Snapshot()", new: "usage: t.usage",
			pkg: "./raftfsm", test: "TestStateAgainstModel",
		},
		{
			name: "the indexes of a copy stay as they are", file: "namespace/edit.go",
			old: "	t.owned.Settle()\n", new: "",
			pkg: "./raftfsm", test: "TestMillion|TestStateAgainstModel",
		},
		{
			name: "contents are no part of a log entry's memory", file: "raftfsm/fastdecode.go",
			old: "append([]byte(nil), d.take(d.head(cborBytes))...)", new: "d.take(d.head(cborBytes))",
			pkg: "./raftfsm", test: "TestNothingKeepsTheMemoryOfAnEntry",
		},
		{
			name: "an access control list keeps no comments in memory", file: "namespace/list.go",
			old: "strings.Clone(strings.Join(members, \"\"))", new: "strings.Join(members, \"\")",
			pkg: "./namespace", test: "TestListKeepsNoComments",
		},
		{
			name: "what a request declares holds while it is done", file: "session/mutation.go",
			old: "	t.declare(s, m)\n", new: "",
			pkg: "./raftfsm", test: "TestDeclarationPrecedesTheHandOver",
		},
		{
			name: "the locks of a session that ends are collected first", file: "namespace/drop.go",
			old: "	for _, n := range slices.Collect(t.OwnedBy(session)) { // collected, because the loop changes the index\n", new: "	for n := range t.OwnedBy(session) {\n",
			pkg: "./raftfsm", test: "TestMillion|TestStateAgainstModel",
		},
		{
			name: "a state that is read is published as it was", file: "cell/internal/fsm/fsm.go",
			old: "	state := f.now.Snapshot()\n", new: "	state := f.now\n",
			pkg: "./cell/internal/fsm", test: "TestPublishedStateStays",
		},
		{
			name: "a state that was restored is read", file: "cell/internal/fsm/fsm.go",
			old: "	f.published.Store(nil)\n}\n\ntype stateSnapshot", new: "}\n\ntype stateSnapshot",
			pkg: "./cell/internal/fsm", test: "TestRestoredStateIsRead",
		},
		{
			name: "a reader waits for the batch that is being applied", file: "cell/internal/fsm/fsm.go",
			old: "	f.mu.Lock()\n	defer f.mu.Unlock()\n	return f.publish()\n", new: "	return f.publish()\n",
			pkg: "./cell/internal/fsm", test: "TestReadersWhileEntriesAreApplied",
		},
		{
			name: "a restored state that nobody reads is not copied", file: "cell/internal/fsm/fsm.go",
			old: "	f.now = state\n	f.now.Edit()\n", new: "	f.now = state\n",
			pkg: "./cell/internal/fsm", test: "TestUnreadStateIsNotCopied",
		},
		{
			name: "a state that nobody reads is not copied", file: "cell/internal/fsm/fsm.go",
			old: "	if f.wanted.Swap(false) {\n", new: "	if f.wanted.Load() || f.broken == nil {\n",
			pkg: "./cell/internal/fsm", test: "TestUnreadStateIsNotCopied",
		},
	}
}
