package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
)

// A disk that is getting full is reported in time: in the log, though not in
// every line, and in /readyz.
func TestDiskNearlyFull(t *testing.T) {
	s := NewSpace("/data", nil, nil)
	for free, want := range map[int64]string{0: "0 MiB are free", 86 << 20: "86 MiB are free", minFree - 1: "1023 MiB are free", minFree: "", -1: ""} {
		s.free.Store(free)
		if note := s.Note(); (note == "") != (want == "") || !strings.Contains(note, want) || strings.Contains(note, "/data") {
			t.Errorf("with %d bytes free /readyz says %q", free, note)
		}
	}
	full := ExplainFull(t.TempDir(), fmt.Errorf("make a segment: %w", syscall.ENOSPC))
	for _, want := range []string{"the disk is full", "MiB are free", "a start needs 64 MiB"} {
		if !strings.Contains(full.Error(), want) {
			t.Errorf("a start on a full disk: %v; want %q in it", full, want)
		}
	}
	if other := errors.New("other"); !errors.Is(ExplainFull("/", other), other) {
		t.Error("every error is a full disk")
	}
}

// For a directory that does not exist, nothing is reported.
func TestDiskOfADirectoryThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testbed.Lines{}
		s := NewSpace(filepath.Join(t.TempDir(), "gone"), func() session.Instant { return 0 }, slog.New(slog.NewTextHandler(log, nil)))
		go s.Watch(t.Context())
		synctest.Wait()
		if s.Seen() != -1 || len(log.Take()) > 0 || s.Note() != "" {
			t.Errorf("%d bytes are free where there is no directory; %q", s.Seen(), s.Note())
		}
	})
}
