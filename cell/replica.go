package cell

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/cell/internal/audit"
	"github.com/chubbylock/chubby/cell/internal/console"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// Replica is one running member of a cell. Its methods may be called from any
// goroutine.
type Replica struct {
	cfg   Config
	clock session.Clock
	begun session.Instant // when it was started
	log   *slog.Logger    // never waits for what is logged to be written
	logs  *logQueue

	stores     *disk.Stores
	space      *disk.Space
	passport   *peer.Passport
	absences   absences
	comparison *peer.Comparison
	reached    chan fsm.CheckPoint // has the newest check point that was applied, until its state is hashed
	leaving    atomic.Bool         // this replica may be about to stop, and contradicts nobody; see stopIfContradicted
	port       *peer.Port
	transport  *peer.Transport
	prober     *peer.Prober
	fsm        *fsm.FSM
	raft       *raft.Raft
	running    atomic.Pointer[raft.Raft] // raft, for goroutines that are there before it
	metrics    *metrics
	times      *entryTimes
	conns      *wire.Connections
	clients    *wire.Server
	guests     atomic.Pointer[wire.Guests] // nil until clients are served
	http       *http.Server
	console    *console.Console // nil if there is none

	clientCerts, peerCerts *certs.Store                          // nil if nothing is encrypted
	tokens                 *tokens.Store                         // nil if none count
	audit                  *audit.Log                            // nil if none is kept
	auditErrors            atomic.Int64                          // acts that it did not take
	stuck                  atomic.Pointer[stuckChange]           // nil unless this is the master, and a step of a change of the replicas cannot be taken
	publishing             atomic.Int64                          // attempts to publish that failed one after the other
	backups                struct{ failures, last atomic.Int64 } // what takeBackups has done; last in seconds since 1970

	master atomic.Pointer[master.Master] // nil unless this replica is the master

	cancel      context.CancelCauseFunc // ends runEpochs
	elections   chan bool               // Raft says here that it leads, or has stopped leading
	epochsEnded chan struct{}           // closed when runEpochs has ended
	lost        chan string             // replicas that have closed a stream of their Raft messages; see replaceDead
	handing     chan struct{}           // full while the mastership is being handed over; see Transfer
	outages     outages
	work        sync.WaitGroup // runEpochs and the servers
	once        sync.Once      // the first of Stop and fail
	left        raft.Future    // of Raft's end; for the goroutine that stops the replica
	started     chan struct{}  // closed when Start returns
	done        chan struct{}

	mu    sync.Mutex // guards the fields below
	err   error      // why the replica stopped by itself
	quiet func()     // silences the port, once there is one
}

// Done is closed when the replica has stopped, by Stop or by itself.
func (r *Replica) Done() <-chan struct{} { return r.done }

// Log returns the replica's logger. It writes to Config.Logger and never waits
// for that: what cannot be written in time is dropped and counted, and nothing is
// written after the replica has stopped.
func (r *Replica) Log() *slog.Logger { return r.log }

// Err says why the replica stopped by itself (its disk failed or stalled), nil
// after Stop or while it runs.
func (r *Replica) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// stuckChange is why a change of the cell's replicas does not go on.
type stuckChange struct{ id, why string }
