package main

// rotGuards are those of a replica of whose files one has rotted, or may not be read.
func rotGuards() []guard {
	return []guard{
		{
			name: "a rotten snapshot is not taken instead of an older one", file: "cell/storeguard.go",
			old: "return s.rotten[meta.ID] }), err", new: "return false && s.rotten[meta.ID] }), err",
			pkg: "./cell", test: "TestNewestSnapshotRots",
		},
		{
			name: "a snapshot that may not be read is not taken for a rotten one", file: "cell/stores.go",
			old: "			if denied(err) {", new: "			if denied(err) && false {",
			pkg: "./cell", test: "TestDeniedIsNotDamaged",
		},
		{
			name: "the metadata of a snapshot that may not be read are not taken for rotten ones", file: "cell/datadir.go",
			old: "metaName)); denied(err) {", new: "metaName)); denied(err) && false {",
			pkg: "./cell", test: "TestDeniedIsNotDamaged",
		},
		{
			name: "a file that may not be looked at is not missing", file: "cell/datadir.go",
			old: "		case denied(err):", new: "		case denied(err) && false:",
			pkg: "./cell", test: "TestDeniedIsNotDamaged",
		},
		{
			name: "metadata of a snapshot that have rotted are not believed", file: "cell/snapshotmeta.go",
			old: "		err = s.contradiction(id, meta, file.Size())", new: "		_ = s.contradiction(id, meta, file.Size())",
			pkg: "./cell", test: "TestSnapshotsMetadataRot",
		},
		{
			name: "the configuration in a snapshot is that of the cell", file: "cell/snapshotmeta.go",
			old: "	case r == nil:", new: "	case r == nil || true:",
			pkg: "./cell", test: "TestSnapshotsMetadataRot",
		},
		{
			name: "votes under keys that have rotted are not forgotten", file: "cell/stores.go",
			old: "sheltered(votes.verify); err != nil {", new: "sheltered(votes.verify); err != nil && false {",
			pkg: "./cell", test: "TestVotesRot",
		},
		{
			name: "metadata of the WAL that have rotted are damage", file: "cell/wallog.go",
			old: "	if denied(err) {\n		return dataError(path, err, \"%s\", what)", new: "	if denied(err) || err != nil {\n		return dataError(path, err, \"%s\", what)",
			pkg: "./cell", test: "TestWALMetadataRot",
		},
		{
			name: "the last entry is not needed if the snapshot covers it", file: "cell/overtaken.go",
			old: "	case unreadable && last == base:", new: "	case unreadable && last == 0:",
			pkg: "./cell", test: "TestEntryUnderSnapshotRots",
		},
		{
			name: "what a snapshot has is not missed at the end of the log", file: "cell/logend.go",
			old: " && covered() < noted {", new: " {",
			pkg: "./cell", test: "TestEntryUnderSnapshotRots",
		},
		{
			name: "what no snapshot has is missed at the end of the log", file: "cell/logend.go",
			old: " && covered() < noted {", new: " && covered() > noted {",
			pkg: "./cell", test: "TestLogThatEndsTooEarly|TestWALNotesItsEnd",
		},
		{
			name: "a rotten entry that the snapshot covers ends no master", file: "cell/storeguard.go",
			old: " && index <= l.mark.snapshot() {", new: " && index == 0 {",
			pkg: "./cell", test: "TestRottenEntryEndsNoMaster",
		},
		{
			name: "a rotten entry that the snapshot covers is told of", file: "cell/storeguard.go",
			old: "			l.tell(index, err)\n", new: "",
			pkg: "./cell", test: "TestRottenEntryIsToldOf",
		},
		{
			name: "a rotten entry is told of once", file: "cell/storeguard.go",
			old: "l.told.Swap(index) != index {", new: "l.told.Swap(index) != 0 || true {",
			pkg: "./cell", test: "TestRottenEntryIsToldOf",
		},
		{
			name: "a rotten entry that no snapshot covers is not missing", file: "cell/storeguard.go",
			old: " && index <= l.mark.snapshot() {", new: " {",
			pkg: "./cell", test: "TestLogChecksum",
		},
		{
			name: "the log reaches back to the snapshot before the newest", file: "cell/storeguard.go",
			old: "			last = min(last, l.mark.surplus())\n", new: "			last = min(last, l.mark.snapshot())\n",
			pkg: "./cell", test: "TestLogReachesBackBehindTheNewestSnapshot",
		},
		{
			name: "a roster that has rotted is not believed", file: "cell/identityfile.go",
			old: "c.Sum != sum {", new: "c.Sum == \"rotten\" {",
			pkg: "./cell", test: "TestDataDirRefusesLoss",
		},
		{
			name: "a process that was stopped does not take its disk for stalled", file: "cell/watchdog.go",
			old: "const watchLooks = 6", new: "const watchLooks = 1",
			pkg: "./cell", test: "TestStoppedProcessIsNoStalledDisk",
		},
	}
}
