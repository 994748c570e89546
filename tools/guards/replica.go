package main

import "slices"

// replicaSafeguards cover a replica as a whole: how it becomes master, and what it reports to
// its operator.
func replicaSafeguards() []safeguard {
	return slices.Concat(epochSafeguards(), logSafeguards(), addressSafeguards())
}

// addressSafeguards cover where a replica listens and is reached.
func addressSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a replica listens on every interface for a name", file: "cell/listen.go",
			old: "if err != nil || host == \"localhost\"", new: "if true || err != nil || host == \"localhost\"",
			pkg: "./cell", test: "TestListenOn",
		},
		{
			name: "clients are told the advertised address", file: "cell/epochs.go",
			old: "		return r.advertised()\n", new: "",
			pkg: "./cell", test: "TestListenBehindAMappedPort",
		},
		{
			name: "data of a newer version is not called damaged", file: "cell/replica.go",
			old: "			err = newerData(r.cfg.ID, err)\n", new: "",
			pkg: "./cell", test: "TestDataOfAnotherVersion",
		},
		{
			name: "a disk that is nearly full is told of", file: "cell/internal/disk/space.go",
			old: "	if free := s.free.Load(); free >= 0 && free < minFree {", new: "	if free := s.free.Load(); free < 0 {",
			pkg: "./cell/internal/disk", test: "TestDiskNearlyFull",
		},
		{
			name: "names that mean loopback are told of", file: "cmd/chubbyd/warnings.go",
			old: "if elsewhere && isLoopback(found[i]) {", new: "if elsewhere && false {",
			pkg: "./cmd/chubbyd", test: "TestWarnings",
		},
		{
			name: "replicas of dev wait for their common disk", file: "cmd/chubbyd/devcell.go",
			old: "		DiskStall:          devDiskStall,\n", new: "		DiskStall:          cell.DefaultDiskStall.String(),\n",
			pkg: "./cmd/chubbyd", test: "TestDevIsPatientWithItsDisk",
		},
		{
			name: "a stalled disk has bounds", file: "cell/config.go",
			old: "	cfg.checkDiskStall(fault)\n", new: "",
			pkg: "./cell", test: "TestDiskStallHasBounds",
		},
		{
			name: "the stores are told how long the disk may stall", file: "cell/replica.go",
			old: "		Stall:   r.cfg.DiskStall,\n", new: "",
			pkg: "./cell", test: "TestDiskStallReachesTheStores",
		},
		{
			name: "the watch over the disk goes by what it is told", file: "cell/internal/disk/stores.go",
			old: "newFailStop(opts.Stall, opts.Silence", new: "newFailStop(maxStoreWait, opts.Silence",
			pkg: "./cell/internal/disk", test: "TestWatchdogGoesByTheOptions",
		},
		{
			name: "a process that has ended is not waited for until it stops", file: "cell/celltest/processes/halt.go",
			old: "	if ended > 0 && ended == len(threads) {\n", new: "	if ended < 0 {\n",
			pkg: "./cell/celltest/processes", test: "TestHaltOfAProcessThatHasEnded",
		},
	}
}
