package main

// auditSafeguards are those of the audit log.
func auditSafeguards() []safeguard {
	return []safeguard{
		{
			name: "an act that was not written is in the log", file: "cell/internal/audit/log.go",
			old: "	if r.Event == Act {\n		l.cfg.Failed()\n", new: "	if r.Event == \"\" {\n		l.cfg.Failed()\n",
			pkg: "./cell/internal/audit", test: "TestFullDisk",
		},
		{
			name: "refusals that are recorded are bounded", file: "cell/internal/audit/log.go",
			old: "	if l.allowed < 1 {\n		return false\n	}\n", new: "",
			pkg: "./cell/internal/audit", test: "TestRefusalsAreBounded",
		},
		{
			name: "refusals that are not recorded are counted", file: "cell/internal/audit/log.go",
			old: "	l.omitted += n\n", new: "	l.omitted = n\n",
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
			name: "an act waits for the disk for a bounded time", file: "cell/internal/audit/log.go",
			old: "	case <-late.C:\n		l.lost(r, fmt.Errorf(\"%d records wait for the disk\", maxQueue))\n", new: "	case <-l.ended:\n		l.lost(r, fmt.Errorf(\"%v\", late))\n",
			pkg: "./cell/internal/audit", test: "TestDiskThatHangs",
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
			old: "	default:\n		l.omit(1)\n", new: "	default:\n",
			pkg: "./cell/internal/audit", test: "TestRefusalsOfABrokenDiskAreCounted",
		},
		{
			name: "and a count that it does not take is kept", file: "cell/internal/audit/log.go",
			old: "		l.omit(r.Count)\n", new: "",
			pkg: "./cell/internal/audit", test: "TestRefusalsOfABrokenDiskAreCounted",
		},
		{
			name: "and told in the next line", file: "cell/internal/audit/log.go",
			old: "			if !all {\n", new: "			if false && !all {\n",
			pkg: "./cell/internal/audit", test: "TestRefusalsOfABrokenDiskAreCounted",
		},
		{
			name: "acts are recorded", file: "cell/internal/wire/audit.go",
			old: "		s.cfg.Audit.Act(record)\n", new: "		s.cfg.Audit.Act(audit.Record{})\n",
			pkg: "./cell", test: "TestAudit$",
		},
		{
			name: "acts of which nothing is known are bounded", file: "cell/internal/wire/audit.go",
			old: "	case err != nil:\n		s.cfg.Audit.Unknown(record)\n", new: "",
			pkg: "./cell", test: "TestAuditOfCallsThatWereGivenUp",
		},
		{
			name: "calls in another's session are recorded", file: "cell/internal/wire/identity.go",
			old: "			callOf(ctx).foreign = true\n", new: "",
			pkg: "./cell", test: "TestAuditOfStrangers",
		},
		{
			name: "who transfers the master is recorded", file: "cell/internal/wire/service.go",
			old: "who := s.actor(ctx, info.FullMethod, request)", new: "who := s.actor(ctx, \"\", request)",
			pkg: "./cell", test: "TestAudit$",
		},
	}
}
