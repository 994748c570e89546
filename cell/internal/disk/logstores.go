package disk

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// LogStore names a log store.
type LogStore string

// logStore is one way to keep the Raft log. To add one, give it a row in logStores
// and a file for its open function.
type logStore struct {
	name LogStore // in the configuration and in the marker
	path string   // of its file or directory, below the data directory
	file string   // that must exist in a directory with a marker, below the data directory

	// open opens the log at a path, and makes it if it is absent.
	open func(path string, opts logOptions) (logFiles, error)

	damage []error // errors of open that mean damage, besides api.Corrupt
}

// logOptions is what a log store needs to know beside its path.
type logOptions struct {
	logger      hclog.Logger
	segmentSize int // bytes, of a log that has segments; 0 is its own choice
}

// logStores lists the log stores.
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

// LogStoreNames lists the log stores for people, with a conjunction between them.
func LogStoreNames(conjunction string) string {
	var names []string
	for _, name := range LogStores() {
		names = append(names, strconv.Quote(string(name)))
	}
	return strings.Join(names, conjunction)
}

// logStoreNamed returns the log store of that name.
func logStoreNamed(name LogStore) (store logStore, ok bool) {
	list := logStores()
	i := slices.IndexFunc(list, func(s logStore) bool { return s.name == name })
	if i < 0 {
		return logStore{}, false
	}
	return list[i], true
}
