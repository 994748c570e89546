package cell_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"golang.org/x/sys/unix"
)

// BenchmarkCheckPoint hashes states of 1 GiB of contents as a replica does at each check point, and reports how much processor
// time the whole process takes for it, that of the garbage collector included. Building the largest state takes 3 GB of memory.
func BenchmarkCheckPoint(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, api.MaxContents} {
		b.Run(fmt.Sprintf("files of %d KiB", size>>10), func(b *testing.B) {
			s := raftfsm.NewState()
			s.Edit()
			create := func(name api.Name, spec namespace.Spec) {
				s.Counter++
				must(s.Tree.Create(name, spec, api.Generation(s.Counter)))(b)
			}
			for i := range 1 << 30 / size {
				dir := api.Name(fmt.Sprintf("/dir-%04d", i/1_000))
				if i%1_000 == 0 {
					create(dir, namespace.Spec{Kind: api.Directory})
				}
				create(dir+api.Name(fmt.Sprintf("/file-%03d", i%1_000)), namespace.Spec{Kind: api.File, Contents: make([]byte, size)})
			}
			state := s.Snapshot()
			bytes := must(state.WriteTo(io.Discard))(b)
			began := processorTime(b)
			for b.Loop() {
				if sum, err := cell.HashCheckPoint(b.Context(), state); err != nil || len(sum) != sha256.Size {
					b.Fatalf("%d bytes, %v", len(sum), err)
				}
			}
			b.ReportMetric((processorTime(b)-began).Seconds()/float64(b.N), "processor-s/op")
			b.ReportMetric(float64(bytes)/(1<<30), "GiB/op")
		})
	}
}

// processorTime returns the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	var t unix.Timespec
	noErr(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}
