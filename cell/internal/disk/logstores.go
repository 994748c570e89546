package disk

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// LogStore names a kind of log.
type LogStore string

// logStore is a kind of Raft log. A new one needs a row in logStores and a file for its open function.
type logStore struct {
	name LogStore // in the configuration and the marker
	path string   // of its file or directory in the data directory
	file string   // a file that must exist in a directory with a marker

	// open opens the log at a path, and creates it if it is absent.
	open func(path string, opts Options) (logFiles, error)

	damage []error // further errors of open that mean damage, besides api.Corrupt
}

func logStores() []logStore {
	return []logStore{
		{
			name:   BoltStore,
			path:   boltLogName,
			file:   boltLogName,
			open:   openBoltLog,
			damage: bboltDamage(),
		},
		{
			name:   WALStore,
			path:   walLogName,
			file:   filepath.Join(walLogName, walMetaName),
			open:   openWAL,
			damage: walDamage(),
		},
	}
}

// LogStores returns the names of all log stores.
func LogStores() []LogStore {
	var names []LogStore
	for _, s := range logStores() {
		names = append(names, s.name)
	}
	return names
}

// LogStoreNames joins the names of all log stores with a conjunction, for people.
func LogStoreNames(conjunction string) string {
	var names []string
	for _, name := range LogStores() {
		names = append(names, strconv.Quote(string(name)))
	}
	return strings.Join(names, conjunction)
}

func logStoreNamed(name LogStore) (store logStore, ok bool) {
	list := logStores()
	i := slices.IndexFunc(list, func(s logStore) bool { return s.name == name })
	if i < 0 {
		return logStore{}, false
	}
	return list[i], true
}
