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
			old: "return at >= now+every })", new: "return at >= now+every && false })",
			pkg: "./cell", test: schedule,
		},
		{
			name: "a backup whose answer was lost is no failure", file: "cell/schedule.go",
			old: "		s.failures = 0 // the last one was made", new: "		// the last one was made",
			pkg: "./cell", test: "TestBackupWhoseAnswerIsLost",
		},
		{
			name: "an object whose answer was lost is there", file: "internal/backupstore/bucket.go",
			old: "err == nil || u.isThere() {", new: "err == nil {",
			pkg: store, test: "TestAnswersOfABucketAreLost",
		},
		{
			name: "an object of another is not taken for one's own", file: "internal/backupstore/bucket.go",
			old: "	return err == nil && is.UserMetadata[writeKey] == u.mark\n", new: "	return err == nil && is.Key != \"\"\n",
			pkg: store, test: "TestOneOfManyWrites",
		},
		{
			name: "backups that a crash left unfinished are removed by the next master", file: "cell/schedule.go",
			old: "		r.removeUnfinished(ctx, m.CellID(), now, names)\n", new: "",
			pkg: "./cell", test: "TestUnfinishedBackupsAreRemoved",
		},
		{
			name: "backups that a crash left unfinished are removed after the next backup", file: "cell/schedule.go",
			old: "	r.removeUnfinished(ctx, id, now, names)\n	times", new: "	times",
			pkg: "./cell", test: "TestUnfinishedBackupsAreRemoved",
		},
		{
			name: "a backup that is being written is not removed", file: "cell/schedule.go",
			old: "			if at > now-int64(2*maxBackupTakes/time.Second) {", new: "			if at > now {",
			pkg: "./cell", test: "TestUnfinishedBackupsAreRemoved",
		},
	}
}
