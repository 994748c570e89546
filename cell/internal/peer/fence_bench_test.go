package peer

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/internal/disk"
)

// BenchmarkProve measures a proof of leadership in a cell of five over loopback
// TCP with logs on disk, all in one process: how long a caller waits (p50-us,
// p99-us) and how many proofs there are, with that many callers in a tight
// loop, and with or without 64 writers. It also measures Raft's VerifyLeader,
// which is unsafe.
func BenchmarkProve(b *testing.B) {
	nodes := diskCell(b, 5, disk.BoltStore)
	master := leader(b, nodes...)
	master.apply(b, "first")
	f := master.fence()
	proofs := []struct {
		name string
		do   func() error
	}{
		{"fence", func() error {
			_, err := f.Prove(context.Background())
			return err
		}},
		{"VerifyLeader", func() error { return master.raft.VerifyLeader().Error() }},
	}
	for _, writers := range []int{0, 64} {
		stop := make(chan struct{})
		var work sync.WaitGroup
		for range writers {
			work.Go(func() { write(master, stop) })
		}
		for _, callers := range []int{1, 64, 512} {
			for _, proof := range proofs {
				b.Run(fmt.Sprintf("writers=%d/callers=%d/%s", writers, callers, proof.name), func(b *testing.B) {
					measureCalls(b, callers, proof.do)
				})
			}
		}
		close(stop)
		work.Wait()
	}
}

// write applies commands until stop.
func write(n *raftNode, stop <-chan struct{}) {
	command := make([]byte, 128)
	for {
		select {
		case <-stop:
			return
		default:
			if err := n.raft.Apply(command, 0).Error(); err != nil {
				panic(err) // the benchmark's leader has lost its majority: no result would be valid
			}
		}
	}
}

// measureCalls distributes b.N calls over callers.
func measureCalls(b *testing.B, callers int, do func() error) {
	var work sync.WaitGroup
	took := make([][]time.Duration, callers)
	b.ResetTimer()
	for c := range callers {
		calls := b.N/callers + 1
		work.Go(func() {
			for range calls {
				began := time.Now()
				if err := do(); err != nil {
					b.Error(err)
					return
				}
				took[c] = append(took[c], time.Since(began))
			}
		})
	}
	work.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "p99-us")
}

// diskCell starts a cell over loopback TCP with its stores on disk.
func diskCell(b testing.TB, size int, kind disk.LogStore) []*raftNode {
	members := map[string]string{}
	listeners := map[string]net.Listener{}
	for i := range size {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		id := fmt.Sprintf("r%d", i+1)
		listeners[id], members[id] = l, l.Addr().String()
	}
	var nodes []*raftNode
	dir := b.TempDir()
	for i := range size {
		id := fmt.Sprintf("r%d", i+1)
		n := startNode(b, nodeConfig{
			id: id, members: members, listen: listeners[id], timeout: 3 * time.Second, // so that a loaded machine holds no election
			dir: filepath.Join(dir, id), kind: kind,
			dial: func(address string, timeout time.Duration) (net.Conn, error) {
				return net.DialTimeout("tcp", address, timeout)
			},
		})
		b.Cleanup(n.stop)
		nodes = append(nodes, n)
	}
	nodes[0].bootstrap(b, members)
	return nodes
}
