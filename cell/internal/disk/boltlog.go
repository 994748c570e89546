package disk

import (
	"io"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// BoltStore is one B+ tree file, with two syncs for each write.
const BoltStore LogStore = "boltdb"

const boltLogName = "log.db"

func openBoltLog(path string, _ Options) (logFiles, error) {
	open := func(path string) (*raftboltdb.BoltStore, error) {
		return raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions(), MsgpackUseNewTimeFormat: true})
	}
	if err := makeFile(path, func(path string) (io.Closer, error) { return open(path) }); err != nil {
		return nil, err
	}
	logs, err := open(path)
	if err != nil {
		return nil, dataError(path, err, "the log cannot be opened")
	}
	return logs, nil
}
