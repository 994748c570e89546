package sqlfence_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/chubbylock/chubby/examples/sqlfence"
)

// openDatabase opens the database in a file, and creates what the package uses.
func openDatabase(t *testing.T, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+name+"?_pragma=busy_timeout(20000)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for statement := range strings.SplitSeq(sqlfence.Schema, ";") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func newDatabase(t *testing.T) *sql.DB {
	t.Helper()
	return openDatabase(t, filepath.Join(t.TempDir(), "database"))
}
