package main

// backupSafeguards are those of backups.
func backupSafeguards() []safeguard {
	return []safeguard{
		{
			name: "the secret is not in a backup", file: "raftfsm/restore.go",
			old: "	s.Secret, s.staged, s.Origin, s.Roster, s.past, s.Restored = nil, nil, \"\", Roster{}, newPast(s.past.most), nil\n", new: "	s.staged, s.Origin, s.Roster, s.past, s.Restored = nil, \"\", Roster{}, newPast(s.past.most), nil\n",
			pkg: "./internal/backup", test: "TestBackup",
		},
		{
			name: "a backup has a sum", file: "internal/backup/backup.go",
			old: "	if !bytes.Equal(sum, want) {\n", new: "	if bytes.Equal(sum, nil) {\n",
			pkg: "./internal/backup", test: "TestDamagedBackups",
		},
		{
			name: "a backup that arrives is followed to its sum", file: "internal/backup/follower.go",
			old: "	if !bytes.Equal(sum, f.last) {\n", new: "	if bytes.Equal(sum, nil) {\n",
			pkg: "./internal/backup", test: "TestDamagedBackups",
		},
		{
			name: "backups are for operators", file: "cell/internal/master/backups.go",
			old: "	if who != \"\" {\n		if err := b.epoch.state()", new: "	if who == \"\" {\n		if err := b.epoch.state()",
			pkg: "./cell", test: "TestLookingTakesRights",
		},
		{
			name: "a part is given again, and none is left out", file: "cell/internal/master/backups.go",
			old: "	case part != one.part+1 || one.end:\n", new: "	case part <= one.part:\n",
			pkg: "./cell", test: "TestBackupParts",
		},
		{
			name: "few backups are taken at a time", file: "cell/internal/master/backups.go",
			old: "	if len(b.open) >= maxBackups {\n		return", new: "	if false {\n		return",
			pkg: "./cell", test: "TestBackupParts",
		},
		{
			name: "a backup that nobody asks for is given up", file: "cell/internal/master/backups.go",
			old: "time.AfterFunc(backupIdle, func() { b.drop(key) })", new: "time.AfterFunc(backupIdle, func() {})",
			pkg: "./cell", test: "TestBackupParts",
		},
		{
			name: "a backup is of one master", file: "cell/internal/master/backups.go",
			old: "	if !begin {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestBackupParts",
		},
		{
			name: "a backup is what its description says", file: "internal/backup/backup.go",
			old: "	case b.About != aboutOf(b.State, b.TakenUnix, b.Recovered):\n", new: "	case false:\n",
			pkg: "./internal/backup", test: "TestDescriptionOfAnotherState",
		},
		{
			name: "a backup with a secret is none", file: "internal/backup/backup.go",
			old: "	case len(b.State.Secret) > 0:\n", new: "	case false:\n",
			pkg: "./internal/backup", test: "TestSecretInside",
		},
	}
}
