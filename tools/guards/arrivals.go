package main

// arrivalSafeguards cover what a replica receives, and finds on its disk when it starts.
func arrivalSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a snapshot that stops arriving holds up no election", file: "cell/internal/peer/transport.go",
			old: "	if s.within.Load() {", new: "	if false {",
			pkg: "./cell/internal/peer", test: "TestSnapshotThatStopsArriving",
		},
		{
			name: "between messages it may be quiet", file: "cell/internal/peer/transport.go",
			old: "	s.within.Store(false)\n", new: "",
			pkg: "./cell/internal/peer", test: "TestMessageThatArrivesSlowly",
		},
		{
			name: "a late snapshot ends the replica in order", file: "cell/internal/disk/failstoplogs.go",
			old: "		if err == nil && last == 0 {", new: "		if false && last == 0 {",
			pkg: "./cell/internal/disk", test: "TestLateSnapshot",
		},
		{
			name: "data must not end before a snapshot", file: "cell/internal/disk/integrity.go",
			old: "	case newest > s.last:", new: "	case false:",
			pkg: "./cell/internal/disk", test: "TestDataThatEndsTooEarly",
		},
		{
			name: "data of a replica that has run is not nothing", file: "cell/internal/disk/integrity.go",
			old: "	case s.last == 0 && s.who", new: "	case false && s.who",
			pkg: "./cell/internal/disk", test: "TestDataThatEndsTooEarly",
		},
		{
			name: "Raft goes on from the newest snapshot", file: "cell/internal/disk/raftstart.go",
			old: "has < s.last {", new: "has < s.last && false {",
			pkg: "./cell/internal/disk", test: "TestSnapshotThatCannotBeRestored",
		},
		{
			name: "the end of bbolt's log is noted", file: "cell/internal/disk/stores.go",
			old: "	noted, err := openNotedLog(",
			new: `	if store.name == BoltStore {
		s.closers, s.rawLogs = append(s.closers, logs), logs
		return nil
	}
	noted, err := openNotedLog(`,
			pkg: "./cell/internal/disk", test: "TestLogThatEndsTooEarly",
		},
		{
			name: "damaged data is a refusal", file: "cell/internal/disk/damage.go",
			old: "identity.LossAdvice\n	return identity.Refuse(e)", new: "identity.LossAdvice\n	return e",
			pkg: "./cell/internal/disk", test: "TestStartVerifiesLog",
		},
		{
			name: "another replica's data is a refusal", file: "cell/internal/disk/marker.go",
			old: "api.WrongCell, m.Cell\n		return identity.Refuse(e)", new: "api.WrongCell, m.Cell\n		return e",
			pkg: "./cell/internal/disk", test: "TestDataDirIsOneReplicas",
		},
		{
			name: "who bootstraps is not believed", file: "cell/internal/peer/handshake.go",
			old: "	if err == nil && !streamKinds()[h.kind].anyone {", new: "	if err == nil {",
			pkg: "./cell/internal/peer", test: "TestBootstrapIsNotBelieved",
		},
		{
			name: "a setting without a value is a fault", file: "cmd/chubbyd/file.go",
			old: `	case value.Tag == "!!null":`, new: "	case false:",
			pkg: "./cmd/chubbyd", test: "TestCheckOfWhatIsNoConfiguration",
		},
	}
}
