package main

// scheduleSafeguards are those of backups that are taken by themselves, and of where they are kept.
func scheduleSafeguards() []safeguard {
	const store, schedule = "./internal/backupstore", "TestScheduledBackups"
	return []safeguard{
		{
			name: "a backup in a bucket replaces nothing", file: "internal/backupstore/bucket.go",
			old: "	u.options.SetMatchETagExcept(\"*\")\n", new: "",
			pkg: store, test: "TestOneOfManyWrites",
		},
		{
			name: "a backup in a directory replaces nothing", file: "internal/backupstore/directory.go",
			old: "		err = os.Link(file.Name(), whole) // unlike a rename, it replaces nothing\n	}\n	if err = errors.Join(err, os.Remove(file.Name())); err == nil {\n",
			new: "		err = os.Rename(file.Name(), whole)\n	}\n	if err == nil {\n",
			pkg: store, test: "TestOneOfManyWrites",
		},
		{
			name: "parts of a backup that failed are given up", file: "internal/backupstore/bucket.go",
			old: "	_ = u.core.AbortMultipartUpload(ctx, u.bucket, u.key, u.id)\n", new: "	_ = ctx\n",
			pkg: store, test: "TestOneOfManyWrites",
		},
		{
			name: "the next master knows the last backup", file: "cell/schedule.go",
			old: "				s.last = max(s.last, at)\n", new: "				_ = at\n",
			pkg: "./cell", test: schedule,
		},
		{
			name: "the newest backups are kept", file: "cell/schedule.go",
			old: "	slices.Sort(times)\n", new: "	slices.Sort(times)\n	slices.Reverse(times)\n",
			pkg: "./cell", test: schedule,
		},
		{
			name: "a new cell removes no backup of the lost one", file: "cell/schedule.go",
			old: "return fmt.Sprintf(\"-%.8s.backup\", id) }", new: "return fmt.Sprintf(\"-%.0s.backup\", id) }",
			pkg: "./cell", test: "TestBackupsOfALostCellStay",
		},
		{
			name: "a restore is backed up at once", file: "cell/schedule.go",
			old: "	return r != nil && r.AtUnix >= last && r.AtUnix <= now ", new: "	return r != nil && r.AtUnix < 0 ",
			pkg: "./cell", test: "TestBackupAfterARestore",
		},
		{
			name: "a backup of the far future does not stop others", file: "cell/schedule.go",
			old: "			if at < now+every { ", new: "			if at > 0 { ",
			pkg: "./cell", test: schedule,
		},
		{
			name: "backups of the far future take nobody's room", file: "cell/schedule.go",
			old: "return at >= before })", new: "return at >= before && false })",
			pkg: "./cell", test: schedule,
		},
	}
}
