package main

// rotSafeguards cover a replica with a damaged or unreadable file.
func rotSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a rotten snapshot is not taken instead of an older one", file: "cell/internal/disk/failstopsnapshots.go",
			old: "return s.unreadable[meta.ID] }), err", new: "return false && s.unreadable[meta.ID] }), err",
			pkg: "./cell/internal/disk", test: "TestNewestSnapshotRots",
		},
		{
			name: "a snapshot that may not be read is not taken for a rotten one", file: "cell/internal/disk/integrity.go",
			old: "			if isDenied(err) {", new: "			if isDenied(err) && false {",
			pkg: "./cell/internal/disk", test: "TestDeniedIsNotDamaged",
		},
		{
			name: "the metadata of a snapshot that may not be read are not taken for rotten ones", file: "cell/internal/disk/datadir.go",
			old: "metaName)); isDenied(err) {", new: "metaName)); isDenied(err) && false {",
			pkg: "./cell/internal/disk", test: "TestDeniedIsNotDamaged",
		},
		{
			name: "a file that may not be looked at is not missing", file: "cell/internal/disk/marker.go",
			old: "		case isDenied(err):", new: "		case isDenied(err) && false:",
			pkg: "./cell/internal/disk", test: "TestDeniedIsNotDamaged",
		},
		{
			name: "metadata of a snapshot that have rotted are not believed", file: "cell/internal/disk/snapshotmeta.go",
			old: "		err = s.checkMeta(id, meta, file.Size(), summed)", new: "		_ = s.checkMeta(id, meta, file.Size(), summed)",
			pkg: "./cell/internal/disk", test: "TestSnapshotsMetadataRot",
		},
		{
			name: "the configuration in a snapshot is that of the cell", file: "cell/internal/disk/snapshotmeta.go",
			old: "	case r == nil:", new: "	case r == nil || true:",
			pkg: "./cell/internal/disk", test: "TestSnapshotsMetadataRot",
		},
		{
			name: "votes under keys that have rotted are not forgotten", file: "cell/internal/disk/votes.go",
			old: "catchPanic(votes.verify); err != nil {", new: "catchPanic(votes.verify); err != nil && false {",
			pkg: "./cell/internal/disk", test: "TestVotesRot",
		},
		{
			name: "metadata of the WAL that have rotted are damage", file: "cell/internal/disk/wallog.go",
			old: "	if isDenied(err) {\n		return dataError(path, err, \"%s\", what)", new: "	if isDenied(err) || err != nil {\n		return dataError(path, err, \"%s\", what)",
			pkg: "./cell/internal/disk", test: "TestWALMetadataRot",
		},
		{
			name: "the last entry is not needed if the snapshot covers it", file: "cell/internal/disk/overtaken.go",
			old: "	case unreadable && last == base:", new: "	case unreadable && last == 0:",
			pkg: "./cell/internal/disk", test: "TestEntryUnderSnapshotRots",
		},
		{
			name: "what a snapshot has is not missed at the end of the log", file: "cell/internal/disk/logend.go",
			old: " && covered() < noted {", new: " {",
			pkg: "./cell/internal/disk", test: "TestEntryUnderSnapshotRots",
		},
		{
			name: "what no snapshot has is missed at the end of the log", file: "cell/internal/disk/logend.go",
			old: " && covered() < noted {", new: " && covered() > noted {",
			pkg: "./cell/internal/disk", test: "TestLogThatEndsTooEarly|TestWALNotesItsEnd",
		},
		{
			name: "a rotten entry that the snapshot covers ends no master", file: "cell/internal/disk/failstoplogs.go",
			old: " && index <= l.mark.snapshotIndex() {", new: " && index == 0 {",
			pkg: "./cell/internal/disk", test: "TestRottenEntryEndsNoMaster",
		},
		{
			name: "a rotten entry that the snapshot covers is told of", file: "cell/internal/disk/failstoplogs.go",
			old: "			l.reportDamaged(index, err)\n", new: "",
			pkg: "./cell/internal/disk", test: "TestRottenEntryIsToldOf",
		},
		{
			name: "a rotten entry is told of once", file: "cell/internal/disk/failstoplogs.go",
			old: "l.lastReported.Swap(index) != index {", new: "l.lastReported.Swap(index) != 0 || true {",
			pkg: "./cell/internal/disk", test: "TestRottenEntryIsToldOf",
		},
		{
			name: "a rotten entry that no snapshot covers is not missing", file: "cell/internal/disk/failstoplogs.go",
			old: " && index <= l.mark.snapshotIndex() {", new: " {",
			pkg: "./cell/internal/disk", test: "TestLogChecksum",
		},
		{
			name: "the log reaches back to the snapshot before the newest", file: "cell/internal/disk/failstoplogs.go",
			old: "			last = min(last, l.mark.lastSurplus())\n", new: "			last = min(last, l.mark.snapshotIndex())\n",
			pkg: "./cell/internal/disk", test: "TestLogReachesBackBehindTheNewestSnapshot",
		},
		{
			name: "a roster that has rotted is not believed", file: "cell/internal/disk/identityfile.go",
			old: "c.Sum != sum {", new: "c.Sum == \"rotten\" {",
			pkg: "./cell/internal/disk", test: "TestDataDirRefusesLoss",
		},
		{
			name: "a process that was stopped does not take its disk for stalled", file: "cell/internal/disk/watchdog.go",
			old: "const maxLooks = 6", new: "const maxLooks = 1",
			pkg: "./cell/internal/disk", test: "TestStoppedProcessIsNoStalledDisk",
		},
	}
}
