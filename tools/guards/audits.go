package main

// auditSafeguards are those of the file of the audit log.
func auditSafeguards() []safeguard {
	return []safeguard{
		{
			name: "an act that was not written is in the log", file: "cell/internal/audit/log.go",
			old: "	if !e.bounded {\n		l.cfg.Failed()\n", new: "	if false {\n		l.cfg.Failed()\n",
			pkg: "./cell/internal/audit", test: "TestFullDisk",
		},
		{
			name: "refusals that are recorded are bounded", file: "cell/internal/audit/log.go",
			old: "	return was > 0\n", new: "	return was > 0 || true\n",
			pkg: "./cell/internal/audit", test: "TestRefusalsAreBounded",
		},
		{
			name: "refusals that are not recorded are counted", file: "cell/internal/audit/log.go",
			old: "	l.omitted.all += more.all\n", new: "	l.omitted.all = more.all\n",
			pkg: "./cell/internal/audit", test: "TestRefusalsAreBounded",
		},
		{
			name: "an audit file that was renamed is begun anew", file: "cell/internal/audit/file.go",
			old: "err != nil || !os.SameFile(now, a.info) {", new: "err != nil && now != nil {",
			pkg: "./cell/internal/audit", test: "TestFileIsTakenAway",
		},
		{
			name: "a torn line of the audit log stays alone", file: "cell/internal/audit/file.go",
			old: "		line = append([]byte(\"\\n\"), line...)\n", new: "",
			pkg: "./cell/internal/audit", test: "TestFileIsTakenAway",
		},
		{
			name: "a line of the audit log is one line, and drives no terminal", file: "cell/internal/audit/record.go",
			old: "	return escape(b.Bytes())\n", new: "	_ = escape\n	return b.Bytes()\n",
			pkg: "./cell/internal/audit", test: "TestLinesCanBeSeen",
		},
		{
			name: "an audit file is synced before the next one", file: "cell/internal/audit/file.go",
			old: "	a.earlier = errors.Join(a.earlier, a.syncThis())\n", new: "",
			pkg: "./cell/internal/audit", test: "TestFilesAreSyncedBeforeTheNext",
		},
		{
			name: "the name of a new audit file survives a crash", file: "cell/internal/audit/file.go",
			old: "	if a.unnamed {\n", new: "	if false {\n",
			pkg: "./cell/internal/audit", test: "TestFilesAreSyncedBeforeTheNext",
		},
		{
			name: "an audit file that cannot be renamed is used further", file: "cell/internal/audit/file.go",
			old: "	if a.stuck && (!act || a.size", new: "	if a.stuck && (true || a.size",
			pkg: "./cell/internal/audit", test: "TestFileThatCannotBeRenamed",
		},
		{
			name: "and not without end", file: "cell/internal/audit/file.go",
			old: "(!act || a.size+int64(len(line)) > 2*a.cfg.Size) {", new: "!act {",
			pkg: "./cell/internal/audit", test: "TestFileThatCannotBeRenamed",
		},
		{
			name: "that an audit file cannot be renamed is counted", file: "cell/internal/audit/file.go",
			old: "		a.cfg.Failed()\n", new: "",
			pkg: "./cell/internal/audit", test: "TestFileThatCannotBeRenamed",
		},
		{
			name: "a failure to rename an audit file moves no other twice", file: "cell/internal/audit/file.go",
			old: "errors.Is(err, os.ErrNotExist) {\n			break\n", new: "errors.Is(err, os.ErrNotExist) {\n			continue\n",
			pkg: "./cell/internal/audit", test: "TestKeptFilesMoveOnce",
		},
		{
			name: "refusals that a disk does not take are counted", file: "cell/internal/audit/log.go",
			old: "	l.omit(omissionOf(e.Record))\n", new: "",
			pkg: "./cell/internal/audit", test: "TestRefusalsOfABrokenDiskAreCounted",
		},
		{
			name: "and a count that it does not take is kept", file: "cell/internal/audit/log.go",
			old: "		return omission{all: r.Count, unknown: r.Unknown}\n", new: "		return omission{}\n",
			pkg: "./cell/internal/audit", test: "TestRefusalsOfABrokenDiskAreCounted",
		},
		{
			name: "and told in the next line", file: "cell/internal/audit/log.go",
			old: "			if !all {\n", new: "			if false && !all {\n",
			pkg: "./cell/internal/audit", test: "TestRefusalsOfABrokenDiskAreCounted",
		},
	}
}

// actSafeguards are those of what is recorded.
func actSafeguards() []safeguard {
	return []safeguard{
		{
			name: "so is what was given up through a handle for it", file: "cell/internal/wire/audit.go",
			old: "	return err == nil && h.Rights&right != 0\n", new: "	return err != nil && h.Rights&right != 0\n",
			pkg: "./cell", test: "TestAuditOfWhatMayHaveBeenDone",
		},
		{
			name: "what is not known is not told as known", file: "cell/internal/wire/audit.go",
			old: "		record.Code, record.Message = api.Uncertain.String(), audit.NotKnown+record.Message\n", new: "",
			pkg: "./cell", test: "TestAuditOfWhatMayHaveBeenDone",
		},
		{
			name: "acts that are left out are not told as refusals", file: "cell/internal/audit/log.go",
			old: "		return omission{all: 1, unknown: 1}\n", new: "		return omission{all: 1}\n",
			pkg: "./cell/internal/audit", test: "TestRefusalsAreBounded",
		},
		{
			name: "a restore that waits is not told as done", file: "cell/internal/wire/audit.go",
			old: "(scope == onlyRefusals || isVain(reply)) {\n", new: "scope == onlyRefusals {\n",
			pkg: "./cell/internal/wire", test: "TestRestoreThatWaitsIsNoAct",
		},
		{
			name: "a way back into the ACLs is recorded", file: "cell/epochs.go",
			old: "	if restore {\n		r.recordRestoredAccess(err)\n	}\n", new: "",
			pkg: "./cell", test: "TestRestoreAccess",
		},
		{
			name: "who transfers the master is recorded", file: "cell/internal/wire/service.go",
			old: "before := s.witness(ctx, method, request)", new: "before := s.witness(ctx, pb.Chubby_GetStat_FullMethodName, request)",
			pkg: "./cell", test: "TestAudit$",
		},
		{
			name: "an act waits for the disk for a bounded time", file: "cell/internal/audit/log.go",
			old: "			case <-late.C:\n				isLate = true\n", new: "			case <-l.ended:\n				isLate = late != nil\n",
			pkg: "./cell/internal/audit", test: "TestDiskThatHangs",
		},
	}
}
