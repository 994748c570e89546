package chubby_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// lawTracked: a binary that was built in its directory is easily committed, and stays in
// every clone for ever. A copy of the source without git has no list of files to check.
func lawTracked(t *testing.T, _ []source) {
	const maxBytes = 1 << 20
	list, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Logf("the files that git tracks are not known: %v", err)
		return
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		info, err := os.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // deleted, and not committed yet
		case err != nil:
			t.Error(err)
		case info.Size() > maxBytes:
			t.Errorf("git tracks %s, of %d bytes; at most %d: is it a program that was built?", name, info.Size(), maxBytes)
		}
	}
}
