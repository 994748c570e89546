package main

// recoverySafeguards are those of making a backup of what is left of a cell.
func recoverySafeguards() []safeguard {
	return []safeguard{
		{
			name: "the freshest directory is recovered", file: "cell/recovery/recovery.go",
			old: "cmp.Compare(b.Index, a.Index)", new: "cmp.Compare(a.Index, b.Index)",
			pkg: "./cell/recovery", test: "TestRecovery",
		},
		{
			name: "a directory of a later term is fresher than one with more entries", file: "cell/recovery/recovery.go",
			old: "cmp.Compare(b.Term, a.Term)", new: "cmp.Compare(a.Term, b.Term)",
			pkg: "./cell/recovery", test: "TestRecovery",
		},
		{
			name: "directories of two cells are not compared", file: "cell/recovery/recovery.go",
			old: "other.CellID != d.CellID || other.Replica == d.Replica", new: "other.Replica == d.Replica",
			pkg: "./cell/recovery", test: "TestWhatCannotBeRecovered",
		},
		{
			name: "an old copy of a directory is not taken for another replica", file: "cell/recovery/recovery.go",
			old: "other.CellID != d.CellID || other.Replica == d.Replica", new: "other.CellID != d.CellID",
			pkg: "./cell/recovery", test: "TestWhatCannotBeRecovered",
		},
		{
			name: "what is recovered begins with the snapshot", file: "cell/internal/disk/replay.go",
			old: "	if newest.index > 0 {\n", new: "	if newest.index > 1<<60 {\n",
			pkg: "./cell/internal/disk", test: "TestReplay",
		},
		{
			name: "what is recovered ends with the last entry", file: "cell/internal/disk/replay.go",
			old: "index <= s.last; index++ {\n		one", new: "index < s.last; index++ {\n		one",
			pkg: "./cell/internal/disk", test: "TestReplay",
		},
		{
			name: "a cell says from what it was restored", file: "raftfsm/snapshot.go",
			old: "	s.Restored, s.Unproved = h.Restored, h.Unproved\n", new: "	s.Unproved = h.Unproved\n",
			pkg: "./raftfsm", test: "TestRestoreSteps",
		},
		{
			name: "a directory that is none is not made one", file: "cell/internal/disk/replay.go",
			old: "	case m == nil:\n", new: "	case m == nil && dir == \"\":\n",
			pkg: "./cell/recovery", test: "TestWhatCannotBeRecovered",
		},
		{
			name: "no cell is made unasked of a replica that was removed", file: "cmd/chubbyctl/recover.go",
			old: "	if !d.Removed || fromRemoved {\n", new: "	if true {\n",
			pkg: "./cmd/chubbyctl", test: "TestRecoverFromARemovedReplica",
		},
		{
			name: "a replica that was removed knows it", file: "cell/recovery/recovery.go",
			old: "	if stores.WasRemoved(d.Replica) {\n", new: "	if false {\n",
			pkg: "./cell/recovery", test: "TestRemovedReplicaIsNotFresh",
		},
		{
			name: "others know who was removed", file: "cell/recovery/recovery.go",
			old: "return one.left(list[i].Replica) })", new: "return one.Replica == list[i].Replica && one.left(list[i].Replica) })",
			pkg: "./cell/recovery", test: "TestRemovedReplicaIsNotFresh",
		},
	}
}
